package kafkasink_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkastream"
)

func TestMissingTopic(t *testing.T) {
	t.Parallel()
	addrs := kafkatest.Brokers(t)
	cfg := config(t, addrs, func(c *kafkastream.Config) {
		c.CreateTopics = false
		c.Hints = func(h bridge.Hint) string { return map[bridge.Hint]string{bridge.HintTopicMissing: "create it"}[h] }
	})
	s := open(t, cfg)
	f := kafkatest.AsFault(t, tryRecover(t, s), bridge.Permanent, bridge.ReasonTopic)
	if !strings.Contains(f.Error(), cfg.Topic) || f.HintCode != bridge.HintTopicMissing || f.Hint != "create it" {
		t.Errorf("fault %v, advice %q, hint %q: want the topic and the program's words", f, f.HintCode, f.Hint)
	}
	kafkatest.CreateTopic(t, cfg.Brokers, cfg.Topic, cfg.Partitions, nil)
	f = kafkatest.AsFault(t, tryRecover(t, s), bridge.Permanent, bridge.ReasonTopic)
	if !strings.Contains(f.Error(), "dlq."+cfg.Topic) {
		t.Errorf("fault %v does not name the dead-letter topic", f)
	}
	kafkatest.CreateTopic(t, cfg.Brokers, "dlq."+cfg.Topic, cfg.Partitions, nil)
	f = kafkatest.AsFault(t, tryRecover(t, s), bridge.Permanent, bridge.ReasonTopic)
	if !strings.Contains(f.Error(), cfg.CheckpointTopic) || f.HintCode != bridge.HintCheckpointTopicMissing ||
		f.Hint != "" {
		t.Errorf("fault %v, advice %q, hint %q: want the checkpoint topic and the advice alone", f, f.HintCode, f.Hint)
	}
	kafkatest.CreateCheckpointTopic(t, cfg.Brokers, cfg.CheckpointTopic, nil)
	must.Be(t, tryRecover(t, s), bridge.ErrNoCheckpoint)
	publish(t, s, page(event("e", "u")))
}

func TestCompactedTopic(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t))
	kafkatest.CreateTopic(t, cfg.Brokers, cfg.Topic, cfg.Partitions, map[string]*string{"cleanup.policy": new("compact")})
	f := kafkatest.AsFault(t, tryRecover(t, open(t, cfg)), bridge.Permanent, bridge.ReasonTopic)
	if !strings.Contains(f.Hint, "cleanup.policy=delete") {
		t.Errorf("hint %q names no repair", f.Hint)
	}
}

func TestBadEventStops(t *testing.T) {
	t.Parallel()
	addrs := kafkatest.Brokers(t)
	huge := event("e-huge", "u")
	huge.Raw = []byte(`"` + strings.Repeat("x", 2<<20) + `"`)
	nothing := event("e-nothing", "u")
	nothing.Raw = nil
	broken := event("e-broken", "u")
	broken.Defect = bridge.DefectTime
	for name, c := range map[string]struct {
		bad  bridge.Event
		code string
	}{
		"too large": {huge, "too-large"},
		"defect":    {broken, "bad-timestamp"},
		"tombstone": {nothing, "not-an-object"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, addrs, func(cfg *kafkastream.Config) { cfg.OnBadEvent, cfg.TimePointer = "stop", "/at" })
			s := recovered(t, cfg)
			_, err := tryPublish(t, s, page(event("first", "u"), c.bad))
			f := kafkatest.AsFault(t, err, bridge.Permanent, bridge.ReasonEvent)
			if f.Code != c.code || !strings.Contains(f.Error(), "item 1 of the page at cursor ") ||
				strings.Contains(f.Error(), string(c.bad.ID)) {
				t.Errorf("fault %v with code %s: want %s, the place of the item, and not its id", f, f.Code, c.code)
			}
			if strings.HasSuffix(f.Error(), "the item has no readable time at /at") != (c.bad.Defect == bridge.DefectTime) {
				t.Errorf("fault %v: want the pointer of the time", f)
			}
			if got := consume(t, cfg, cfg.Topic); len(got) != 0 {
				t.Errorf("%d records were produced before the stop", len(got))
			}
			must.Be(t, err, bridge.ErrRejected)
			publish(t, s, page(event("second", "u"))) // the session goes on
			if got := consume(t, cfg, cfg.Topic); len(got) != 1 || !strings.Contains(string(got[0].Value), "second") {
				t.Errorf("%d records after the next batch, want its one", len(got))
			}
		})
	}
}

// TestSizes publishes events of sizes around the topic's limit: every event, of any shape,
// must end in one of the two topics.
func TestSizes(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t), func(c *kafkastream.Config) { c.Compression = "none" })
	const limit = 20_000
	small := map[string]*string{"max.message.bytes": new(fmt.Sprint(limit))}
	kafkatest.CreateTopic(t, cfg.Brokers, cfg.Topic, cfg.Partitions, small)
	kafkatest.CreateTopic(t, cfg.Brokers, "dlq."+cfg.Topic, cfg.Partitions, small)
	s := recovered(t, cfg)
	var events []bridge.Event
	add := func(id string, change func(*bridge.Event)) {
		ev := event(id, "u")
		change(&ev)
		events = append(events, ev)
	}
	for n := limit - 1000; n < limit+100; n += 7 {
		add(fmt.Sprintf("e%d", n), func(ev *bridge.Event) { ev.Raw = []byte(strings.Repeat("x", n)) })
	}
	long := []byte(strings.Repeat("y", limit))
	add("long key", func(ev *bridge.Event) { ev.Key = long })
	add("long subject", func(ev *bridge.Event) { ev.Subject = long })
	add("long type", func(ev *bridge.Event) { ev.Type = long })
	add("", func(ev *bridge.Event) { ev.ID = long })
	add("all long", func(ev *bridge.Event) { ev.Key, ev.Subject, ev.Type, ev.ID, ev.Raw = long, long, long, long, long })
	add("long and broken", func(ev *bridge.Event) { ev.Raw, ev.Defect = long, bridge.DefectNotObject })
	p := page(events...)
	p.At.Cursor = strings.Repeat("\x01c", 8<<10) // longer still as JSON
	receipt := publish(t, s, p)
	dead := receipt.DeadLettered[bridge.DefectTooLarge] + receipt.DeadLettered[bridge.DefectNotObject]
	if receipt.Published == 0 || dead < 6 || receipt.Published+dead != len(events) {
		t.Errorf("receipt %+v does not add up to %d events", receipt, len(events))
	}
	if got := len(consume(t, cfg, cfg.Topic)); got != receipt.Published {
		t.Errorf("%d records in the topic, receipt says %d", got, receipt.Published)
	}
	letters := consume(t, cfg, "dlq."+cfg.Topic)
	if len(letters) != dead {
		t.Errorf("%d dead letters, receipt says %d", len(letters), dead)
	}
	for _, r := range letters {
		if len(r.Value) == 0 {
			t.Errorf("dead letter %v is a tombstone", headersOf(r))
		}
	}
}

// TestHiddenLimit: the topic takes less than KAFKA_MAX_MESSAGE_BYTES says and its
// settings may not be read.
func TestHiddenLimit(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	hideConfigs(c)
	cfg := config(t, c.ListenAddrs(), func(cfg *kafkastream.Config) { cfg.Compression = "none" })
	small := map[string]*string{"max.message.bytes": new("50000")}
	kafkatest.CreateTopic(t, cfg.Brokers, cfg.Topic, cfg.Partitions, small)
	s := recovered(t, cfg)
	ev := event("e", "u")
	ev.Raw = []byte(strings.Repeat("x", 100_000))
	_, err := tryPublish(t, s, page(ev))
	f := kafkatest.AsFault(t, err, bridge.Permanent, bridge.ReasonConfig)
	if !strings.Contains(f.Hint, "KAFKA_MAX_MESSAGE_BYTES") || !strings.Contains(f.Hint, "DescribeConfigs") {
		t.Errorf("hint %q names no repair", f.Hint)
	}
}

// TestHiddenCheckpointLimit: if the settings of the checkpoint topic may not be read, its limit
// is KAFKA_MAX_MESSAGE_BYTES, and a change of the topic does not help.
func TestHiddenCheckpointLimit(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	hideConfigs(c)
	cfg := config(t, c.ListenAddrs(), exactly, func(cfg *kafkastream.Config) { cfg.MaxMessage = 20_000 })
	s := recovered(t, cfg)
	large := checkpoint(cfg, 1)
	large.Cursor = strings.Repeat("c", 30_000)
	_, err := s.Publish(t.Context(), bridge.Batch{Checkpoint: large})
	f := kafkatest.AsFault(t, err, bridge.Permanent, bridge.ReasonTopic)
	if !strings.Contains(f.Hint, "KAFKA_MAX_MESSAGE_BYTES") || !strings.Contains(f.Hint, cfg.CheckpointTopic) {
		t.Errorf("hint %q names no repair", f.Hint)
	}
}

// TestHiddenRetention: unreadable settings mean Kafka's default of 7 days.
func TestHiddenRetention(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	hideConfigs(c)
	s := recovered(t, config(t, c.ListenAddrs()))
	ev := event("e", "u")
	ev.Time = time.Now().Add(-5 * 24 * time.Hour).UnixMilli()
	if r := publish(t, s, page(ev)); r.Restamped != 1 {
		t.Errorf("receipt %+v, want one restamped", r)
	}
}

func hideConfigs(c *kfake.Cluster) {
	c.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return kafkatest.WithoutConfigs(req, kerr.TopicAuthorizationFailed), nil, true
	})
}

// TestChangedLimit: the topic's limit shrinks while a session uses the old
// one; the next session knows the new one.
func TestChangedLimit(t *testing.T) {
	t.Parallel()
	cfg, s := ready(t, func(c *kafkastream.Config) { c.Compression = "none" })
	publish(t, s, page(event("e", "u")))
	kafkatest.SetConfig(t, kadm.NewClient(connect(t, cfg)), cfg.Topic, "max.message.bytes", "50000")
	ev := event("big", "u")
	ev.Raw = []byte(strings.Repeat("x", 100_000))
	var err error
	kafkatest.Eventually(t, "apply the limit, which a broker does after it answers", func() (bool, error) {
		_, err = tryPublish(t, s, page(ev))
		return err != nil, nil
	})
	kafkatest.AsFault(t, err, bridge.Transient, "")
	restart(t, s)
	if r := publish(t, s, page(ev)); r.DeadLettered[bridge.DefectTooLarge] != 1 {
		t.Errorf("receipt %+v, want one dead letter", r)
	}
}

// TestRefresh: a change that no record error would show is noticed in time.
func TestRefresh(t *testing.T) {
	t.Parallel()
	cfg, s := ready(t)
	s.AgeSettings()
	publish(t, s, page(event("e", "u"))) // nothing has changed
	kafkatest.SetConfig(t, kadm.NewClient(connect(t, cfg)), cfg.Topic, "retention.ms", "604800000")
	old := event("old", "u")
	old.Time = time.Now().Add(-30 * 24 * time.Hour).UnixMilli()
	s.AgeSettings()
	_, err := tryPublish(t, s, page(old))
	kafkatest.AsFault(t, err, bridge.Transient, "")
	restart(t, s)
	if r := publish(t, s, page(old)); r.Restamped != 1 {
		t.Errorf("receipt %+v, want one restamped", r)
	}
}

// TestRefreshedPolicy: a running session notices that the checkpoint topic deletes from now on.
func TestRefreshedPolicy(t *testing.T) {
	t.Parallel()
	cfg, s := ready(t)
	publish(t, s, page(event("e", "u")))
	kafkatest.SetConfig(t, kadm.NewClient(connect(t, cfg)), cfg.CheckpointTopic, "cleanup.policy", "compact,delete")
	_, err := idle(t, cfg, s)
	kafkatest.AsFault(t, err, bridge.Transient, "")
	kafkatest.AsFault(t, tryRecover(t, s), bridge.Permanent, bridge.ReasonTopic)
}

// TestStallExplained: all brokers answer, and yet nothing is acknowledged.
func TestStallExplained(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	var seen kafkatest.Reports
	cfg := config(t, cluster.ListenAddrs(), reportTo(&seen))
	s := recovered(t, cfg)
	fault := cluster.Fault(refuse("", kerr.NotEnoughReplicas, -1))
	result := publishing(t, s, page(event("e1", "u")))
	seen.Await(t, "the stall", kafkatest.Mentions(cfg.Topic, "acknowledge no records"))
	fault.Remove()
	must.Do(t, <-result)
	seen.Await(t, "success", kafkatest.IsNil)
}

func TestRecordErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    *kerr.Error
		class  bridge.Class
		reason bridge.Reason
		hint   string
	}{
		{kerr.TopicAuthorizationFailed, bridge.Permanent, bridge.ReasonAuth, "kafka-acls.sh"},
		{kerr.ClusterAuthorizationFailed, bridge.Permanent, bridge.ReasonAuth, "IdempotentWrite --cluster"},
		{kerr.InvalidTimestamp, bridge.Transient, "", "clocks"},
		{kerr.InvalidRecord, bridge.Transient, "", ""},
		{kerr.UnsupportedCompressionType, bridge.Permanent, bridge.ReasonConfig, "KAFKA_COMPRESSION"},
	} {
		t.Run(c.err.Message, func(t *testing.T) {
			t.Parallel()
			cluster := kafkatest.Fake(t)
			s := recovered(t, config(t, cluster.ListenAddrs()))
			h := cluster.Fault(refuse("", c.err, 1))
			_, err := tryPublish(t, s, page(event("e", "u")))
			f := kafkatest.AsFault(t, err, c.class, c.reason)
			if !strings.Contains(f.Hint, c.hint) || f.Code != strings.ToLower(c.err.Message) {
				t.Errorf("fault %v: code %s, hint %q; want %q", f, f.Code, f.Hint, c.hint)
			}
			h.Remove()
			restart(t, s)
			publish(t, s, page(event("e", "u")))
		})
	}
}

// TestClock: a clock that the brokers do not accept is named at once, at the start of
// a session and later.
func TestClock(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	cfg := config(t, cluster.ListenAddrs(), exactly)
	s := recovered(t, cfg)
	refusal := refuse(cfg.CheckpointTopic, kerr.InvalidTimestamp, -1)
	defer cluster.Fault(refusal).Remove()
	for name, err := range map[string]error{
		"commit": commit(t, s, batch(cfg, 0)), "start": tryRecover(t, open(t, cfg)),
	} {
		f := kafkatest.AsFault(t, err, bridge.Permanent, bridge.ReasonConfig)
		if !strings.Contains(f.Hint, "clock of this host") {
			t.Errorf("%s: %v, hint %q; want the clock", name, f, f.Hint)
		}
	}
}

// TestPassingFaults: what brokers say while they move partitions is ridden
// through, once each.
func TestPassingFaults(t *testing.T) {
	t.Parallel()
	for _, passing := range []*kerr.Error{kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.NotEnoughReplicas,
		kerr.NotEnoughReplicasAfterAppend, kerr.UnknownTopicOrPartition} {
		t.Run(passing.Message, func(t *testing.T) {
			t.Parallel()
			cluster := kafkatest.Fake(t)
			cfg := config(t, cluster.ListenAddrs())
			s := recovered(t, cfg)
			cluster.Fault(refuse("", passing, 3))
			publish(t, s, page(event("e1", "u"), event("e2", "u")))
			if got := len(consume(t, cfg, cfg.Topic)); got != 2 {
				t.Errorf("%d records, want 2", got)
			}
		})
	}
}

func TestACL(t *testing.T) {
	t.Parallel()
	const user = "writer"
	grant := func(topic string, ops ...kmsg.ACLOperation) (acls []kfake.ACL) {
		for _, op := range ops {
			acls = append(acls, kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic,
				Pattern: kmsg.ACLResourcePatternTypePrefixed, Operation: op, Allow: true})
		}
		return acls
	}
	ours := grant("checkpoints", kmsg.ACLOperationWrite, kmsg.ACLOperationRead)
	both := slices.Concat(ours, grant("export.", kmsg.ACLOperationWrite), grant("dlq.", kmsg.ACLOperationWrite))
	transactions := kfake.ACL{Resource: kmsg.ACLResourceTypeTransactionalId, Name: "checkpoints.events",
		Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationWrite, Allow: true}
	for name, c := range map[string]struct {
		acls []kfake.ACL
		hint string
	}{
		"nothing": {nil, "--operation DescribeConfigs --topic export.events --topic dlq.export.events --topic checkpoints"},
		"only describe": {slices.Concat(ours, grant("export.", kmsg.ACLOperationDescribe),
			grant("dlq.", kmsg.ACLOperationDescribe)),
			"--operation Write --operation Describe --topic export.events --topic dlq.export.events"},
		"no dead letters": {slices.Concat(ours, grant("export.", kmsg.ACLOperationWrite),
			grant("dlq.", kmsg.ACLOperationDescribe)),
			"--operation Write --operation Describe --topic dlq.export.events"},
		"no checkpoints": {slices.Concat(grant("export.", kmsg.ACLOperationWrite), grant("dlq.", kmsg.ACLOperationWrite),
			grant("checkpoints", kmsg.ACLOperationWrite)),
			"--operation Read --operation DescribeConfigs --topic checkpoints"},
		"no transactions": {both, "--operation Write --operation Describe --transactional-id checkpoints.events"},
		"enough":          {append(both, transactions), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := kafkatest.Fake(t, kfake.EnableSASL(), kfake.EnableACLs(),
				kfake.SeedTopics(2, "export.events", "dlq.export.events"), kfake.SeedTopics(16, "checkpoints"),
				kfake.User("SCRAM-SHA-256", user, "secret", c.acls...), kfake.Superuser("SCRAM-SHA-256", "admin", "admin"))
			s := open(t, config(t, cluster.ListenAddrs(), func(cfg *kafkastream.Config) {
				cfg.Topic, cfg.CheckpointTopic, cfg.CreateTopics = "export.events", "checkpoints", false
				cfg.SASLMechanism, cfg.SASLUsername, cfg.SASLPassword = "SCRAM-SHA-256", user, "secret"
			}))
			err := tryRecover(t, s)
			if c.hint == "" {
				must.Be(t, err, bridge.ErrNoCheckpoint)
				publish(t, s, page(event("e", "u")))
				// "enough" is without reading: whether there are events stays
				// unknown, and unknown is not none.
				ctx := kafkatest.Context(t)
				_, err := s.Holds(ctx)
				f := kafkatest.AsFault(t, err, bridge.Permanent, bridge.ReasonAuth)
				if !strings.Contains(f.Hint, "--operation Read") {
					t.Errorf("holds without the right to read: hint %q", f.Hint)
				}
				return
			}
			f := kafkatest.AsFault(t, err, bridge.Permanent, bridge.ReasonAuth)
			if !strings.Contains(f.Hint, c.hint) || !strings.Contains(f.Hint, "kafka-acls.sh") ||
				!strings.Contains(f.Hint, "'User:writer'") {
				t.Errorf("hint %q, want %q", f.Hint, c.hint)
			}
		})
	}
}

func TestLosses(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	s := recovered(t, config(t, cluster.ListenAddrs()))
	publish(t, s, page(event("e", "u")))
	cluster.Fault(refuse("", kerr.UnknownProducerID, 1))
	publish(t, s, page(event("f", "u")))
	if s.Losses() == 0 {
		t.Error("a broker that forgot the producer is no loss")
	}
}
