package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkarecord"
)

const (
	// jobsTimeout bounds one read of the job topic, and one change.
	jobsTimeout = 45 * time.Second
	// changeTries bounds the attempts of a change whose error is not a fencing. Of several
	// changes that fence each other, one is committed.
	changeTries = 5
)

// planKeyPrefix is the prefix of plan keys. Window checkpoints are stored under
// the windows' names.
const planKeyPrefix = "job/"

// beginnings is in place of an id in the transactions that begin the jobs of a stream: they
// fence each other.
const beginnings = "begin"

func planKey(stream, id string) string { return planKeyPrefix + stream + "/" + id }

// Jobs stores the plans of a stream's jobs in the topic
// <KAFKA_CHECKPOINT_TOPIC>.jobs, beside the checkpoints of their windows. It
// does not interpret plans. All methods may be called concurrently. Errors are
// Faults.
type Jobs struct {
	cfg      Config // of the stream
	log      *jobLog
	changing turn // held during a change: two changes would fence each other
}

// config is the configuration of a job as a stream that publishes only plans.
func (j *Jobs) config(id string) *Config {
	cfg := j.cfg
	cfg.Stream, cfg.CheckpointTopic = JobName(j.cfg.Stream, id), JobsTopic(j.cfg.CheckpointTopic)
	cfg.Topic, cfg.OnBadEvent = cfg.CheckpointTopic, stopStream
	cfg.Mode = bridge.ExactlyOnce
	cfg.Part = &Part{Stream: j.cfg.Stream}
	return &cfg
}

// Records returns the newest records of the stream's jobs, at most age old:
// plans by job id, and checkpoints by window name. Records of open transactions
// are not visible. A missing topic has no records. The caller must not modify them.
func (j *Jobs) Records(ctx context.Context, age time.Duration) (plans, checkpoints map[string]*kgo.Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, jobsTimeout)
	defer cancel()
	return j.log.records(ctx, j, age, false)
}

// Change commits, in one transaction, the plan that change returns and the
// deletion of the checkpoints of the windows that it names. change receives the
// committed plan, nil if there is none, and may be called more than once: if
// another process fences this one, the change restarts from the new plan. A nil
// plan deletes the job. An error of change is returned as is, and nothing has
// changed. After any other error the outcome is unknown. Change may be repeated if
// the function change detects that its change was made.
func (j *Jobs) Change(
	ctx context.Context, id string, change func(have *kgo.Record) (next []byte, gone []string, err error),
) error {
	key := planKey(j.cfg.Stream, id)
	return j.commit(ctx, id, j.config(id), func(ctx context.Context, s *session) (own []kgo.Record, refused, err error) {
		have, err := s.takePlan(ctx, key)
		if err != nil {
			return nil, nil, err
		}
		next, gone, refused := change(have)
		return s.cfg.jobRecords(key, next, gone), refused, nil
	})
}

// Begin commits the plan of a new job that check returns, nothing if check returns nil. check
// receives the committed plans of the stream by job id; no other Begin of the stream commits
// after check has received them. Begin is as Change otherwise.
func (j *Jobs) Begin(
	ctx context.Context, id string, check func(plans map[string]*kgo.Record) (plan []byte, err error),
) error {
	cfg := j.config(beginnings)
	return j.commit(ctx, id, cfg, func(ctx context.Context, s *session) (own []kgo.Record, refused, err error) {
		if _, _, _, err := s.takeJob(ctx, new(scanResult)); err != nil {
			return nil, nil, err
		}
		plans, _, err := j.log.records(ctx, j, 0, true)
		if err != nil {
			return nil, nil, err
		}
		plan, refused := check(plans)
		if refused != nil || plan == nil {
			return nil, refused, nil
		}
		own = j.config(id).jobRecords(planKey(j.cfg.Stream, id), plan, nil)
		return append(own, cfg.ownRecord(cfg.barrierKey(), []byte(id))), nil, nil
	})
}

// commit commits the records that next returns in a session of cfg, which fences earlier ones.
// It is repeated as Change says.
func (j *Jobs) commit(
	ctx context.Context, id string, cfg *Config,
	next func(context.Context, *session) (own []kgo.Record, refused, err error),
) error {
	if err := j.changing.take(ctx); err != nil {
		return fmt.Errorf("commit job %s: %w", id, err)
	}
	defer j.changing.release()
	ctx, cancel := context.WithTimeout(ctx, jobsTimeout)
	defer cancel()
	failed := 0
	for try := 1; ; try++ {
		refused, err := attempt(ctx, cfg, next)
		if !errors.Is(err, bridge.ErrFenced) {
			failed++
		}
		switch {
		case refused != nil:
			return refused
		case err == nil:
			return nil
		case kafkaclient.IsPermanent(err) || ctx.Err() != nil || failed == changeTries:
			return fmt.Errorf("commit job %s: %w", id, err)
		}
		bridge.Sleep(ctx, kafkaclient.Backoff(try))
	}
}

func attempt(
	ctx context.Context, cfg *Config,
	next func(context.Context, *session) (own []kgo.Record, refused, err error),
) (refused, err error) {
	s, err := begin(ctx, cfg, &kept{published: kafkarecord.NewPublished(cfg.Records())})
	if err != nil {
		return nil, err
	}
	defer s.close()
	own, refused, err := next(ctx, s)
	if err == nil && refused == nil && len(own) > 0 {
		_, err = s.commitOwn(ctx, "a job", own...)
	}
	if err != nil {
		return nil, s.explain(err)
	}
	return refused, nil
}

// takeJob fences other sessions of a job and reads up to a barrier of this one, in
// the order of takeOver and for the same reason. low is the first offset read.
func (s *session) takeJob(
	ctx context.Context, found *scanResult,
) (l *kafkaclient.PartitionLog, b *barrier, low int64, err error) {
	if err = s.txn.take(ctx); err != nil {
		return nil, nil, 0, err
	}
	if b, err = s.commitBarrier(ctx); err != nil {
		return nil, nil, 0, err
	}
	l = s.topics.checkpointLog(s.cfg)
	low, err = b.await(ctx, &s.txn, l, found)
	return l, b, low, err
}

// takePlan takes the job and returns its plan, nil if there is none.
func (s *session) takePlan(ctx context.Context, key string) (*kgo.Record, error) {
	found := scanResult{data: keyRecords{key: key}, copies: keyRecords{key: s.cfg.mirrorKey()}}
	l, _, low, err := s.takeJob(ctx, &found)
	if err == nil && found.none() {
		_, err = l.Scan(ctx, kafkaclient.Span{From: 0, To: low}, found.add)
	}
	if err != nil || found.none() {
		return nil, err
	}
	r := found.data.records[len(found.data.records)-1]
	if r.Value == nil {
		return nil, nil //nolint:nilnil // the job was deleted, which is no error
	}
	return r, nil
}

// jobRecords are the records of a change, the plan's last.
func (c *Config) jobRecords(key string, plan []byte, gone []string) []kgo.Record {
	var own []kgo.Record
	for _, name := range gone {
		w := *c
		w.Stream = name
		own = append(own, w.ownRecord(w.dataKey(), nil), w.ownRecord(w.barrierKey(), nil))
	}
	last := c.ownRecord(key, plan)
	if plan != nil {
		last.Headers = []kgo.RecordHeader{{Key: kafkarecord.HeaderContentType, Value: []byte("application/json")}}
	}
	return append(own, last)
}

// Watch calls visit with each committed plan of a job, from the oldest retained
// one on, until ctx ends or an error is permanent. Unreachable brokers are retried.
// A commit is visited within about a second, or when the transaction that hides
// it ends.
func (j *Jobs) Watch(ctx context.Context, id string, visit func(*kgo.Record)) error {
	cfg, key := j.config(id), planKey(j.cfg.Stream, id)
	client, err := cfg.Open()
	if err != nil {
		return err
	}
	defer client.Close()
	var l *kafkaclient.PartitionLog
	var topic [16]byte
	for at, try := int64(0), 0; ctx.Err() == nil; {
		var c kafkaclient.Chunk
		if l == nil {
			var all kafkaclient.Span
			l, all, err = cfg.committedLog(ctx, client)
			if err == nil && l != nil && (l.ID() != topic || at > all.To) { // recreated, or cut
				topic, at = l.ID(), all.From
			}
		}
		if err == nil && l != nil {
			c, err = l.Fetch(ctx, at)
		}
		if err != nil && kafkaclient.IsPermanent(cfg.fault(err, cfg.CheckpointTopic)) {
			return cfg.fault(err, cfg.CheckpointTopic)
		}
		if err != nil || l == nil {
			l = nil // the next one may be of another topic with this name
			bridge.Sleep(ctx, kafkaclient.Backoff(try))
			try++
			continue
		}
		try, at = 0, c.Next
		for _, r := range c.Records {
			if r.Attrs.IsTransactional() && !r.Attrs.IsControl() && string(r.Key) == key && r.Value != nil {
				visit(r)
			}
		}
	}
	return nil
}
