package process

import (
	"context"
	"log/slog"
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
func (p *Process) ownerOf(st *config.Stream) (owner, error) {
	st.Kafka.Program = p.options.Build.Version
	group := st.Kafka.Ownership()
	if st.Kafka.OwnedBy != kafkagroup.OwnedByGroup {
		return group.Owner(), nil
	}
	if p.fleet == nil {
		shared := *group
		shared.Log = p.log.With(logComponent, "kafka")
		p.fleet = shared.Fleet()
	}
	return p.fleet.Owner(group)
}

// abandon ends the wait for brokers that do not answer in a shutdown, unless it is over.
func (p *Process) abandon(ctx, background context.Context) {
	select {
	case <-ctx.Done():
	case <-background.Done():
	}
	if bridge.Sleep(background, p.shutdown+endTimeout/2); background.Err() != nil {
		return
	}
	for _, st := range p.streams {
		st.owner.Abandon()
	}
}

// leaveTimeout bounds leaving the group. If that fails, another process takes over
// after BRIDGE_SESSION_TIMEOUT.
const leaveTimeout = 3 * time.Second

// leave leaves the group, so that another process takes over at once.
func (st *stream) leave(log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := st.owner.Close(ctx); err != nil {
		log.Warn("leaving the consumer group failed; another process takes over after BRIDGE_SESSION_TIMEOUT", logStream, st.name, logError, err)
	}
}
