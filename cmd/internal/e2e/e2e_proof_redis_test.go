//go:build unix

package e2e_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
)

// redisFault breaks a Redis, and what it returns ends that.
type redisFault struct {
	name  string
	begin func() (end func())
}

func TestE2EProofRedis(t *testing.T) {
	t.Parallel()
	s := proofStage(t, startServers(t, owned{redis: true}), exportsim.Config{Events: 1000, Rate: 200})
	s.store = s.redis()
	s.simulate()
	run := s.run()
	run.awaitMore(1000)
	w := s.watch()
	quiet := time.Now()
	passes(time.Second)
	t.Logf("e2e: proof, redis: there: longest gap %s", w.gap(quiet, time.Now()).Round(time.Millisecond))
	for _, fault := range s.redisFaults() {
		began := time.Now()
		end := fault.begin()
		passes(1500 * time.Millisecond)
		end()
		ended := time.Now()
		had := run.published()
		eventually(t, stepTimeout, "Redis to have the checkpoint again",
			func() bool { return int(s.mirrored().Events) >= had })
		run.awaitMore(had)
		t.Logf("e2e: proof, redis: %s: longest gap %s, repaired after %s", fault.name,
			w.gap(began, time.Now()).Round(time.Millisecond), time.Since(ended).Round(time.Millisecond))
	}
	run.stop()
	n, c := s.drain()
	if epoch := s.checkpoint().Epoch; epoch != 0 {
		t.Errorf("the stream is in epoch %d: Redis was believed", epoch)
	}
	t.Logf("e2e: proof, redis: %d events: %d lost, %d twice", n, c.lost(n), c.twice())
}

// mirrored returns the checkpoint in Redis, the zero one if there is none.
func (s *stage) mirrored() bridge.Checkpoint {
	raw, err := s.store.HGet(s.t.Context(), s.topic+":{events}:checkpoint", "data").Bytes()
	if err != nil {
		return bridge.Checkpoint{}
	}
	c, err := bridge.DecodeCheckpoint(raw)
	if err != nil {
		s.t.Errorf("the checkpoint in Redis: %v", err)
	}
	return c
}

func (s *stage) redisFaults() []redisFault {
	faults := []redisFault{
		{"killed", s.servers.redisDown},
		{"flushed", func() func() {
			if err := s.store.FlushAll(s.t.Context()).Err(); err != nil {
				s.t.Error(err)
			}
			return func() {}
		}},
	}
	r := s.servers.redis
	if r == nil {
		return faults
	}
	return append(faults,
		redisFault{"paused", func() func() {
			if err := r.Pause(); err != nil {
				s.t.Error(err)
			}
			return func() {
				if err := r.Continue(); err != nil {
					s.t.Error(err)
				}
			}
		}},
		redisFault{"failed over to a replica that misses writes", s.failOver},
	)
}

// failOver lets a replica copy the server, leaves it behind, and puts its data
// in the server's place.
func (s *stage) failOver() func() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), stepTimeout)
	defer cancel()
	r := servers.StartRedis(s.t, servers.RedisOptions{Own: true})
	replica := redis.NewClient(&redis.Options{Addr: r.Addr()})
	s.t.Cleanup(func() { replica.Close() })
	follow := func(client *redis.Client, of string) {
		host, port, err := net.SplitHostPort(of)
		if err == nil {
			err = client.ReplicaOf(ctx, host, port).Err()
		}
		if err != nil {
			s.t.Fatalf("follow %s: %v", of, err)
		}
	}
	has := func(client *redis.Client) bool { return client.Exists(ctx, s.topic+":{events}:checkpoint").Val() == 1 }
	follow(replica, s.servers.redis.Addr())
	eventually(s.t, stepTimeout, "the replica to have the data", func() bool { return has(replica) })
	must.Do(s.t, replica.ReplicaOf(ctx, "NO", "ONE").Err())
	behind := s.mirrored()
	eventually(s.t, stepTimeout, "the replica to be behind", func() bool { return s.mirrored().Seq > behind.Seq+5 })
	follow(s.store, r.Addr())
	eventually(s.t, stepTimeout, "the replica's data to be there", func() bool { return s.mirrored().Seq <= behind.Seq+1 })
	return func() {
		if err := s.store.ReplicaOf(s.t.Context(), "NO", "ONE").Err(); err != nil {
			s.t.Error(err)
		}
	}
}
