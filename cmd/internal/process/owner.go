package process

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkagroup"
	"exportbridge/cmd/internal/config"
)

// owner is the bridge.Owner of a stream, by either kind of group.
type owner interface {
	bridge.Owner
	Close(ctx context.Context) error
	Abandon()
}

// ownerOf returns the Owner of a stream.
func (p *Process) ownerOf(st *config.Stream) owner {
	st.Kafka.Program = p.options.Build.Version
	group := st.Kafka.Ownership()
	if st.Kafka.OwnedBy != kafkagroup.OwnedByGroup {
		return group.Owner()
	}
	if p.fleet == nil {
		shared := *group
		shared.Log = p.log.With(logComponent, "kafka")
		p.fleet = shared.Fleet()
	}
	return &seatOwner{fleet: p.fleet, group: group}
}

// seatOwner takes its seat in the Fleet with the first Acquire: a stream that replaces
// another one waits until that one has left the same seat.
type seatOwner struct {
	fleet *kafkagroup.Fleet
	group *kafkagroup.Group

	mu   sync.Mutex // guards seat
	seat *kafkagroup.Seat
}

// Acquire implements bridge.Owner.
func (o *seatOwner) Acquire(ctx context.Context) (bridge.Ownership, error) {
	seat, err := o.sit()
	if err != nil {
		return nil, err
	}
	return seat.Acquire(ctx)
}

func (o *seatOwner) sit() (_ *kafkagroup.Seat, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seat == nil {
		o.seat, err = o.fleet.Owner(o.group)
	}
	return o.seat, err
}

// Close leaves the seat. The process stays in the group.
func (o *seatOwner) Close(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seat == nil {
		return nil
	}
	return o.seat.Close(ctx)
}

// Abandon does nothing: the other streams need the membership. The process ends it.
func (o *seatOwner) Abandon() {}

// leaveTimeout bounds leaving a group. If that fails, another process takes over after
// BRIDGE_SESSION_TIMEOUT.
const leaveTimeout = 3 * time.Second

// leave leaves the group, so that another process takes over at once.
func (st *stream) leave(log *slog.Logger) { leave(log.With(logStream, st.name), st.owner.Close) }

func leave(log *slog.Logger, closing func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := closing(ctx); err != nil {
		log.Warn("leaving the consumer group failed; another process takes over after BRIDGE_SESSION_TIMEOUT", logError, err)
	}
}
