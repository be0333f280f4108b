package kafkasink

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkagroup"
)

const (
	// jobsTimeout bounds one look into the topic of the jobs, and one change.
	jobsTimeout = 45 * time.Second
	// changeTries is how often a change is begun again that another one fenced.
	changeTries = 5
)

// jobKeyPrefix is how the keys of plans begin. The windows' checkpoints are
// under the windows' names.
const planKeyPrefix = "job/"

func planKey(stream, id string) string { return planKeyPrefix + stream + "/" + id }

// Jobs keeps the plans of a stream's jobs in the topic
// <KAFKA_CHECKPOINT_TOPIC>.jobs, beside the checkpoints of their windows. What a
// plan says is nothing to it. All methods may be called
// concurrently. Errors are Faults.
type Jobs struct {
	cfg      Config // of the stream
	log      *jobLog
	changing sync.Mutex // held while a change is under way: two would fence each other
}

// NewJobs returns the jobs of the stream that cfg is the configuration of. It
// does not connect. The first Records reads the whole topic, the next ones only what
// has come since.
func NewJobs(cfg Config) *Jobs { return new(JobLogs).Jobs(cfg) }

// config is that of a job as a whole, as a stream that publishes nothing but plans.
func (j *Jobs) config(id string) *Config {
	cfg := j.cfg
	cfg.Stream, cfg.CheckpointTopic = jobName(j.cfg.Stream, id), j.cfg.jobsTopic()
	cfg.Topic, cfg.OnBadEvent = cfg.CheckpointTopic, stopStream
	cfg.Mode, cfg.CreateTopics, cfg.InstanceID = bridge.ExactlyOnce, false, ""
	cfg.Part = &Part{Stream: j.cfg.Stream}
	return &cfg
}

// Owner returns the Owner of a job: one process at a time works on it. The
// caller must Close it.
func (j *Jobs) Owner(id string) *kafkagroup.Owner { return j.config(id).Ownership().Owner() }

// Members returns the processes that work on a job, as Group.Members does for a
// stream. A dead process is one until its session times out.
func (j *Jobs) Members(ctx context.Context, id string) ([]kafkagroup.Member, error) {
	return j.config(id).Ownership().Members(ctx)
}

// Records returns the newest records of the stream's jobs as of so long ago at
// most: the plans by the jobs' ids, and the checkpoints by the windows' names.
// What an open transaction hides is not seen. Where the topic does not exist
// there are none. The caller does not change them.
func (j *Jobs) Records(ctx context.Context, age time.Duration) (plans, checkpoints map[string]*kgo.Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, jobsTimeout)
	defer cancel()
	return j.log.records(ctx, j, age)
}

// Change commits what change makes of a job's plan, and that the checkpoints of
// the windows that it names are gone, in one transaction. It is given the plan
// as it is committed, nil where there is none, and may be called more than once:
// a change that another process began later is let through, and this one begins
// again from there. A next plan of nil takes the job away. An error of change is
// returned as it is, and nothing has changed. After any other error the outcome
// is unknown, and repeating is safe if change sees that it was done.
func (j *Jobs) Change(ctx context.Context, id string, change func(have *kgo.Record) (next []byte, gone []string, err error)) error {
	j.changing.Lock()
	defer j.changing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, jobsTimeout)
	defer cancel()
	for try := 1; ; try++ {
		refused, err := j.attempt(ctx, id, change)
		switch {
		case refused != nil:
			return refused
		case err == nil:
			return nil
		case kafkaclient.IsPermanent(err) || ctx.Err() != nil || try == changeTries:
			return fmt.Errorf("commit job %s: %w", id, err)
		}
		bridge.Sleep(ctx, kafkaclient.Backoff(try))
	}
}

func (j *Jobs) attempt(ctx context.Context, id string, change func(*kgo.Record) ([]byte, []string, error)) (refused, err error) {
	x, err := begin(ctx, j.config(id), nil)
	if err != nil {
		return nil, err
	}
	defer x.close()
	key := planKey(j.cfg.Stream, id)
	have, err := takeJob(ctx, x, key)
	if err == nil {
		next, gone, refused := change(have)
		if refused != nil {
			return refused, nil
		}
		_, err = x.commitOwn(ctx, "a job", x.cfg.jobRecords(key, next, gone)...)
	}
	if err != nil {
		return nil, x.cfg.explain(err, x.writer)
	}
	return nil, nil
}

// takeJob fences whoever else is about to change the job and reads its plan,
// behind a barrier as a checkpoint is read.
func takeJob(ctx context.Context, x *session, key string) (*kgo.Record, error) {
	if err := x.takeProducer(ctx); err != nil {
		return nil, err
	}
	b, err := x.commitBarrier(ctx)
	if err != nil {
		return nil, err
	}
	l := x.partitionLog()
	found := scanResult{data: keyRecords{key: key}, copies: keyRecords{key: x.cfg.mirrorKey()}}
	low, err := x.awaitBarrier(ctx, l, *b, &found)
	if err == nil && found.none() {
		_, err = l.Scan(ctx, kafkaclient.Span{From: 0, To: low}, found.add)
	}
	if err != nil || found.none() {
		return nil, err
	}
	r := found.data.records[len(found.data.records)-1]
	if r.Value == nil { // forgotten
		return nil, nil //nolint:nilnil // there is none, which is no error
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
		last.Headers = []kgo.RecordHeader{{Key: headerContentType, Value: []byte("application/json")}}
	}
	return append(own, last)
}

// Watch calls visit with each committed plan of a job, from the oldest that the
// topic still has to those that come, until ctx ends or something fails that
// waiting does not cure. Brokers that are away are waited for. A commit is seen
// within about a second, or when the transaction ends that hides it.
func (j *Jobs) Watch(ctx context.Context, id string, visit func(*kgo.Record)) error {
	cfg, key := j.config(id), planKey(j.cfg.Stream, id)
	client, err := cfg.Open()
	if err != nil {
		return err
	}
	defer client.Close()
	var l *kafkaclient.PartitionLog
	for at, try := int64(0), 0; ctx.Err() == nil; {
		c := kafkaclient.Chunk{Next: at}
		if l == nil {
			var all kafkaclient.Span
			l, all, err = cfg.committedLog(ctx, client)
			c.Next = all.From
		}
		if err == nil && l != nil {
			c, err = l.Fetch(ctx, c.Next)
		}
		if err != nil && kafkaclient.IsPermanent(cfg.fault(err, cfg.CheckpointTopic)) {
			return cfg.fault(err, cfg.CheckpointTopic)
		}
		if err != nil || l == nil {
			bridge.Sleep(ctx, kafkaclient.Backoff(try))
			try++
			continue
		}
		try, at = 0, c.Next
		for _, r := range c.Records {
			if !r.Attrs.IsControl() && string(r.Key) == key && r.Value != nil {
				visit(r)
			}
		}
	}
	return nil
}
