package kafkasink

import (
	"context"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// AgeSettings makes the session's knowledge of its topics too old to be used
// without a look.
func (s *Sink) AgeSettings() { s.session.topics.read = s.session.topics.read.Add(-settingsAge) }

// MirrorEvery sets how often at most a checkpoint is copied. Called before
// Recover.
func (s *Sink) MirrorEvery(d time.Duration) { s.kept.copyEvery = d }

// CheckpointPartition returns the partition of a stream's checkpoints.
func CheckpointPartition(stream string) int32 { return kafkaclient.CheckpointPartition(stream) }

// TimeHeader returns the ce_time of an event time, empty where it has none.
func TimeHeader(ms int64) string {
	b := builder{to: ownRecords()}
	h, _ := b.timeHeader(&bridge.Event{Time: ms})
	return string(h.Value)
}

// HoldsTime sets how long one look of Holds may take.
func (s *Sink) HoldsTime(d time.Duration) { s.LookTime = d }

// TransactionVersion returns the cluster's transaction.version.
func (s *Sink) TransactionVersion(ctx context.Context) (int, error) {
	return kafkaclient.With(ctx, &s.cfg.Config, "", func(ctx context.Context, client *kafkaclient.Client) (int, error) {
		return client.TransactionVersion(ctx)
	})
}

// History reads the stream's checkpoints.
func (s *Sink) History() *CheckpointHistory { return NewHistory(s.cfg) }
