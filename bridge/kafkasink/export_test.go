package kafkasink

import "time"

// AgeSettings makes the session's knowledge of its topics too old to be used
// without a look.
func (s *Sink) AgeSettings() { s.session.read = s.session.read.Add(-settingsAge) }

// MirrorEvery sets how often at most a checkpoint is copied. Called before
// Recover.
func (s *Sink) MirrorEvery(d time.Duration) { s.mirrorEvery = d }

// CheckpointPartition returns the partition of a stream's checkpoints.
func CheckpointPartition(stream string) int32 { return checkpointPartition(stream) }
