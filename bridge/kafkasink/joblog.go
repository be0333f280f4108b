package kafkasink

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/kafkaclient"
)

// jobLogAge is the time after the last read from which the whole log is read again. It is
// shorter than the retention of tombstones, so that no deletion is missed.
const jobLogAge = 12 * time.Hour

// JobLogs shares the reading of job topics among the streams of a process. The
// zero value is ready for use; it may be used concurrently.
type JobLogs struct {
	mu   sync.Mutex // guards logs
	logs map[string]*jobLog
}

// Jobs returns the jobs of the stream configured by cfg, with the shared log of the
// topic. It does not connect. The first Records reads the whole topic, later ones only
// new records.
func (l *JobLogs) Jobs(cfg Config) *Jobs {
	l.mu.Lock()
	defer l.mu.Unlock()
	brokers := slices.Sorted(slices.Values(cfg.Brokers))
	name := strings.Join(append(brokers, cfg.SASLUsername, JobsTopic(cfg.CheckpointTopic)), " ")
	if l.logs[name] == nil {
		if l.logs == nil {
			l.logs = make(map[string]*jobLog)
		}
		l.logs[name] = &jobLog{reading: make(turn, 1)}
	}
	return &Jobs{cfg: cfg, log: l.logs[name], changing: make(turn, 1)}
}

// jobLog is what was read of a job topic.
type jobLog struct {
	reading turn // guards all below; held while it is read
	id      [16]byte
	at      map[int32]int64 // the next offset, by partition
	read    time.Time       // when it was last read to its end; zero before
	// newest are the newest records of plans and window checkpoints, by key. Marks of
	// repairs, and barriers, are left out.
	newest map[string]*kgo.Record
}

// turn is a mutex whose holder may wait for brokers: a caller stops waiting for the mutex
// when the caller's context ends. Its capacity is 1.
type turn chan struct{}

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) release() { <-t }

// records returns a stream's plans by id and its window checkpoints by name, at most age old. If
// whole is set, it waits for open transactions, behind which committed records are not visible, and
// trusts current leaders only.
func (l *jobLog) records(
	ctx context.Context, j *Jobs, age time.Duration, whole bool,
) (plans, checkpoints map[string]*kgo.Record, err error) {
	if err := l.reading.take(ctx); err != nil {
		return nil, nil, fmt.Errorf("read the jobs of stream %s: %w", j.cfg.Stream, err)
	}
	defer l.reading.release()
	if age == 0 || time.Since(l.read) > age {
		cfg := j.config("")
		_, err := kafkaclient.With(ctx, &cfg.Config, cfg.Topic,
			func(ctx context.Context, client *kafkaclient.Client) (struct{}, error) {
				if err := l.readOn(ctx, cfg, client, whole); err != nil {
					return struct{}{}, fmt.Errorf("read the jobs of stream %s: %w", j.cfg.Stream, err)
				}
				return struct{}{}, nil
			})
		if err != nil {
			return nil, nil, err
		}
	}
	plans, checkpoints = make(map[string]*kgo.Record), make(map[string]*kgo.Record)
	for key, r := range l.newest {
		if id, ok := strings.CutPrefix(key, planKey(j.cfg.Stream, "")); ok {
			plans[id] = r
		} else if strings.HasPrefix(key, JobName(j.cfg.Stream, "")) {
			checkpoints[key] = r
		}
	}
	return plans, checkpoints, nil
}

// readOn reads the records committed since the last read, or the whole topic.
func (l *jobLog) readOn(ctx context.Context, cfg *Config, client *kafkaclient.Client, whole bool) error {
	topics, err := client.Describe(ctx, cfg.CheckpointTopic)
	if err != nil {
		return err
	}
	t := &topics[0]
	switch {
	case !t.Exists && whole: // what this process has just written is in it
		return t.Unknown()
	case t.Exists && cfg.CanRead(t) != nil:
		return cfg.CanRead(t)
	case !t.Exists, t.ID != l.id, time.Since(l.read) > jobLogAge:
		l.forget(t.ID)
	}
	if !t.Exists {
		l.read = time.Now()
		return nil
	}
	log := client.Log(t.Name, t.ID)
	began := time.Now()
	bounds := log.Bounds
	if whole {
		bounds = func(ctx context.Context) (map[int32]kafkaclient.Span, error) {
			if err := client.AgreeOnLeaders(ctx, t.Name); err != nil { // a former leader may lack plans
				return nil, err
			}
			all, err := client.Bounds(ctx, t.Name)
			return all[t.Name], err
		}
	}
	spans, err := bounds(ctx)
	if err != nil {
		return err
	}
	for id, all := range spans {
		if l.at[id] > all.To {
			l.forget(t.ID) // the log was cut
		}
	}
	for id, all := range spans {
		spans[id] = kafkaclient.Span{From: max(all.From, l.at[id]), To: all.To}
	}
	if err := log.Read(ctx, spans, l.add); err != nil {
		return err
	}
	for id, s := range spans {
		l.at[id] = s.To
	}
	l.read = began
	return nil
}

// forget forgets all records: id is the topic to be read from its beginning.
func (l *jobLog) forget(id [16]byte) {
	l.id, l.read = id, time.Time{}
	l.at, l.newest = make(map[int32]int64), make(map[string]*kgo.Record)
}

func (l *jobLog) add(r *kgo.Record) error {
	key := string(r.Key)
	switch {
	case !r.Attrs.IsTransactional(), strings.HasSuffix(key, "/barrier"),
		!windowNames.MatchString(key) && !strings.HasPrefix(key, planKeyPrefix):
	case r.Value == nil:
		delete(l.newest, key)
	default: // a copy, or the whole batch would stay in memory
		l.newest[key] = &kgo.Record{
			Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value),
		}
	}
	return nil
}
