package kafkaadmin_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkaadmin"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Run(m)) }

// config returns a stream with topics of the test's own.
func config(t *testing.T, brokers []string, changes ...func(*kafkastream.Config)) kafkastream.Config {
	t.Helper()
	cfg := kafkastream.DefaultConfig()
	cfg.Stream, cfg.Resource, cfg.Brokers, cfg.Mode = "events", "events", brokers, bridge.AtLeastOnce
	cfg.Topic = fmt.Sprintf("t%d", time.Now().UnixNano())
	cfg.CheckpointTopic = "checkpoints." + cfg.Topic
	cfg.CreateTopics, cfg.Partitions = true, 3
	for _, change := range changes {
		change(&cfg)
	}
	return cfg
}

func needs(cfg kafkastream.Config) *kafkaadmin.Stream { return cfg.Needs() }

// missing counts the required topics that do not exist.
func missing(plan kafkaadmin.TopicPlan) (n int) {
	for _, topic := range plan.Topics {
		if !topic.Exists && !topic.OnDemand {
			n++
		}
	}
	return n
}

func TestTopics(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t), func(c *kafkastream.Config) { c.CreateTopics, c.Retention = false, "720h" })
	s := needs(cfg)
	plan := must.Get(s.Plan(t.Context()))(t)
	configs := map[string]string{"cleanup.policy": "delete", "retention.ms": "2592000000"}
	compacted := map[string]string{
		"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "min.compaction.lag.ms": "604800000",
		"segment.bytes": "16777216", "segment.ms": "600000",
	}
	want := []kafkaadmin.PlannedTopic{
		{Name: cfg.Topic, Role: "events", Partitions: 3, Replication: -1, Configs: configs},
		{Name: "dlq." + cfg.Topic, Role: "dead letters", Partitions: 3, Replication: -1, Configs: configs},
		{Name: cfg.CheckpointTopic, Role: "checkpoints", Partitions: 16, Replication: -1, Configs: compacted},
		{Name: cfg.CheckpointTopic + ".jobs", Role: "jobs", OnDemand: true, Partitions: 16, Replication: -1,
			Configs: compacted},
	}
	if diff := cmp.Diff(want, plan.Topics); diff != "" {
		t.Errorf("plan differs (-want +got):\n%s", diff)
	}
	if missing(plan) != 3 || len(plan.ACLs) != 8 || len(plan.JobACLs) != 7 ||
		!strings.Contains(plan.ACLs[0], "'User:<principal>' --operation Write --operation Describe --topic "+cfg.Topic) {
		t.Errorf("plan: %d missing, commands %q", missing(plan), plan.ACLs)
	}
	if again, err := s.Plan(t.Context()); err != nil || missing(again) != 3 {
		t.Errorf("a plan changed something: %+v, %v", again, err)
	}
	for range 2 { // repeating is safe
		made, err := s.Create(t.Context())
		if err != nil || missing(made) != 0 || len(made.Topics[0].Differences) != 0 {
			t.Errorf("create: %+v, %v", made, err)
		}
		if got := made.Topics[0]; got.Partitions != 3 || got.Configs["retention.ms"] != "2592000000" {
			t.Errorf("created %+v", got)
		}
		if got := made.Topics[2]; got.Partitions != 16 || got.Configs["cleanup.policy"] != "compact" ||
			got.Configs["min.compaction.lag.ms"] != "604800000" || len(got.Differences) != 0 {
			t.Errorf("created %+v", got)
		}
	}
	sink := must.Get(cfg.Sink())(t)
	defer sink.Close()
	must.Fail(sink.Recover(t.Context(), nil))(t, bridge.ErrNoCheckpoint)
	event := bridge.Event{ID: []byte("e"), Time: time.Now().UnixMilli(), Raw: []byte(`{"eventId":"e"}`)}
	load := bridgetest.Load{Pages: []*bridge.Page{{Events: []bridge.Event{event}, Items: 1}}}
	must.Get(load.Publish(t.Context(), sink))(t)

	cfg.Partitions, cfg.Retention = 6, "-1"
	plan = must.Get(needs(cfg).Plan(t.Context()))(t)
	differences := []string{"partitions is 3, expected 6", "retention.ms is 2592000000, expected -1"}
	if diff := cmp.Diff(differences, plan.Topics[0].Differences); diff != "" {
		t.Errorf("differences differ (-want +got):\n%s", diff)
	}
}

func TestCreateReplicated(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t, kfake.NumBrokers(3))
	s := needs(config(t, cluster.ListenAddrs(), func(c *kafkastream.Config) { c.Replication = 3 }))
	plan, err := s.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := plan.Topics[0]; got.Replication != 3 || got.Configs["min.insync.replicas"] != "2" {
		t.Errorf("created %+v, want 3 replicas, 2 in sync", got)
	}

	s = needs(config(t, cluster.ListenAddrs(), func(c *kafkastream.Config) { c.Replication = 5 }))
	_, err = s.Create(t.Context())
	f := kafkatest.AsFault(t, err, bridge.Permanent, bridge.ReasonConfig)
	if !strings.Contains(f.Hint, "KAFKA_REPLICATION") {
		t.Errorf("hint %q does not name the setting", f.Hint)
	}
}

func TestPlanWithoutBroker(t *testing.T) {
	t.Parallel()
	srv := kafkatest.NewServer(t)
	srv.Stop()
	s := needs(config(t, srv.Addr))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := s.Plan(ctx)
	kafkatest.AsFault(t, err, bridge.Transient, "")
	if !kafkatest.Mentions(srv.Addr[0], "refused")(err) {
		t.Errorf("error %v does not name the broker", err)
	}
	srv.Start()
}

func TestCheck(t *testing.T) {
	t.Parallel()
	addrs := kafkatest.Brokers(t)
	month := map[string]*string{"retention.ms": new("2592000000")}
	for name, c := range map[string]struct {
		change  func(*kafkastream.Config)
		configs map[string]*string // of the topic; nil makes none
		level   kafkaadmin.Level
		text    string
		hint    string
	}{
		"fine": {func(*kafkastream.Config) {}, map[string]*string{"retention.ms": new("-1")}, kafkaadmin.LevelOK,
			"for ever", ""},
		"retention": {func(*kafkastream.Config) {}, month, kafkaadmin.LevelWarn,
			"older than 15 days get the time of publishing", "retention.ms=-1"},
		"retention stop": {func(c *kafkastream.Config) { c.OnExpired = "stop" }, month, kafkaadmin.LevelWarn,
			"stop the stream", "retention.ms=-1"},
		"publish time": {func(c *kafkastream.Config) { c.Timestamp = "publish" }, month, kafkaadmin.LevelInfo,
			"time of publishing", ""},
		"missing": {func(*kafkastream.Config) {}, nil, kafkaadmin.LevelFail, "does not exist",
			string(bridge.HintTopicMissing)},
		"to be created": {func(c *kafkastream.Config) { c.CreateTopics = true }, nil, kafkaadmin.LevelInfo,
			"run will create it", ""},
		"compacted": {func(*kafkastream.Config) {}, map[string]*string{"cleanup.policy": new("compact")},
			kafkaadmin.LevelFail, "is compacted", "cleanup.policy=delete"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, addrs, func(c *kafkastream.Config) { c.CreateTopics = false }, c.change)
			if c.configs != nil {
				kafkatest.CreateTopic(t, cfg.Brokers, cfg.Topic, cfg.Partitions, c.configs)
				kafkatest.CreateTopic(t, cfg.Brokers, "dlq."+cfg.Topic, cfg.Partitions, nil)
				kafkatest.CreateCheckpointTopic(t, cfg.Brokers, cfg.CheckpointTopic, nil)
			}
			found := needs(cfg).Check(t.Context())
			for _, f := range found {
				if f.Level == c.level && strings.Contains(f.Text, cfg.Topic) && strings.Contains(f.Text, c.text) &&
					strings.Contains(f.Hint+string(f.HintCode), c.hint) {
					return
				}
			}
			t.Errorf("found %+v, want %s: %s (%s)", found, c.level, c.text, c.hint)
		})
	}
}

// TestCheckEndOfEachPartition: a partition that ends before its end in the checkpoint has lost records, also if
// another one has grown by more.
func TestCheckEndOfEachPartition(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t))
	s := needs(cfg)
	must.Get(s.Create(t.Context()))(t)
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner())))(t)
	defer client.Close()
	record := kgo.Record{Topic: cfg.Topic, Partition: 1}
	must.Do(t, client.ProduceSync(t.Context(), &record, new(record)).FirstErr())
	for fault, ends := range map[string][]int64{"": {0, 2, 0}, "ends 1 offsets before": {1, 0, 0}} {
		s.Past.Newest = func(context.Context, *kafkaclient.Client) (bridge.Checkpoint, error) {
			topic := bridge.TopicState{Name: cfg.Topic, Partitions: 3, End: 1, Ends: bridge.EncodeEnds(ends)}
			return bridge.Checkpoint{Events: 1, Topics: []bridge.TopicState{topic}}, nil
		}
		found := s.Check(t.Context())
		wrong := slices.IndexFunc(found, func(f kafkaadmin.Finding) bool { return f.Level == kafkaadmin.LevelFail })
		if (wrong >= 0) != (fault != "") || wrong >= 0 && !strings.Contains(found[wrong].Text, fault) {
			t.Errorf("ends %v: found %+v", ends, found)
		}
	}
}

func TestCheckBounded(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	addr := silent.Addr().String()
	s := needs(config(t, []string{addr}))
	began := time.Now()
	found := s.Check(t.Context())
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("check took %s", took)
	}
	if len(found) != 1 || found[0].Level != kafkaadmin.LevelFail || !strings.Contains(found[0].Text, addr) {
		t.Errorf("found %+v, want one failure that names %s", found, addr)
	}
}

// TestCheckOnNewCluster: the coordinator of transactions is available a moment after the first
// request for it.
func TestCheckOnNewCluster(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.FindCoordinator}, Err: kerr.CoordinatorNotAvailable, Count: 2})
	for _, found := range needs(config(t, cluster.ListenAddrs())).Check(t.Context()) {
		if found.Level == kafkaadmin.LevelFail {
			t.Errorf("check found %+v", found)
		}
	}
}

func TestCreateLike(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t), func(c *kafkastream.Config) { c.Partitions = 5 })
	s := needs(cfg)
	must.Fail(s.CreateLike(t.Context(), cfg.Topic+".again"))(t, nil, "does not exist")
	own := map[string]*string{"retention.ms": new("86400000"), "max.message.bytes": new("2000000")}
	kafkatest.CreateTopic(t, cfg.Brokers, cfg.Topic, cfg.Partitions, own)
	for n, want := range []bool{true, false} {
		if made, err := s.CreateLike(t.Context(), cfg.Topic+".again"); made != want || err != nil {
			t.Errorf("time %d: %v, %v", n, made, err)
		}
	}
	other := cfg
	other.Topic = cfg.Topic + ".again"
	plan := must.Get(needs(other).Plan(t.Context()))(t)
	got := plan.Topics[0]
	if !got.Exists || got.Partitions != 5 || got.Configs["retention.ms"] != "86400000" ||
		got.Configs["max.message.bytes"] != "2000000" {
		t.Errorf("created %+v", got)
	}
}

// TestPlanAsksForItsTopics: a plan asks for no other topics, of which a cluster may have
// many thousands: each stream's client would keep them all.
func TestPlanAsksForItsTopics(t *testing.T) {
	t.Parallel()
	cluster := servers.EmbeddedKafka(t)
	var all atomic.Int64
	cluster.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if r.(*kmsg.MetadataRequest).Topics == nil {
			all.Add(1)
		}
		return nil, nil, false
	})
	must.Get(needs(config(t, cluster.ListenAddrs())).Plan(t.Context()))(t)
	if n := all.Load(); n != 0 {
		t.Errorf("%d requests for all topics", n)
	}
}

// TestReadyBeforeAllBrokersKnow: a stream whose topics have been created waits for a broker
// that does not know them yet.
func TestReadyBeforeAllBrokersKnow(t *testing.T) {
	t.Parallel()
	cluster := servers.EmbeddedKafka(t, kfake.NumBrokers(1))
	cfg := config(t, cluster.ListenAddrs())
	s := needs(cfg)
	late := atomic.Bool{}
	late.Store(true)
	cluster.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		asked := r.(*kmsg.MetadataRequest).Topics
		if !late.Load() || len(asked) < len(s.Topics.Needed()) { // as where it waits for those created
			return nil, nil, false
		}
		resp := r.ResponseKind().(*kmsg.MetadataResponse)
		for _, topic := range asked {
			unknown := kmsg.NewMetadataResponseTopic()
			unknown.Topic, unknown.ErrorCode = topic.Topic, kerr.UnknownTopicOrPartition.Code
			resp.Topics = append(resp.Topics, unknown)
		}
		return resp, nil, true
	})
	_, err := kafkaclient.With(t.Context(), &s.Config, "", s.Ready)
	if f := kafkatest.AsFault(t, err, bridge.Transient, ""); !strings.Contains(f.Error(), cfg.Topic) {
		t.Errorf("%v, want the topic %s", f, cfg.Topic)
	}
	late.Store(false)
	must.Get(kafkaclient.With(t.Context(), &s.Config, "", s.Ready))(t)
}

// TestKeysTopic: the topic of keys is created compacted, by a stream that has published nothing.
// Without it, a stream that has published is blocked: an empty one would hide that it was lost.
func TestKeysTopic(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t), func(c *kafkastream.Config) { c.Encrypted = true })
	s := needs(cfg)
	keys := cfg.Topic + ".keys"
	if acls := strings.Join(s.ACLs(), "\n"); !strings.Contains(acls, keys) {
		t.Errorf("no grant of %s: %s", keys, acls)
	}
	must.Do(t, s.MakeKeys(t.Context()))
	plan := must.Get(s.Create(t.Context()))(t)
	made := plan.Topics[len(plan.Topics)-1]
	if made.Name != keys || !made.Exists || made.Partitions != 1 || made.Configs["cleanup.policy"] != "compact" ||
		made.Configs["max.compaction.lag.ms"] != "3600000" || len(made.Differences) > 0 {
		t.Errorf("%+v", made)
	}
	client := must.Get(cfg.Open())(t)
	defer client.Close()
	record := &kgo.Record{Topic: cfg.Topic, Value: []byte("{}")}
	must.Do(t, client.ProduceSync(t.Context(), record).FirstErr())
	lost := cfg
	lost.Stream = "other"
	other := needs(lost)
	other.Topics.Keys += ".lost"
	f := kafkatest.AsFault(t, other.MakeKeys(t.Context()), bridge.Permanent, bridge.ReasonTopic)
	if !strings.Contains(f.Hint, "restore the topic") {
		t.Errorf("hint %q", f.Hint)
	}
	bad := needs(cfg)
	bad.Topics.Keys = cfg.Topic // it is not compacted
	found := bad.Check(t.Context())
	if !slices.ContainsFunc(found, func(f kafkaadmin.Finding) bool {
		return f.Level == kafkaadmin.LevelFail && strings.Contains(f.Text, "1 is required")
	}) {
		t.Errorf("check finds %+v", found)
	}
}

// The grants suffice for a replay with the default settings, which creates and writes the
// topics of its window.
func TestGrantsOfReplay(t *testing.T) {
	t.Parallel()
	cfg := config(t, []string{"localhost:1"})
	s := needs(cfg)
	window := cfg.OfWindow(kafkasink.Window{Name: "events.r1.w0.0-1", Origin: "replay",
		Topic: kafkaadmin.ReplayTopic(cfg.Topic, "r1")})
	grants := slices.Concat(s.ACLs(), s.JobACLs())
	topics := window.Topics()
	for _, topic := range topics.Needed() {
		if !slices.ContainsFunc(grants, func(command string) bool {
			_, name, _ := strings.Cut(command+" ", "--topic ")
			name, _, _ = strings.Cut(name, " ")
			return strings.Contains(command, "--operation Write") && name != "" &&
				(name == topic || strings.Contains(command, "prefixed") && strings.HasPrefix(topic, name))
		}) {
			t.Errorf("no command grants writing to %s:\n%s", topic, strings.Join(grants, "\n"))
		}
	}
}

// withoutJobs returns a stream whose user may run it, and not its jobs. All its topics exist.
func withoutJobs(t *testing.T) kafkastream.Config {
	t.Helper()
	var acls []kfake.ACL
	allow := func(resource kmsg.ACLResourceType, name string, pattern kmsg.ACLResourcePatternType) {
		acls = append(acls, kfake.ACL{
			Resource: resource, Name: name, Pattern: pattern, Operation: kmsg.ACLOperationAll, Allow: true,
		})
	}
	for _, topic := range []string{"export.events", "dlq.export.events", "exportbridge.checkpoints"} {
		allow(kmsg.ACLResourceTypeTopic, topic, kmsg.ACLResourcePatternTypeLiteral)
	}
	allow(kmsg.ACLResourceTypeGroup, "exportbridge.", kmsg.ACLResourcePatternTypePrefixed)
	allow(kmsg.ACLResourceTypeTransactionalId, "exportbridge.", kmsg.ACLResourcePatternTypePrefixed)
	cluster := kafkatest.Fake(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(2, "export.events", "dlq.export.events"),
		kfake.User("SCRAM-SHA-256", "writer", "secret", acls...), kfake.Superuser("SCRAM-SHA-256", "admin", "admin"))
	cfg := config(t, cluster.ListenAddrs(), func(c *kafkastream.Config) {
		c.Topic, c.CheckpointTopic, c.CreateTopics = "export.events", "exportbridge.checkpoints", false
		c.SASLMechanism, c.SASLUsername, c.SASLPassword = "SCRAM-SHA-256", "admin", "admin"
	})
	must.Get(needs(cfg).Create(t.Context()))(t)
	cfg.SASLUsername, cfg.SASLPassword = "writer", "secret"
	return cfg
}

// TestCheckWithoutJobs: a user who may run the stream, and not its jobs, is warned about the
// topic of jobs only.
func TestCheckWithoutJobs(t *testing.T) {
	t.Parallel()
	cfg := withoutJobs(t)
	warned := false
	for _, found := range needs(cfg).Check(t.Context()) {
		if found.Level == kafkaadmin.LevelFail {
			t.Errorf("%+v", found)
		}
		warned = warned || found.Level == kafkaadmin.LevelWarn && strings.Contains(found.Text, "exportbridge.checkpoints.jobs") &&
			strings.Contains(found.Hint, "--topic exportbridge.checkpoints.jobs")
	}
	if !warned {
		t.Error("no word about the topic of jobs")
	}
}

// TestPlanWithoutJobs: a plan of such a user has the topics of the stream, and names the topic of
// jobs. Create leaves that topic out.
func TestPlanWithoutJobs(t *testing.T) {
	t.Parallel()
	s := needs(withoutJobs(t))
	for name, of := range map[string]func(context.Context) (kafkaadmin.TopicPlan, error){"plan": s.Plan, "create": s.Create} {
		plan, err := of(t.Context())
		if err != nil || len(plan.Topics) != 4 || missing(plan) != 0 {
			t.Errorf("%s: %+v, %v", name, plan, err)
			continue
		}
		want := kafkaadmin.PlannedTopic{Name: "exportbridge.checkpoints.jobs", Role: "jobs", OnDemand: true, Denied: true}
		if diff := cmp.Diff(want, plan.Topics[3]); diff != "" {
			t.Errorf("%s: the topic of jobs differs (-want +got):\n%s", name, diff)
		}
	}
}

// TestCheckWithoutSettings: a check whose topics are unknown says nothing of them, and asks no more.
func TestCheckWithoutSettings(t *testing.T) {
	t.Parallel()
	cluster := servers.EmbeddedKafka(t)
	s := needs(config(t, cluster.ListenAddrs()))
	s.Topics.Keys = s.Topics.Events + ".keys"
	must.Get(s.Create(t.Context()))(t)
	cluster.ControlKey(kmsg.DescribeConfigs.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		return kafkatest.WithoutConfigs(r, kerr.UnknownServerError), nil, true
	})
	found := s.Check(t.Context())
	if len(found) != 2 || found[1].Level != kafkaadmin.LevelFail || !strings.Contains(found[1].Text, "UNKNOWN_SERVER_ERROR") {
		t.Errorf("%+v, want the brokers and the error", found)
	}
}
