package process

import (
	"context"
	"log/slog"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkagroup"
	"exportbridge/cmd/internal/config"
)

// owner is the bridge.Owner of a stream, in a group of either kind.
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
		if !p.options.Limits.Bounded() {
			shared.LaneCapacity = LaneCapacity
		}
		p.fleet = shared.Fleet()
	}
	return p.fleet.Owner(group)
}

// leaveTimeout bounds the time to leave a group. If leaving fails, another process takes
// over after BRIDGE_SESSION_TIMEOUT.
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
