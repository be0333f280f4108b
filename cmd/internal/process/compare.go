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
	// Events and Dead are those of ComparedTopics.
	Events, Dead *kafkaclient.TopicReader
	// Waiting, Compared and AwaitingEnd are those of reconcile.Ports; Waiting is also called
	// with the errors of a repair.
	Waiting     func(error)
	Compared    func(reconcile.Progress)
	AwaitingEnd func()
}

// ComparedTopics returns two copies of a reader: one of the stream's events, one of its dead
// letters. They read KAFKA_TOPIC and those topics that exist: the topics of the settings, and
// those of the newest checkpoint, which has former ones and those of the running stream. dead
// has no name if no topic of dead letters exists.
func ComparedTopics(
	ctx context.Context, st *config.Stream, reader kafkaclient.TopicReader,
) (events, dead *kafkaclient.TopicReader, err error) {
	newest, err := bridge.Newest(ctx, st.Kafka.History())
	if err != nil {
		return nil, nil, err
	}
	topics, letters := st.Kafka.Topics(), st.Kafka.DeadTopic()
	events, dead = new(reader), new(reader)
	events.Current, dead.Current = true, true // a repair publishes what they lack
	events.Name, events.Further = st.Kafka.Topic, slices.Clone(st.Export.Routes.Topics)
	for i, t := range append([]bridge.TopicState{{Name: letters, DeadLetters: true}}, newest.Topics...) {
		if slices.Contains(topics.OfEvents(), t.Name) || i > 0 && t.DeadLetters && t.Name == letters {
			continue
		}
		switch there, err := st.Kafka.Exists(ctx, t.Name); {
		case err != nil:
			return nil, nil, err
		case !there:
		case !t.DeadLetters:
			events.Further = append(events.Further, t.Name)
		case dead.Name == "":
			dead.Name = t.Name
		default:
			dead.Further = append(dead.Further, t.Name)
		}
	}
	return events, dead, nil
}

// Run compares the range of cfg. It sets the fields of cfg that follow from the settings.
func (c *Comparison) Run(ctx context.Context, cfg reconcile.Config) (*reconcile.Report, error) {
	st := c.Stream
	cfg.Stream, cfg.Origin, cfg.EmptyPages = st.Name, st.Engine.Origin, st.Engine.EmptyPages
	cfg.FetchTimeout, cfg.Unmarked = st.Engine.FetchTimeout, st.Kafka.Headers == "none"
	cfg.PageSize, cfg.EndExplicit = st.Engine.PageSize, st.Engine.EndExplicit
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
	if c.Dead.Name != "" {
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
