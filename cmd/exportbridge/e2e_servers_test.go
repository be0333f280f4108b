//go:build unix

package main_test

import (
	"context"
	"strings"
	"testing"

	"exportbridge/bridge/bridgetest"
)

// servers are the Kafka and the Redis of a test: real ones with TEST_REAL=1,
// else embedded ones in the test process, reached over loopback all the same.
type servers struct {
	brokers  string
	redisURL string
	// kafkaDown and redisDown kill the server, and what they return starts it
	// again, with its data.
	kafkaDown, redisDown func() (up func())
}

// startServers starts both. Those that a test kills or empties must be its own.
func startServers(t *testing.T, own bool) *servers {
	t.Helper()
	if !bridgetest.Real(t) {
		k, r := bridgetest.EmbeddedKafka(t), bridgetest.EmbeddedRedis(t)
		return &servers{
			brokers: strings.Join(k.ListenAddrs(), ","), redisURL: "redis://" + r.Addr() + "/0",
			kafkaDown: k.Break,
			redisDown: func() func() {
				r.Close()
				return func() {
					if err := r.Restart(); err != nil {
						t.Errorf("restart embedded Redis: %v", err)
					}
				}
			},
		}
	}
	k := bridgetest.StartKafka(t, bridgetest.KafkaOptions{Own: own})
	r := bridgetest.StartRedis(t, bridgetest.RedisOptions{Own: own})
	ctx := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.WithoutCancel(t.Context()), outageTimeout)
	}
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	return &servers{
		brokers: strings.Join(k.Addrs(), ","), redisURL: r.URL(),
		kafkaDown: func() func() {
			must(k.Kill(0))
			return func() {
				ctx, cancel := ctx()
				defer cancel()
				must(k.Start(ctx, 0))
			}
		},
		redisDown: func() func() {
			must(r.Kill())
			return func() {
				ctx, cancel := ctx()
				defer cancel()
				must(r.Start(ctx))
			}
		},
	}
}
