package process

import (
	"context"
	"slices"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
	"exportbridge/bridge/reconcile"
	"exportbridge/cmd/internal/config"
)

// LateByDefault is the delay between event time and ingestion time from which an event is
// late, unless a command sets another one.
const LateByDefault = time.Minute

// Comparison wires a comparison of a stream's export with its topic.
type Comparison struct {
	Stream *config.Stream
	API    *exportapi.Client
	Live   reconcile.LiveStream
	// Events reads the topic, Dead the dead letters; Dead is nil if their topic does not
	// exist.
	Events, Dead *kafkaclient.TopicReader
	// Waiting, Compared and AwaitingEnd are those of reconcile.Ports; Waiting is also called
	// with the errors of a repair.
	Waiting     func(error)
	Compared    func(reconcile.Progress)
	AwaitingEnd func()
}

// FurtherTopics returns the topics of a stream's routes. It adds those of former routes,
// and of the routes of the running stream, that still exist.
func FurtherTopics(ctx context.Context, st *config.Stream) ([]string, error) {
	former, err := formerTopics(ctx, st, false)
	return slices.Concat(st.Export.Routes.Topics, former), err
}

// DeadTopics returns the dead-letter topics of a stream that exist: the one of the settings,
// then former ones, and that of the running stream.
func DeadTopics(ctx context.Context, st *config.Stream) ([]string, error) {
	former, err := formerTopics(ctx, st, true)
	if err != nil {
		return nil, err
	}
	there, err := st.Kafka.Exists(ctx, st.Kafka.DeadTopic())
	if there {
		former = slices.Insert(former, 0, st.Kafka.DeadTopic())
	}
	return former, err
}

// formerTopics returns the topics of a stream's newest checkpoint that exist and that the
// settings do not name: those of dead letters, or of events.
func formerTopics(ctx context.Context, st *config.Stream, letters bool) (former []string, err error) {
	topics := st.Kafka.Topics()
	known := topics.OfEvents()
	if letters {
		known = append(known, st.Kafka.DeadTopic())
	}
	newest, err := bridge.Newest(ctx, st.Kafka.History())
	for i := range newest.Topics {
		t := &newest.Topics[i]
		if err == nil && t.DeadLetters == letters && !slices.Contains(known, t.Name) {
			var there bool
			if there, err = st.Kafka.Exists(ctx, t.Name); there {
				former = append(former, t.Name)
			}
		}
	}
	return former, err
}

// Run compares the range of cfg. It sets the fields of cfg that follow from the settings.
func (c *Comparison) Run(ctx context.Context, cfg reconcile.Config) (*reconcile.Report, error) {
	st := c.Stream
	cfg.Stream, cfg.Origin, cfg.EmptyPages = st.Name, st.Engine.Origin, st.Engine.EmptyPages
	cfg.FetchTimeout, cfg.Unmarked = st.Engine.FetchTimeout, st.Kafka.Headers == "none"
	cfg.Redacted, cfg.Routes = st.Kafka.Redacted, st.Export.Routes.Text
	topics := st.Kafka.Topics()
	if all := topics.OfEvents(); len(all) > 1 {
		cfg.Topics = all
	}
	kafka := st.Kafka
	kafka.Report = c.Waiting
	open := kafkasink.Rehearse
	if cfg.Mode == reconcile.Repair {
		open = kafkasink.OpenRepair
	}
	ports := reconcile.Ports{
		Source: c.API, Ranges: Ranges(st, c.API), Topic: c.Events, Live: c.Live,
		Waiting: c.Waiting, Compared: c.Compared, AwaitingEnd: c.AwaitingEnd,
		Publisher: func(ctx context.Context) (reconcile.Publisher, error) {
			return open(ctx, kafka.Wired(), kafkasink.JobVerify)
		},
	}
	if c.Dead != nil {
		ports.DeadLetters = c.Dead
		ports.Retried = func(ctx context.Context) (func(*deadletter.DeadLetter) bool, error) {
			marks, err := kafkasink.Marks(ctx, st.Kafka.Wired(), kafkasink.JobDLQ)
			return func(l *deadletter.DeadLetter) bool { return !deadletter.RetriedAt(marks, l).IsZero() }, err
		}
	}
	return reconcile.Run(ctx, cfg, ports)
}

// membersTimeout bounds the lookup of the stream's group.
const membersTimeout = 10 * time.Second

// LiveStream implements reconcile.LiveStream.
type LiveStream struct {
	*kafkasink.CheckpointHistory
	kafka  kafkastream.Config
	status func(context.Context) (bridge.Status, bool)
}

// NewLiveStream returns the stream with these settings. status is as in reconcile.LiveStream.
func NewLiveStream(st *config.Stream, status func(context.Context) (bridge.Status, bool)) *LiveStream {
	return &LiveStream{st.Kafka.History(), st.Kafka, status}
}

// Status implements reconcile.LiveStream.
func (l *LiveStream) Status(ctx context.Context) (bridge.Status, bool) { return l.status(ctx) }

// Running implements reconcile.LiveStream.
func (l *LiveStream) Running(ctx context.Context) (bool, error) {
	asking, cancel := context.WithTimeout(ctx, membersTimeout)
	defer cancel()
	members, err := l.kafka.Ownership().Members(asking)
	return len(members) > 0, err
}

// Backfills implements reconcile.LiveStream.
func (l *LiveStream) Backfills(ctx context.Context) (open []reconcile.Backfill, err error) {
	topics := l.kafka.Topics()
	all, err := backfill.NewJobs(l.kafka.Jobs(new(kafkasink.JobLogs)), l.kafka.Stream).List(ctx, 0)
	for i := range all {
		if j := &all[i]; j.Kind == backfill.Backfill && j.State == backfill.Running && j.Publishes(topics.OfEvents()) {
			open = append(open, reconcile.Backfill{ID: j.ID, From: j.From, To: j.To})
		}
	}
	return open, err
}
