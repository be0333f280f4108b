package dev

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/kafkasink"
)

// benchBackends is what a bridge leaves on Kafka and Redis.
type benchBackends struct {
	addr  string // of Kafka
	kafka *kgo.Client
	redis *redis.Client
}

func newBenchBackends(kafkaAddr, redisURL string) (*benchBackends, error) {
	opts, err := redis.ParseURL(redisURL)
	if err != nil {
		return nil, errors.New("the URL of Redis is not one") // what it says may hold a password
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(kafkaAddr), kgo.DisableClientMetrics())
	if err != nil {
		return nil, fmt.Errorf("create Kafka client: %w", err)
	}
	return &benchBackends{addr: kafkaAddr, kafka: client, redis: redis.NewClient(opts)}, nil
}

// benchPartitions is what the bridge would create a topic with by default.
const benchPartitions = 6

func deadLetters(topic string) string { return topic + ".dlq" }
func checkpoints(topic string) string { return topic + ".checkpoints" }

// create creates the topics of one run: a bridge that has to create them itself
// starts a second later.
func (t *benchBackends) create(ctx context.Context, name string) error {
	forever := "-1"
	made, err := kadm.NewClient(t.kafka).CreateTopics(ctx, benchPartitions, -1, map[string]*string{"retention.ms": &forever}, name, deadLetters(name))
	if err = errors.Join(err, made.Error()); err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return nil
}

// brokers counts the brokers.
func (t *benchBackends) brokers(ctx context.Context) (int, error) {
	all, err := kadm.NewClient(t.kafka).ListBrokers(ctx)
	if err != nil {
		return 0, fmt.Errorf("count the brokers of %s: %w", t.addr, err)
	}
	return len(all), nil
}

// ends are the ends of the topic's partitions, those without a record left out.
func (t *benchBackends) ends(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := kadm.NewClient(t.kafka).ListEndOffsets(ctx, topic)
	if err = errors.Join(err, listed.Error()); err != nil {
		return nil, fmt.Errorf("count the records of topic %s: %w", topic, err)
	}
	ends := make(map[int32]int64)
	listed.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			ends[o.Partition] = o.Offset
		}
	})
	return ends, nil
}

// offsets counts the offsets of the topic: its records, and the ends of
// transactions.
func (t *benchBackends) offsets(ctx context.Context, topic string) (int64, error) {
	ends, err := t.ends(ctx, topic)
	var n int64
	for _, end := range ends {
		n += end
	}
	return n, err
}

// reader returns a client that reads the committed records of a topic from its
// start on.
func (t *benchBackends) reader(topic string, more ...kgo.Opt) (*kgo.Client, error) {
	client, err := kgo.NewClient(append(more,
		kgo.SeedBrokers(t.addr), kgo.DisableClientMetrics(),
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))...)
	if err != nil {
		return nil, fmt.Errorf("make a client that reads topic %s: %w", topic, err)
	}
	return client, nil
}

// records counts the committed records of the topic.
func (t *benchBackends) records(ctx context.Context, topic string) (int64, error) {
	left, err := t.ends(ctx, topic)
	if err != nil {
		return 0, err
	}
	reader, err := t.reader(topic, kgo.KeepControlRecords())
	if err != nil {
		return 0, err
	}
	defer reader.Close()
	var n int64
	for len(left) > 0 {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return 0, fmt.Errorf("count the records of topic %s: %w", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				n++
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return n, nil
}

// removeTimeout bounds the cleaning up where servers do not answer any more.
const removeTimeout = 10 * time.Second

// remove deletes the topics and keys of one run. Those that are not there need
// no deleting.
func (t *benchBackends) remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	admin := kadm.NewClient(t.kafka)
	var errs []error
	groups, err := admin.ListGroups(ctx)
	errs = append(errs, err)
	for _, group := range groups.Groups() {
		if strings.HasPrefix(group, name+".") { // the stream's, and that of a job
			_, err := admin.DeleteGroups(ctx, group)
			errs = append(errs, err)
		}
	}
	deleted, err := admin.DeleteTopics(ctx, name, deadLetters(name), checkpoints(name), kafkasink.JobsTopic(checkpoints(name)))
	errs = append(errs, err)
	for _, topic := range deleted.Sorted() {
		if !errors.Is(topic.Err, kerr.UnknownTopicOrPartition) {
			errs = append(errs, topic.Err)
		}
	}
	keys := t.redis.Scan(ctx, 0, name+":*", 1000).Iterator()
	for keys.Next(ctx) {
		errs = append(errs, t.redis.Unlink(ctx, keys.Val()).Err())
	}
	errs = append(errs, keys.Err())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delete what the bench wrote under the name %s: %w", name, err)
	}
	return nil
}

func (t *benchBackends) close() error {
	t.kafka.Close()
	return t.redis.Close()
}
