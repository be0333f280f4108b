package kafkagroup

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// Kill ends the process's membership without a word to the coordinator.
func (o *Owner) Kill() {
	o.mu.Lock()
	m := o.member
	o.member, o.closed = nil, true
	o.mu.Unlock()
	if m != nil {
		m.stop()
	}
}

// Shorten sets how long the group waits for a Release.
func (o *Owner) Shorten(releaseWait time.Duration) { o.releaseWait = releaseWait }

// StaleAfter sets how long it is waited for a member that may be a late request's.
func (o *Owner) StaleAfter(d time.Duration) { o.staleAfter = d }

// GroupPartition returns the partition whose owner owns the stream.
func GroupPartition(stream string) int32 { return kafkaclient.CheckpointPartition(stream) }

// Named returns the balancer of a member with a name.
func Named(b kgo.GroupBalancer, name string) kgo.GroupBalancer { return named{b, name} }

// ProcessName returns the name in a member's metadata.
func ProcessName(metadata []byte) string { return processName(metadata) }

// Kill ends the process's membership without a word to the coordinator.
func (f *Fleet) Kill() {
	f.mu.Lock()
	started := f.started
	f.mu.Unlock()
	f.kill()
	if started {
		<-f.done
	}
}

// Shorten sets how long others wait for a Release.
func (f *Fleet) Shorten(releaseWait time.Duration) { f.releaseWait = releaseWait }

// LookEvery sets how often groups of single streams are looked at.
func (f *Fleet) LookEvery(d time.Duration) { f.lookEvery = d }

// StaleAfter sets how long it is waited for a member that may be a late request's.
func (f *Fleet) StaleAfter(d time.Duration) { f.staleAfter = d }

// Fleet returns the Fleet of a seat.
func (s *Seat) Fleet() *Fleet { return s.fleet }

// Answer confirms an ownership by the answer alone, like a Confirm that has not noticed
// the loss yet.
func Answer(o bridge.Ownership) error { return <-o.(*tenure).ask() }

// Rename gives a seat's stream another name.
func (s *Seat) Rename(name string) { s.group.Stream = name }

// UnitsProtocol is the name of a Fleet's balancer.
const UnitsProtocol = unitsProtocol

// SingleGroups returns the members that singleGroups finds, one of each group.
func SingleGroups(ctx context.Context, client *kafkaclient.Client, groups []*Group) (members []string, err error) {
	found := singleGroups(ctx, client, groups)
	for i := range found {
		members, err = append(members, found[i].member), errors.Join(err, found[i].err)
	}
	return members, err
}
