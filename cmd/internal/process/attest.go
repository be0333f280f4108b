package process

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/attest"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/reconcile"
	"exportbridge/cmd/internal/config"
)

const (
	// attestedAtOnce is the number of streams of a process that compare a period or read
	// marks at a time. attestedEvents is the maximum number of events in memory for each,
	// at about 150 bytes per event.
	attestedAtOnce = 4
	attestedEvents = 100_000
	// attestPatience is how long a partition may be silent while a topic is read.
	attestPatience = time.Minute
)

// setAttest sets the attest and attestAPI of s, unless that is off or the run is bounded.
// turns has room for the comparisons of the process.
func setAttest(st *config.Stream, s *stream, turns chan struct{}, log *slog.Logger) (err error) {
	if !st.Attest.On() {
		return nil
	}
	if st.Engine.Limits.Bounded() {
		log.Info("a bounded run attests nothing (BRIDGE_ATTEST)")
		return nil
	}
	export := st.Export
	export.Beside, export.RateLimit, export.Report, export.Waited = true, st.Attest.RateLimit, nil, nil
	if err := CheckSchema(st, &export); err != nil {
		return err
	}
	if s.attestAPI, err = exportapi.New(export); err != nil {
		return fmt.Errorf("stream %s: %w", st.Name, err)
	}
	own := *st
	own.Kafka.Report = nil // an outage while past periods are read is not an outage of the stream
	live := NewLiveStream(&own, func(context.Context) (bridge.Status, bool) { return s.bridge.Status(), true })
	w := &attestPorts{Stream: &own, api: s.attestAPI, live: live, turns: turns}
	s.attest = &attest.Attestor{
		Config: st.Attest, Stream: st.Name, Topic: st.Kafka.Topic, By: st.Engine.Owner,
		Delay: st.AttestDelay() + spreadOf(st.Name, st.Attest.Period), Confirm: 2*st.Engine.PollIntervalMax + 5*time.Second,
		Ports: attest.Ports{
			Owned: s.bridge.Leads, Live: live,
			Compare: w.compare, Marks: w.marks, Last: w.last, Open: w.open,
			Attested: func(r *attest.Record) {
				log.Info("period attested", "from", r.From, "to", r.To, "events", r.Listed, "missing", r.Missing,
					"repaired", r.Repaired)
			},
			Failed: logFailures(log),
		},
	}
	return nil
}

// attestSpread bounds spreadOf.
const attestSpread = time.Minute

// spreadOf returns the delay of a stream's attestation. With it, streams with the same
// periods do not send requests to the API at the same moment.
func spreadOf(stream string, period time.Duration) time.Duration {
	h := fnv.New64a()
	h.Write([]byte(stream))
	return time.Duration(h.Sum64() % uint64(min(period/20, attestSpread)))
}

// logFailures returns a reporter that logs an error once, until it gets another error or
// nil.
func logFailures(log *slog.Logger) func(error) {
	last := ""
	return func(err error) {
		if err == nil {
			last = ""
			return
		}
		if err.Error() != last {
			last = err.Error()
			log.Warn("period not attested; retrying", logError, err)
		}
	}
}

// attestPorts are the ports of an attest.Attestor.
type attestPorts struct {
	*config.Stream
	api   *exportapi.Client
	live  *LiveStream
	turns chan struct{} // its capacity is the number of concurrent comparisons of the process
}

// turn waits for a turn among the streams of the process, and returns the function that
// ends the turn.
func (w *attestPorts) turn(ctx context.Context) (end func(), err error) {
	select {
	case w.turns <- struct{}{}:
		return func() { <-w.turns }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// compare implements attest.Ports.Compare.
func (w *attestPorts) compare(ctx context.Context, from, to int64, mode reconcile.Mode) (*reconcile.Report, error) {
	end, err := w.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	c := &Comparison{Stream: w.Stream, API: w.api, Live: w.live}
	if c.Events, c.Dead, err = ComparedTopics(ctx, w.Stream, w.reader("")); err != nil {
		return nil, err
	}
	return c.Run(ctx, reconcile.Config{
		From: from, To: to, Mode: mode, Batch: attestedEvents, LateThreshold: LateByDefault, By: "attest",
	})
}

func (w *attestPorts) reader(topic string) kafkaclient.TopicReader {
	return kafkaclient.TopicReader{Open: w.Kafka.Open, Name: topic, Patience: attestPatience, Small: true}
}

// marks implements attest.Ports.Marks.
func (w *attestPorts) marks(ctx context.Context) (map[string][]byte, error) {
	end, err := w.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	cfg := w.Kafka.OfAttest()
	return kafkasink.Marks(ctx, cfg.Wired(), kafkasink.JobAttest)
}

// last implements attest.Ports.Last.
func (w *attestPorts) last(ctx context.Context) ([]byte, error) {
	topic := kafkasink.AttestTopic(w.Kafka.Topic)
	there, err := w.Kafka.Exists(ctx, topic)
	if err != nil || !there {
		return nil, err
	}
	l := w.reader(topic)
	spans, err := l.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	found, err := kafkaclient.Newest(ctx, &l, spans, 1, func(r *kgo.Record) ([]byte, bool) {
		return r.Value, string(r.Key) == w.Name
	})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

// open implements attest.Ports.Open.
func (w *attestPorts) open(ctx context.Context) (attest.Ledger, error) {
	if err := w.Kafka.Needs().EnsureAttest(ctx); err != nil {
		return nil, err
	}
	cfg := w.Kafka.OfAttest()
	ledger, err := kafkasink.OpenRepair(ctx, cfg.Wired(), kafkasink.JobAttest)
	if err != nil {
		return nil, err
	}
	return ledger, nil
}
