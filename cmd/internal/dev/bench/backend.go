package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/kafkasink"
)

// backend is the Kafka of a benchmark.
type backend struct {
	addr  string
	kafka *kgo.Client
}

func newBackend(kafkaAddr string) (*backend, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(kafkaAddr), kgo.DisableClientMetrics())
	if err != nil {
		return nil, fmt.Errorf("create Kafka client: %w", err)
	}
	return &backend{addr: kafkaAddr, kafka: client}, nil
}

// topicPartitions is the number of partitions that the bridge creates by default.
const topicPartitions = 6

func deadLetters(topic string) string { return topic + ".dlq" }
func checkpoints(topic string) string { return topic + ".checkpoints" }

// create creates the topics of one run, and more topics. A bridge that creates its
// topics itself starts a second later.
func (b *backend) create(ctx context.Context, name string, more ...string) error {
	forever := "-1"
	made, err := kadm.NewClient(b.kafka).CreateTopics(ctx, topicPartitions, -1,
		map[string]*string{"retention.ms": &forever}, append(more, name, deadLetters(name))...)
	if err = errors.Join(err, made.Error()); err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return nil
}

// brokers returns the addresses of the brokers.
func (b *backend) brokers(ctx context.Context) (addrs []string, err error) {
	all, err := kadm.NewClient(b.kafka).ListBrokers(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the brokers of %s: %w", b.addr, err)
	}
	for _, broker := range all {
		addrs = append(addrs, net.JoinHostPort(broker.Host, strconv.Itoa(int(broker.Port))))
	}
	return addrs, nil
}

// offsets counts the offsets of topics: their records and the transaction markers.
func (b *backend) offsets(ctx context.Context, topics ...string) (n int64, err error) {
	listed, err := kadm.NewClient(b.kafka).ListEndOffsets(ctx, topics...)
	if err = errors.Join(err, listed.Error()); err != nil {
		return 0, fmt.Errorf("count the records of topics %q: %w", topics, err)
	}
	listed.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n, nil
}

// reader returns a client that reads the committed records of a topic from its
// start on.
func (b *backend) reader(topic string, more ...kgo.Opt) (*kgo.Client, error) {
	client, err := kgo.NewClient(append(more,
		kgo.SeedBrokers(b.addr), kgo.DisableClientMetrics(),
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))...)
	if err != nil {
		return nil, fmt.Errorf("make a client that reads topic %s: %w", topic, err)
	}
	return client, nil
}

// removeTimeout bounds the clean-up when servers have stopped answering.
const removeTimeout = 10 * time.Second

// remove deletes the groups and topics of one run, and more topics, if they exist.
func (b *backend) remove(ctx context.Context, name string, more ...string) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	admin := kadm.NewClient(b.kafka)
	var errs []error
	groups, err := admin.ListGroups(ctx)
	errs = append(errs, err)
	for _, group := range groups.Groups() {
		if strings.HasPrefix(group, name+".") { // the stream's, and that of a job
			_, err := admin.DeleteGroups(ctx, group)
			errs = append(errs, err)
		}
	}
	deleted, err := admin.DeleteTopics(ctx, append(more, name, deadLetters(name), checkpoints(name),
		kafkasink.JobsTopic(checkpoints(name)))...)
	errs = append(errs, err)
	for _, topic := range deleted.Sorted() {
		if !errors.Is(topic.Err, kerr.UnknownTopicOrPartition) {
			errs = append(errs, topic.Err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delete what the bench wrote under the name %s: %w", name, err)
	}
	return nil
}

// remove deletes what one run wrote to Kafka and Redis.
func (b *bench) remove(ctx context.Context, name string, topics ...string) error {
	err := b.backend.remove(ctx, name, topics...)
	if b.redis == "" {
		return err // it ends with the benchmark
	}
	return errors.Join(err, removeKeys(ctx, b.redis, name))
}

// removeKeys deletes the keys of one run from the Redis at addr.
func removeKeys(ctx context.Context, addr, prefix string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { err = errors.Join(err, client.Close()) }()
	keys := client.Scan(ctx, 0, prefix+":*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := client.Del(ctx, keys.Val()).Err(); err != nil {
			return fmt.Errorf("delete keys of %s: %w", prefix, err)
		}
	}
	if err := keys.Err(); err != nil {
		return fmt.Errorf("list keys of %s: %w", prefix, err)
	}
	return nil
}
