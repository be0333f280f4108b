//go:build unix

package e2e_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
)

// servers are the Kafka and the Redis of a test: real ones with TEST_REAL=1,
// else embedded ones in the test process, reached over loopback all the same.
type backends struct {
	brokers  string
	proxied  string // the brokers as the programs under test reach them, if not directly
	redisURL string
	// kafkaDown and redisDown kill the server, and what they return starts it
	// again, with its data. Only for servers that are the test's own.
	kafkaDown, redisDown func() (up func())
	// kafka and redis are nil where they are embedded.
	kafka *servers.Kafka
	redis *servers.Redis
}

// owned says which servers a test kills or empties, so that they must be its
// own. It shares others with the other tests. A quick Kafka allows sessions as
// short as shortSession.
type owned struct{ kafka, redis, quick bool }

func startServers(t *testing.T, own owned) *backends {
	t.Helper()
	if !servers.Real(t) {
		return embeddedServers(t)
	}
	var k *servers.Kafka
	switch {
	case own.kafka:
		k = servers.StartKafka(t, servers.KafkaOptions{Own: true, Properties: quickSessions})
	case own.quick:
		k = must.Get(quickKafka())(t)
	default:
		k = must.Get(sharedKafka())(t)
	}
	var r *servers.Redis
	if own.redis {
		r = servers.StartRedis(t, servers.RedisOptions{Own: true})
	} else {
		r = must.Get(sharedRedis())(t)
	}
	return &backends{
		brokers: strings.Join(k.Addrs(), ","), redisURL: r.URL(), kafka: k, redis: r,
		kafkaDown: outage(t, func() error { return k.Kill(0) }, func(ctx context.Context) error { return k.Start(ctx, 0) }),
		redisDown: outage(t, r.Kill, r.Start),
	}
}

// quickSessions lets brokers accept shortSession; theirs is 6 s at least.
var quickSessions = map[string]string{"group.min.session.timeout.ms": "500"}

func embeddedServers(t *testing.T) *backends {
	t.Helper()
	k, r := servers.EmbeddedKafka(t, kfake.BrokerConfigs(quickSessions)), servers.EmbeddedRedis(t)
	return &backends{
		brokers: strings.Join(k.ListenAddrs(), ","), redisURL: "redis://" + r.Addr() + "/0",
		kafkaDown: k.Break,
		redisDown: outage(t, func() error { r.Close(); return nil }, func(context.Context) error { return r.Restart() }),
	}
}

// outage returns a function that kills a server, and returns one that starts it.
func outage(t *testing.T, kill func() error, start func(context.Context) error) func() (up func()) {
	return func() (up func()) {
		if err := kill(); err != nil {
			t.Error(err)
		}
		return func() {
			ctx, cancel := context.WithTimeout(t.Context(), outageTimeout)
			defer cancel()
			if err := start(ctx); err != nil {
				t.Error(err)
			}
		}
	}
}

// Servers that start slowly, for all tests. The first one to take a server launches it.
var (
	sharedKafka = share(func(ctx context.Context) (*servers.Kafka, error) {
		return servers.LaunchKafka(ctx, servers.KafkaOptions{})
	})
	quickKafka = share(func(ctx context.Context) (*servers.Kafka, error) {
		return servers.LaunchKafka(ctx, servers.KafkaOptions{Properties: quickSessions})
	})
	sharedRedis = share(func(ctx context.Context) (*servers.Redis, error) {
		return servers.LaunchRedis(ctx, servers.RedisOptions{})
	})
)

func share[S io.Closer](launch func(context.Context) (S, error)) func() (S, error) {
	return sync.OnceValues(func() (S, error) {
		server, err := launch(context.Background())
		if err == nil {
			shared.add(server)
		}
		return server, err
	})
}

// redis returns a client of the stage's Redis for the length of the test.
func (s *stage) redis() *redis.Client {
	s.t.Helper()
	options := must.Get(redis.ParseURL(s.servers.redisURL))(s.t)
	client := redis.NewClient(options)
	s.t.Cleanup(func() { client.Close() })
	return client
}

// deleteTopic deletes a topic and waits until no broker knows it.
func (s *stage) deleteTopic(topic string) {
	s.t.Helper()
	admin := s.admin()
	ctx, cancel := context.WithTimeout(s.t.Context(), stepTimeout)
	defer cancel()
	if _, err := admin.DeleteTopic(ctx, topic); err != nil {
		s.t.Fatalf("delete topic %s: %v", topic, err)
	}
	eventually(s.t, stepTimeout, "the topic to be gone", func() bool {
		found := must.Get(admin.ListTopics(ctx, topic))(s.t)
		return !found.Has(topic)
	})
}

// admin returns a client of the stage's Kafka for the length of the test.
func (s *stage) admin() *kadm.Client {
	s.t.Helper()
	return kadm.NewClient(servers.Client(s.t, s.servers.brokers))
}
