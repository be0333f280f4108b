package kafkasink

import (
	"time"

	"exportbridge/bridge/kafkaclient"
)

// Kill ends the process's membership without a word to the coordinator.
func (g *Group) Kill() {
	g.mu.Lock()
	m := g.member
	g.member, g.closed = nil, true
	g.mu.Unlock()
	if m != nil {
		m.stop()
	}
}

// Shorten sets how long a fenced process stays away, and how long the group
// waits for a Release.
func (g *Group) Shorten(truce, letGo time.Duration) { g.truce, g.letGo = truce, letGo }

// Haunt sets how long it is waited for a member that may be a late request's.
func (g *Group) Haunt(d time.Duration) { g.haunted = d }

// GroupPartition returns the partition whose owner owns the stream.
func GroupPartition(stream string) int32 { return kafkaclient.CheckpointPartition(stream) }
