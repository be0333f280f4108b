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
	// HintCode is the code of the remedy if Hint is empty.
	HintCode bridge.Hint `json:"-"`
}

const (
	checkTimeout = 15 * time.Second
	// pingTimeout bounds the request to one broker.
	pingTimeout = 4 * time.Second
	// coordinatorPatience is how long the check keeps asking a coordinator that is not
	// available yet.
	coordinatorPatience = 5 * time.Second
	coordinatorRetry    = 200 * time.Millisecond
)

// Check verifies that the stream can run: brokers, TLS, authentication, topics,
// ACLs, retention. It changes nothing and takes at most about 15 seconds.
func (s *Stream) Check(ctx context.Context) []Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	c := &check{Stream: s}
	var err error
	if c.client, err = s.OpenUntil(ctx, kgo.RetryTimeout(pingTimeout)); err != nil {
		c.fail(s.Fault(err, ""))
		return c.found
	}
	defer c.client.Close()
	if c.brokers(ctx) {
		c.all(ctx)
	}
	return c.found
}

// check is one run of Check.
type check struct {
	*Stream
	client *kafkaclient.Client
	topics kafkaclient.Described
	found  []Finding
}

// add adds a Finding.
func (c *check) add(level Level, hint, format string, args ...any) {
	c.found = append(c.found, Finding{Level: level, Text: fmt.Sprintf(format, args...), Hint: hint})
}

func (c *check) fail(f *bridge.Fault) {
	c.found = append(c.found, Finding{Level: LevelFail, Text: "Kafka: " + f.Error(), Hint: f.Hint, HintCode: f.HintCode})
}

// all checks everything but the brokers.
func (c *check) all(ctx context.Context) {
	var err error
	if c.topics, err = c.Topics.Describe(c.client.Describe(ctx, c.Topics.Own()...)); err != nil {
		c.fail(c.client.Explain(err, c.Topics.Events))
		if !errors.Is(err, kerr.TopicAuthorizationFailed) { // grants of the rest are asked for with it
			return
		}
	} else {
		c.described(ctx)
	}
	c.beside(ctx, c.Topics.Jobs, "replay, backfill and repairs", c.jobs)
	c.beside(ctx, c.Topics.Attest, "attestation", c.attest)
	if c.topics.Keys != nil {
		c.keys()
	}
	c.transactions(ctx)
	if group, err := c.Rights.CheckGroup(ctx, c.client); err != nil {
		c.fail(c.Fault(err, ""))
	} else {
		c.add(LevelOK, "", "group %s can be joined", group)
	}
}

// described checks the topics that the stream requires.
func (c *check) described(ctx context.Context) {
	gone, err := c.Past.vanished(ctx, c.client, &c.topics)
	if err != nil {
		c.fail(c.client.Explain(err, c.Topics.Events))
	}
	for _, t := range c.topics.Published() {
		if at, ok := gone[t.Name]; ok {
			c.fail(c.vanishedError(t.Name, at))
			continue
		}
		c.published(t)
	}
	if len(gone) == 0 {
		c.held(ctx)
	}
	c.checkpoints(ctx)
}

// brokers checks every broker at its advertised address. It reports false if the
// cluster is unreachable.
func (c *check) brokers(ctx context.Context) bool {
	asking, cancel := context.WithTimeout(ctx, kafkaclient.AttemptTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(asking, c.client)
	if err != nil {
		c.fail(c.client.Explain(fmt.Errorf("ask %s: %w", strings.Join(c.Brokers, ", "), err), c.Topics.Events))
		return false
	}
	if len(resp.Brokers) == 0 {
		c.add(LevelFail, "wait until the brokers have started, or check KAFKA_BROKERS",
			"Kafka: %s names no broker of the cluster", strings.Join(c.Brokers, ", "))
		return false
	}
	for i := range resp.Brokers {
		b := &resp.Brokers[i]
		if err := ping(ctx, c.client, b.NodeID); err != nil {
			meta := kgo.BrokerMetadata{NodeID: b.NodeID, Host: b.Host, Port: b.Port}
			c.fail(c.Fault(kafkaclient.BrokerError(meta, err), ""))
		}
	}
	if len(c.found) == 0 {
		text := fmt.Sprintf("%d brokers reachable at their advertised addresses", len(resp.Brokers))
		if len(resp.Brokers) == 1 {
			text = "the only broker is reachable at " +
				net.JoinHostPort(resp.Brokers[0].Host, strconv.Itoa(int(resp.Brokers[0].Port)))
		}
		c.add(LevelOK, "", "Kafka: %s%s", text, secured(&c.Config))
	}
	return true
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
	if login := c.Login(); login != "" {
		how = append(how, login)
	}
	if len(how) == 0 {
		return ", without TLS and SASL"
	}
	return ", with " + strings.Join(how, " and ")
}

// published checks the topic of events or of dead letters.
func (c *check) published(t *kafkaclient.Topic) {
	if !t.Exists && c.CreateTopics {
		c.add(LevelInfo, "", "topic %s does not exist; run will create it", t.Name)
		return
	}
	if err := c.CanPublish(t); err != nil {
		c.fail(c.Fault(err, t.Name))
		return
	}
	c.add(LevelOK, "", "topic %s: %s, at most %s per message, writable",
		t.Name, sizeText(t), bytesText(t.Settings.MaxMessage))
	if !t.Settings.Known {
		c.unreadable(t, "assuming KAFKA_MAX_MESSAGE_BYTES and a retention of 7 days")
	}
	c.replicas(t)
	if t != c.topics.DeadLetters {
		c.retention(t)
	}
}

// unreadable reports that a topic's configuration is not readable.
func (c *check) unreadable(t *kafkaclient.Topic, consequence string) {
	c.add(LevelWarn, c.GrantRead(t.Name), "topic %s: no permission to read its configuration; %s", t.Name, consequence)
}

// held checks that the topics hold the records that the newest checkpoint implies.
func (c *check) held(ctx context.Context) {
	var topics []bridge.TopicState
	var names []string
	for _, t := range c.topics.Published() {
		if t.Exists {
			topics, names = append(topics, t.State(t == c.topics.DeadLetters)), append(names, t.Name)
		}
	}
	at, err := c.Past.Newest(ctx, c.client)
	if errors.Is(err, bridge.ErrNoCheckpoint) || len(names) == 0 {
		return
	}
	var bounds map[string]map[int32]kafkaclient.Span
	if err == nil {
		bounds, err = c.client.Bounds(ctx, names...)
	}
	if err != nil {
		f := c.Fault(err, c.Topics.Events)
		c.add(LevelWarn, f.Hint, "cannot check that the topics hold what was published: %s", f.Error())
		return
	}
	for i := range topics {
		ends := make([]int64, len(bounds[names[i]]))
		for id, b := range bounds[names[i]] {
			topics[i].Start, topics[i].End = topics[i].Start+b.From, topics[i].End+b.To
			ends[id] = b.To
		}
		topics[i].Ends = bridge.EncodeEnds(ends)
	}
	if fault := bridge.TopicsLost(at, topics); fault != nil {
		c.fail(fault)
		return
	}
	if at.Events > 0 {
		c.add(LevelOK, "", "the topics match checkpoint %s", at.Version)
	}
	if text := bridge.GrownText(at.Topics); text != "" {
		c.add(LevelInfo, "", "%s", text)
	}
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

// replicas checks the replication of a topic.
func (c *check) replicas(t *kafkaclient.Topic) {
	for _, trouble := range t.Troubles() {
		c.add(LevelWarn, "check that all brokers are up", "%s", trouble)
	}
	if n, err := strconv.Atoi(t.Configs["min.insync.replicas"]); err == nil && n < 2 && t.Replication() >= 3 {
		c.add(LevelWarn, c.Alter(t.Name, "min.insync.replicas=2"),
			"topic %s: min.insync.replicas is %d; an acknowledged record may be on a single replica", t.Name, n)
	}
}

// checkpoints checks the checkpoint topic.
func (c *check) checkpoints(ctx context.Context) {
	t := c.topics.Checkpoints
	if !t.Exists && c.CreateTopics {
		if err := c.checkpointsLost(ctx); err != nil {
			c.fail(c.Fault(err, c.Topics.Events))
			return
		}
		c.add(LevelInfo, "", "topic %s does not exist; run will create it", t.Name)
		return
	}
	if err := c.CanCheckpoint(t); err != nil {
		c.fail(c.Fault(err, t.Name))
		return
	}
	c.add(LevelOK, "", "topic %s: %s; checkpoints of %s are in partition %d",
		t.Name, sizeText(t), c.Name, kafkaclient.CheckpointPartition(c.Name))
	lag, known := t.Millis("min.compaction.lag.ms")
	switch {
	case !t.Settings.Known:
		c.unreadable(t, "cleanup.policy must be compact")
	case known && lag < compactionLag && lag != kafkaclient.ForEver:
		c.add(LevelWarn, c.Alter(t.Name, fmt.Sprintf("min.compaction.lag.ms=%d", compactionLag.Milliseconds())),
			"topic %s: min.compaction.lag.ms is %s; without Redis only the newest checkpoint remains for a rewind", t.Name, lag)
	}
	c.replicas(t)
}

// beside checks a topic, if it has a name, that the stream itself does not need: what is
// wrong with it only concerns its use.
func (c *check) beside(ctx context.Context, topic, use string, check func(*kafkaclient.Topic) error) {
	if topic == "" {
		return
	}
	found, err := c.client.Describe(ctx, topic)
	if err == nil {
		err = check(&found[0])
	}
	if err != nil {
		f := c.client.Explain(err, topic)
		c.add(LevelWarn, f.Hint, "%s: %s", use, f.Error())
	}
}

// jobs checks the job topic.
func (c *check) jobs(t *kafkaclient.Topic) error {
	if !t.Exists {
		c.add(LevelInfo, "", "topic %s does not exist; the first replay, backfill or repair will create it", t.Name)
		return nil
	}
	if err := c.CanCheckpoint(t); err != nil {
		return err
	}
	c.add(LevelOK, "", "topic %s: %s, for replay, backfill and repairs", t.Name, sizeText(t))
	return nil
}

// attest checks the attestation topic.
func (c *check) attest(t *kafkaclient.Topic) error {
	switch {
	case t.Exists:
		if err := c.CanPublish(t); err != nil {
			return err
		}
		c.add(LevelOK, "", "topic %s: %s, for the attestation", t.Name, sizeText(t))
	case c.CreateTopics:
		c.add(LevelInfo, "", "topic %s does not exist; the first attestation will create it", t.Name)
	default:
		c.add(LevelWarn, "exportbridge topics create --execute", "topic %s does not exist: nothing is attested", t.Name)
	}
	return nil
}

// keys checks the topic of keys.
func (c *check) keys() {
	t := c.topics.Keys
	if err := c.CanKeepKeys(t); err != nil {
		c.fail(c.Fault(err, t.Name))
		return
	}
	c.add(LevelOK, "", "topic %s: %s, for the keys of encrypted values", t.Name, sizeText(t))
	if !t.Settings.Known {
		c.unreadable(t, "cleanup.policy must be compact")
		return
	}
	for name, want := range keyConfigs() {
		most, _ := strconv.ParseFloat(want, 64)
		if has, err := strconv.ParseFloat(t.Configs[name], 64); err == nil && has > most {
			c.add(LevelWarn, c.Alter(t.Name, name+"="+want),
				"topic %s: %s is %s; a deleted key stays on disk for longer than %s", t.Name, name, t.Configs[name],
				kafkaclient.KeyCompaction+kafkaclient.KeySegment)
		}
	}
	c.replicas(t)
}

// transactions checks the stream's transactional id and transaction.version.
func (c *check) transactions(ctx context.Context) {
	id := c.Rights.TransactionalID
	err := findCoordinator(ctx, c.client, id)
	// A new cluster creates its transaction topic at the first such request.
	for until := time.Now().Add(coordinatorPatience); kerr.IsRetriable(err) && time.Now().Before(until); {
		bridge.Sleep(ctx, coordinatorRetry)
		err = findCoordinator(ctx, c.client, id)
	}
	if err != nil {
		f := c.client.Explain(fmt.Errorf("find the coordinator of transactional id %s: %w", id, err), "")
		if errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
			f.Hint = c.Rights.Transactions
		}
		c.fail(f)
		return
	}
	version, err := c.client.TransactionVersion(ctx)
	switch {
	case err != nil:
		c.fail(c.client.Explain(err, c.Topics.Events))
	case version < kafkaclient.StrictTransactions && c.Exactly:
		c.add(LevelWarn, c.UpgradeHint(), "transaction.version is %d: %s", version, kafkaclient.WeakTransactions)
	default:
		c.add(LevelOK, "", "transactional id %s, transaction.version %d", id, version)
	}
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

// retention reports how old event times will be treated.
func (c *check) retention(t *kafkaclient.Topic) {
	switch {
	case c.PublishTime || t.Settings.AppendTime:
		c.add(LevelInfo, "", "topic %s: records carry the time of publishing", t.Name)
		return
	case t.Settings.Retention == kafkaclient.ForEver:
		c.add(LevelOK, "", "topic %s keeps records for ever", t.Name)
		return
	}
	becomes := "get the time of publishing (the exact one stays in ce_time)"
	if c.StopExpired {
		becomes = "stop the stream (BRIDGE_ON_EXPIRED=stop)"
	}
	kept := t.Settings.Retention
	c.add(LevelWarn, c.Alter(t.Name, "retention.ms=-1"),
		"topic %s keeps records for %s by their time: events older than %s %s",
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
