package kafkasink_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
)

// TestForgedCheckpoint: a checkpoint that was produced outside a transaction bypassed the
// fencing. It is ignored, and reported once.
func TestForgedCheckpoint(t *testing.T) {
	t.Parallel()
	for _, mode := range []bridge.Mode{bridge.ExactlyOnce, bridge.AtLeastOnce} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			cfg := config(t, kafkatest.Brokers(t), inMode(mode), logTo(&log))
			s := open(t, cfg)
			if _, err := s.Recover(t.Context(), nil); err == nil {
				t.Fatal("recovered a checkpoint from an empty topic")
			}
			ours := batch(cfg, 0)
			mustCommit(t, s, ours)
			forge(t, cfg, cfg.Stream)
			forge(t, cfg, cfg.Stream+"/mirror")
			for range 2 {
				c, err := s.Recover(t.Context(), nil)
				if mode == bridge.ExactlyOnce && (err != nil || c.Version != ours.Checkpoint.Version) {
					t.Errorf("recovered %s, %v; want %s", c.Version, err, ours.Checkpoint.Version)
				}
				if c.Epoch == 7 {
					t.Error("the forged checkpoint is believed")
				}
			}
			if n := s.Refused(); n != 1 {
				t.Errorf("%d alarms, want one about the newest", n)
			}
			if said := strings.Count(log.String(), "checkpoint ignored"); said != 1 {
				t.Errorf("said %d times:\n%s", said, &log)
			}
			seen := 0
			if err := s.History().Walk(t.Context(), func(c bridge.Checkpoint) bool {
				if seen++; c.Epoch == 7 {
					t.Error("the forged checkpoint is in the history")
				}
				return true
			}); err != nil || mode == bridge.ExactlyOnce && seen == 0 {
				t.Errorf("the history has %d entries: %v", seen, err)
			}
		})
	}
}

// TestForgedPlan: a plan that was produced outside a transaction stops no process that runs the
// job, because no list of jobs shows it.
func TestForgedPlan(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t), exactly)
	jobs, job := oneJob(t, cfg, backfill.Replay)
	forged := job
	forged.State, forged.By = backfill.Cancelled, "forged"
	produce(t, cfg, &kgo.Record{
		Topic: kafkasink.JobsTopic(cfg.CheckpointTopic), Partition: kafkasink.CheckpointPartition(cfg.Stream + "." + job.ID),
		Key: []byte("job/" + cfg.Stream + "/" + job.ID), Value: must.Get(json.Marshal(forged))(t),
	})
	job.Paused = true
	put(t, jobs, job)
	ctx, cancel := context.WithCancel(kafkatest.Context(t))
	defer cancel()
	must.Do(t, jobs.Watch(ctx, job.ID, func(j backfill.Job) {
		if j.By == "forged" {
			t.Error("the forged plan is believed")
		}
		if j.Paused {
			cancel()
		}
	}))
}

// forge produces a checkpoint of epoch 7 as a plain producer does.
func forge(t *testing.T, cfg kafkastream.Config, key string) {
	t.Helper()
	c := batch(cfg, 0).Checkpoint
	c.Epoch = 7
	produce(t, cfg, &kgo.Record{Topic: cfg.CheckpointTopic, Partition: kafkasink.CheckpointPartition(cfg.Stream),
		Key: []byte(key), Value: must.Get(c.Encode())(t)})
}
