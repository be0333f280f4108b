package kafkaadmin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// Level is the severity of a Finding.
type Level string

// The levels. LevelFail prevents the stream from running.
const (
	LevelOK   Level = "ok"
	LevelInfo Level = "info"
	LevelWarn Level = "warn"
	LevelFail Level = "fail"
)

// Finding is one result of Check.
type Finding struct {
	// Level is the severity, Text the observation.
	Level Level  `json:"level"`
	Text  string `json:"text"`
	// Hint is the remedy; may be empty.
	Hint string `json:"hint,omitempty"`
	// HintCode is the code of the remedy where Hint is empty.
	HintCode bridge.Hint `json:"-"`
}

const (
	checkTimeout = 15 * time.Second
	// pingTimeout bounds the request to one broker.
	pingTimeout = 4 * time.Second
	// A coordinator that is not available yet is asked again for a while.
	coordinatorPatience = 5 * time.Second
	coordinatorRetry    = 200 * time.Millisecond
)

// Check verifies that the stream can run: brokers, TLS, authentication, topics,
// ACLs, retention. It changes nothing and takes at most about 15 seconds.
func (s *Stream) Check(ctx context.Context) []Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	client, err := s.Open(kgo.RetryTimeout(pingTimeout))
	if err != nil {
		return []Finding{failed(s.Fault(err, ""))}
	}
	defer client.Close()
	found, ok := s.checkBrokers(ctx, client)
	if !ok {
		return found
	}
	topics, err := s.Topics.Describe(client.Describe(ctx, s.Topics.All()...))
	if err != nil {
		return append(found, failed(client.Explain(err, s.Topics.Events)))
	}
	gone, err := s.vanished(ctx, client, &topics)
	if err != nil {
		found = append(found, failed(client.Explain(err, s.Topics.Events)))
	}
	for _, t := range topics.Published() {
		if c, ok := gone[t.Name]; ok {
			found = append(found, failed(s.vanishedError(t.Name, c)))
			continue
		}
		found = append(found, s.checkTopic(t, t == topics.Events)...)
	}
	if len(gone) == 0 {
		found = append(found, s.checkHeld(ctx, client, &topics)...)
	}
	found = append(found, s.checkCheckpoints(ctx, topics.Checkpoints)...)
	if topics.Jobs != nil {
		found = append(found, s.checkJobs(topics.Jobs)...)
	}
	return append(found, s.checkTransactions(ctx, client)...)
}

// finding returns a list of one Finding.
func finding(level Level, hint, format string, args ...any) []Finding {
	return []Finding{{Level: level, Text: fmt.Sprintf(format, args...), Hint: hint}}
}

func failed(f *bridge.Fault) Finding {
	return Finding{Level: LevelFail, Text: "Kafka: " + f.Error(), Hint: f.Hint, HintCode: f.HintCode}
}

// checkBrokers checks every broker at its advertised address. It reports false
// if the cluster is unreachable.
func (s *Stream) checkBrokers(ctx context.Context, client *kafkaclient.Client) ([]Finding, bool) {
	asking, cancel := context.WithTimeout(ctx, kafkaclient.AttemptTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(asking, client)
	if err != nil {
		return []Finding{failed(client.Explain(fmt.Errorf("ask %s: %w", strings.Join(s.Brokers, ", "), err), s.Topics.Events))}, false
	}
	if len(resp.Brokers) == 0 {
		return finding(LevelFail, "wait until the brokers have started, or check KAFKA_BROKERS",
			"Kafka: %s names no broker of the cluster", strings.Join(s.Brokers, ", ")), false
	}
	var found []Finding
	for i := range resp.Brokers {
		b := &resp.Brokers[i]
		if err := ping(ctx, client, b.NodeID); err != nil {
			meta := kgo.BrokerMetadata{NodeID: b.NodeID, Host: b.Host, Port: b.Port}
			found = append(found, failed(s.Fault(kafkaclient.BrokerError(meta, err), "")))
		}
	}
	if len(found) == 0 {
		text := fmt.Sprintf("%d brokers reachable at their advertised addresses", len(resp.Brokers))
		if len(resp.Brokers) == 1 {
			text = "the only broker is reachable at " + net.JoinHostPort(resp.Brokers[0].Host, strconv.Itoa(int(resp.Brokers[0].Port)))
		}
		found = append(found, Finding{Level: LevelOK, Text: "Kafka: " + text + secured(&s.Config)})
	}
	return found, true
}

func ping(ctx context.Context, client *kafkaclient.Client, node int32) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_, err := client.Broker(int(node)).Request(ctx, kmsg.NewPtrApiVersionsRequest())
	return err
}

// secured describes the protection of connections.
func secured(c *kafkaclient.Config) string {
	var how []string
	if c.TLSEnabled {
		how = append(how, "TLS")
	}
	if c.SASLMechanism != "" {
		how = append(how, c.SASLMechanism)
	}
	if len(how) == 0 {
		return ", without TLS and SASL"
	}
	return ", with " + strings.Join(how, " and ")
}

func (s *Stream) checkTopic(t *kafkaclient.Topic, events bool) []Finding {
	if !t.Exists && s.CreateTopics {
		return finding(LevelInfo, "", "topic %s does not exist; run will create it", t.Name)
	}
	if err := s.CanPublish(t); err != nil {
		return []Finding{failed(s.Fault(err, t.Name))}
	}
	found := finding(LevelOK, "", "topic %s: %s, at most %s per message, writable",
		t.Name, sizeText(t), bytesText(t.Settings.MaxMessage))
	if !t.Settings.Known {
		found = append(found, s.unreadable(t, "assuming KAFKA_MAX_MESSAGE_BYTES and a retention of 7 days")...)
	}
	found = append(found, s.checkReplicas(t)...)
	if events {
		found = append(found, s.checkRetention(t)...)
	}
	return found
}

// unreadable reports that a topic's configuration is not readable.
func (s *Stream) unreadable(t *kafkaclient.Topic, consequence string) []Finding {
	return finding(LevelWarn, s.GrantRead(t.Name), "topic %s: no permission to read its configuration; %s", t.Name, consequence)
}

// checkHeld checks that the topics hold what the newest checkpoint implies.
func (s *Stream) checkHeld(ctx context.Context, client *kafkaclient.Client, described *kafkaclient.Described) []Finding {
	var topics []bridge.TopicState
	var names []string
	for _, t := range described.Published() {
		if t.Exists {
			topics, names = append(topics, t.State(t == described.DeadLetters)), append(names, t.Name)
		}
	}
	c, err := s.Newest(ctx, client)
	if errors.Is(err, bridge.ErrNoCheckpoint) || len(names) == 0 {
		return nil
	}
	var bounds map[string]map[int32]kafkaclient.Span
	if err == nil {
		bounds, err = client.Bounds(ctx, names...)
	}
	if err != nil {
		f := s.Fault(err, s.Topics.Events)
		return finding(LevelWarn, f.Hint, "cannot check that the topics hold what was published: %s", f.Error())
	}
	for i := range topics {
		for _, b := range bounds[names[i]] {
			topics[i].Start, topics[i].End = topics[i].Start+b.From, topics[i].End+b.To
		}
	}
	if fault := bridge.TopicsLost(c, topics); fault != nil {
		return []Finding{failed(fault)}
	}
	var found []Finding
	if c.Events > 0 {
		found = finding(LevelOK, "", "the topics match checkpoint %s", c.Version)
	}
	if text := bridge.GrownText(c.Topics); text != "" {
		found = append(found, Finding{Level: LevelInfo, Text: text})
	}
	return found
}

// sizeText counts the partitions and replicas of a topic.
func sizeText(t *kafkaclient.Topic) string {
	counted := func(n int, what string) string {
		if n == 1 {
			return "1 " + what
		}
		return strconv.Itoa(n) + " " + what + "s"
	}
	return counted(len(t.Partitions), "partition") + ", " + counted(t.Replication(), "replica")
}

// checkReplicas checks the replication of a topic.
func (s *Stream) checkReplicas(t *kafkaclient.Topic) []Finding {
	var found []Finding
	for _, trouble := range t.Troubles() {
		found = append(found, Finding{Level: LevelWarn, Text: trouble, Hint: "check that all brokers are up"})
	}
	if n, err := strconv.Atoi(t.Configs["min.insync.replicas"]); err == nil && n < 2 && t.Replication() >= 3 {
		found = append(found, finding(LevelWarn, s.Alter(t.Name, "min.insync.replicas=2"),
			"topic %s: min.insync.replicas is %d; an acknowledged record may be on a single replica", t.Name, n)...)
	}
	return found
}

// checkCheckpoints looks at the checkpoint topic.
func (s *Stream) checkCheckpoints(ctx context.Context, t *kafkaclient.Topic) []Finding {
	if !t.Exists && s.CreateTopics {
		if err := s.checkpointsLost(ctx); err != nil {
			return []Finding{failed(s.Fault(err, s.Topics.Events))}
		}
		return finding(LevelInfo, "", "topic %s does not exist; run will create it", t.Name)
	}
	if err := s.CanCheckpoint(t); err != nil {
		return []Finding{failed(s.Fault(err, t.Name))}
	}
	found := finding(LevelOK, "", "topic %s: %s; checkpoints of %s are in partition %d",
		t.Name, sizeText(t), s.Name, kafkaclient.CheckpointPartition(s.Name))
	lag, known := t.Millis("min.compaction.lag.ms")
	switch {
	case !t.Settings.Known:
		found = append(found, s.unreadable(t, "cleanup.policy must be compact")...)
	case known && lag < compactionLag && lag != kafkaclient.ForEver:
		hint := s.Alter(t.Name, fmt.Sprintf("min.compaction.lag.ms=%d", compactionLag.Milliseconds()))
		found = append(found, finding(LevelWarn, hint,
			"topic %s: min.compaction.lag.ms is %s; without Redis only the newest checkpoint remains for a rewind", t.Name, lag)...)
	}
	return append(found, s.checkReplicas(t)...)
}

// checkJobs checks the job topic, which the stream itself does not need.
func (s *Stream) checkJobs(t *kafkaclient.Topic) []Finding {
	if !t.Exists {
		return finding(LevelInfo, "", "topic %s does not exist; the first replay, backfill or repair will create it", t.Name)
	}
	if err := s.CanCheckpoint(t); err != nil {
		f := s.Fault(err, t.Name)
		return finding(LevelWarn, f.Hint, "replay, backfill and repairs: %s", f.Error())
	}
	return finding(LevelOK, "", "topic %s: %s, for replay, backfill and repairs", t.Name, sizeText(t))
}

// checkTransactions checks the stream's transactional id and
// transaction.version.
func (s *Stream) checkTransactions(ctx context.Context, client *kafkaclient.Client) []Finding {
	id := s.TransactionalID
	err := findCoordinator(ctx, client, id)
	// A new cluster makes its topic of transactions when it is first asked.
	for until := time.Now().Add(coordinatorPatience); kerr.IsRetriable(err) && time.Now().Before(until); {
		bridge.Sleep(ctx, coordinatorRetry)
		err = findCoordinator(ctx, client, id)
	}
	if err != nil {
		f := client.Explain(fmt.Errorf("find the coordinator of transactional id %s: %w", id, err), "")
		if errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
			f.Hint = s.Grants[0]
		}
		return []Finding{failed(f)}
	}
	version, err := client.TransactionVersion(ctx)
	switch {
	case err != nil:
		return []Finding{failed(client.Explain(err, s.Topics.Events))}
	case version < kafkaclient.StrictTransactions && s.Exactly:
		return finding(LevelWarn, s.UpgradeHint(), "transaction.version is %d: %s", version, kafkaclient.WeakTransactions)
	}
	return finding(LevelOK, "", "transactional id %s, transaction.version %d", id, version)
}

// findCoordinator looks up the coordinator of a transactional id.
func findCoordinator(ctx context.Context, client *kafkaclient.Client, id string) error {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = 1, id, []string{id} // 1 is for transactions
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err == nil && len(resp.Coordinators) > 0 {
		err = kerr.ErrorForCode(resp.Coordinators[0].ErrorCode)
	}
	return err
}

// checkRetention reports how old event times will be treated.
func (s *Stream) checkRetention(t *kafkaclient.Topic) []Finding {
	switch {
	case s.PublishTime || t.Settings.AppendTime:
		return finding(LevelInfo, "", "topic %s: records carry the time of publishing", t.Name)
	case t.Settings.Retention == kafkaclient.ForEver:
		return finding(LevelOK, "", "topic %s keeps records for ever", t.Name)
	}
	becomes := "get the time of publishing (the exact one stays in ce_time)"
	if s.StopExpired {
		becomes = "stop the stream (BRIDGE_ON_EXPIRED=stop)"
	}
	kept := t.Settings.Retention
	return finding(LevelWarn, s.Alter(t.Name, "retention.ms=-1"), "topic %s keeps records for %s by their time: events older than %s %s",
		t.Name, daysText(kept), daysText(kept/2), becomes)
}

func daysText(d time.Duration) string {
	if d >= 48*time.Hour {
		return strconv.FormatFloat(d.Hours()/24, 'f', -1, 64) + " days"
	}
	return d.String()
}

func bytesText(n int) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", n)
}
