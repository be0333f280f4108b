package kafkasink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

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

// Jobs keeps the jobs of a stream in the topic <KAFKA_CHECKPOINT_TOPIC>.jobs,
// beside the checkpoints of their windows. All methods may be called
// concurrently. Errors are Faults.
type Jobs struct {
	cfg      Config // of the stream
	log      *jobLog
	changing sync.Mutex // held while a change is under way: two would fence each other
}

// NewJobs returns the jobs of the stream that cfg is the configuration of. It
// does not connect. The first List reads the whole topic, the next ones only what
// has come since.
func NewJobs(cfg Config) *Jobs { return new(JobLogs).Jobs(cfg) }

// sink returns what speaks to Kafka about a job as a whole. It publishes
// nothing but plans.
func (j *Jobs) sink(id string) *Sink {
	cfg := j.cfg
	cfg.Stream, cfg.CheckpointTopic = jobName(j.cfg.Stream, id), j.cfg.jobsTopic()
	cfg.Topic, cfg.OnBadEvent = cfg.CheckpointTopic, stopStream
	cfg.Mode, cfg.CreateTopics, cfg.InstanceID = bridge.ExactlyOnce, false, ""
	cfg.Part = &Part{Stream: j.cfg.Stream}
	return &Sink{cfg: cfg}
}

// Owner returns the Owner of a job: one process at a time works on it. The
// caller must Close it.
func (j *Jobs) Owner(id string) *kafkagroup.Owner { return j.sink(id).cfg.Ownership().Owner() }

// Members returns the processes that work on a job, as Group.Members does for a
// stream. A dead process is one until its session times out.
func (j *Jobs) Members(ctx context.Context, id string) ([]kafkagroup.Member, error) {
	return j.sink(id).cfg.Ownership().Members(ctx)
}

// List returns all jobs of the stream, oldest first, each window that has not
// ended with what its newest checkpoint says. What an open transaction hides is
// not seen. Where the topic does not exist there are none.
func (j *Jobs) List(ctx context.Context) ([]Job, error) { return j.Recent(ctx, 0) }

// Recent is List as of so long ago at most.
func (j *Jobs) Recent(ctx context.Context, age time.Duration) ([]Job, error) {
	ctx, cancel := context.WithTimeout(ctx, jobsTimeout)
	defer cancel()
	return j.log.list(ctx, j, age)
}

// Change commits what change makes of a job. It is given the job as it is
// committed, the zero Job where there is none, and may be called more than once:
// a change that another process began later is let through, and this one begins
// again from there. An error of change is returned as it is, and nothing has
// changed. After any other error the outcome is unknown, and repeating is safe
// if change sees that it was done.
func (j *Jobs) Change(ctx context.Context, id string, change func(Job) (Job, error)) (Job, error) {
	j.changing.Lock()
	defer j.changing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, jobsTimeout)
	defer cancel()
	for try := 1; ; try++ {
		next, refused, err := j.attempt(ctx, id, change)
		switch {
		case refused != nil:
			return Job{}, refused
		case err == nil:
			return next, nil
		case kafkaclient.IsPermanent(err) || ctx.Err() != nil || try == changeTries:
			return Job{}, fmt.Errorf("commit job %s: %w", id, err)
		}
		kafkaclient.Pause(ctx, kafkaclient.Backoff(try))
	}
}

func (j *Jobs) attempt(ctx context.Context, id string, change func(Job) (Job, error)) (next Job, refused, err error) {
	s := j.sink(id)
	x, err := s.begin(ctx)
	if err != nil {
		return Job{}, nil, err
	}
	defer x.close()
	have, err := s.takeJob(ctx, x, jobKey(j.cfg.Stream, id))
	if err == nil {
		if next, refused = change(have); refused != nil {
			return Job{}, refused, nil
		}
		err = s.commitJob(ctx, x, &next)
	}
	if err != nil {
		return Job{}, nil, s.explain(err, x.writer)
	}
	return next, nil, nil
}

// takeJob fences whoever else is about to change the job and reads it, behind a
// barrier as a checkpoint is read.
func (s *Sink) takeJob(ctx context.Context, x *session, key string) (Job, error) {
	if err := s.takeProducer(ctx, x); err != nil {
		return Job{}, err
	}
	b, err := s.commitBarrier(ctx, x)
	if err != nil {
		return Job{}, err
	}
	l := s.partitionLog(x)
	found := finds{data: heap{key: key}, mirror: heap{key: s.cfg.mirrorKey()}}
	low, err := s.awaitBarrier(ctx, x, l, *b, &found)
	if err == nil && found.none() {
		_, err = l.Scan(ctx, kafkaclient.Span{From: 0, To: low}, found.add)
	}
	if err != nil || found.none() {
		return Job{}, err
	}
	r := found.data.records[len(found.data.records)-1]
	if r.Value == nil { // forgotten
		return Job{}, nil
	}
	job, err := decodeJob(r.Value)
	if err != nil {
		return Job{}, &bridge.Fault{
			Class: bridge.Permanent, Reason: bridge.ReasonCheckpoint, Code: "foreign",
			Err: fmt.Errorf("offset %d in partition %d of %s, key %s: %w", r.Offset, r.Partition, r.Topic, key, err),
		}
	}
	return job, nil
}

func (s *Sink) commitJob(ctx context.Context, x *session, j *Job) error {
	value, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("encode job %s: %w", j.ID, err)
	}
	rec := s.ownRecord(jobKey(j.Stream, j.ID), value)
	rec.Headers = []kgo.RecordHeader{{Key: headerContentType, Value: []byte("application/json")}}
	_, err = s.commitOwn(ctx, x, "a job", rec)
	return err
}

// Watch calls visit with each committed state of a job, from the oldest that
// the topic still has to those that come, until ctx ends or something fails that
// waiting does not cure. Brokers that are away are waited for. A commit is seen
// within about a second, or when the transaction ends that hides it.
func (j *Jobs) Watch(ctx context.Context, id string, visit func(Job)) error {
	s, key := j.sink(id), jobKey(j.cfg.Stream, id)
	client, err := s.cfg.Open()
	if err != nil {
		return err
	}
	defer client.Close()
	var l *kafkaclient.PartitionLog
	for at, try := int64(0), 0; ctx.Err() == nil; {
		c := kafkaclient.Chunk{Next: at}
		if l == nil {
			var all kafkaclient.Span
			l, all, err = s.committedLog(ctx, client)
			c.Next = all.From
		}
		if err == nil && l != nil {
			c, err = l.Fetch(ctx, c.Next)
		}
		if err != nil && kafkaclient.IsPermanent(s.fault(err, s.cfg.CheckpointTopic)) {
			return s.fault(err, s.cfg.CheckpointTopic)
		}
		if err != nil || l == nil {
			kafkaclient.Pause(ctx, kafkaclient.Backoff(try))
			try++
			continue
		}
		try, at = 0, c.Next
		for _, r := range c.Records {
			if r.Attrs.IsControl() || string(r.Key) != key {
				continue
			}
			if job, err := decodeJob(r.Value); err == nil {
				visit(job)
			}
		}
	}
	return nil
}

// CreateLike creates a topic as the topic of the events is: as many partitions
// and replicas, and what its settings say that is not the brokers' default. It
// reports whether it did: one that exists stays as it is. Errors are Faults.
func (s *Sink) CreateLike(ctx context.Context, name string) (bool, error) {
	return kafkaclient.With(ctx, &s.cfg.Config, s.cfg.Topic, func(ctx context.Context, client *kafkaclient.Client) (bool, error) {
		states, err := client.Describe(ctx, s.cfg.Topic, name)
		if err != nil || states[1].Exists {
			return false, err
		}
		if err := s.cfg.CanPublish(&states[0]); err != nil {
			return false, err
		}
		like := PlannedTopic{Name: name, Partitions: int32(len(states[0].Partitions)), Replication: int16(states[0].Replication())}
		if like.Configs, err = ownConfigs(ctx, client, s.cfg.Topic); err != nil {
			return false, err
		}
		return true, s.create(ctx, client, []PlannedTopic{like})
	})
}

// ownConfigs returns the settings that were made for a topic itself.
func ownConfigs(ctx context.Context, client *kafkaclient.Client, topic string) (map[string]string, error) {
	all, err := kadm.NewClient(client.Client).DescribeTopicConfigs(ctx, topic)
	var described kadm.ResourceConfig
	if err == nil {
		described, err = all.On(topic, nil)
	}
	if err = errors.Join(err, described.Err); err != nil {
		return nil, fmt.Errorf("read settings of topic %s: %w", topic, err)
	}
	own := make(map[string]string)
	for _, c := range described.Configs {
		// Which replicas are throttled is about the partitions of that topic.
		if c.Source == kmsg.ConfigSourceDynamicTopicConfig && c.Value != nil && !strings.HasSuffix(c.Key, "throttled.replicas") {
			own[c.Key] = *c.Value
		}
	}
	return own, nil
}
