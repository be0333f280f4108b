package control

import (
	"context"
	"errors"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/engine"
)

// Entries are the committed checkpoints of a stream in Redis, by the contract of
// cursorstore.Store. A missing entry is a bridge.ErrNoEntry.
type Entries interface {
	// History returns entries of all branches, newest first.
	History(ctx context.Context, q bridge.HistoryQuery) ([]bridge.Entry, error)
	// Entry returns the entry with this name.
	Entry(ctx context.Context, at bridge.Version) (bridge.Entry, error)
	// EntryAt returns the newest entry of the current branch that was committed at or
	// before t. Back returns the newest one at least this many pages before page from. Both
	// also return the next newer entry of the branch, nil if there is none. Without a
	// checkpoint the error is bridge.ErrNoCheckpoint.
	EntryAt(ctx context.Context, t time.Time) (e bridge.Entry, next *bridge.Entry, err error)
	Back(ctx context.Context, from, pages int64) (e bridge.Entry, next *bridge.Entry, err error)
	// Around returns the newest entry of the current branch whose PositionTime is
	// before t, and the oldest one whose PositionTime is late or after it; nil if
	// there is none. It passes over entries whose PositionTime is unknown.
	Around(ctx context.Context, t, late time.Time) (before, later *bridge.Checkpoint, err error)
	// Find returns the newest entry that matches, on any branch. It reads all newer
	// entries.
	Find(ctx context.Context, match func(*bridge.Checkpoint) bool) (bridge.Entry, error)
}

// Inbox takes requests to the bridge that runs the stream.
type Inbox interface {
	bridge.Inbox
	// Request stores a command, to be applied within ttl by the store's clock.
	// It is idempotent. While another command is pending it returns a
	// *bridge.PendingError.
	Request(ctx context.Context, c bridge.Command, ttl time.Duration) error
	// Withdraw removes an unclaimed request and returns the request's state.
	Withdraw(ctx context.Context, id string) (bridge.CommandOutcome, error)
	// Wait waits until the request is answered or ctx ends.
	Wait(ctx context.Context, id string) (bridge.Answer, error)
}

// Live is the current state in Redis.
type Live interface {
	// Status returns the last status that the stream's bridge reported. It returns false if
	// no bridge has reported for some seconds.
	Status(ctx context.Context) (bridge.Status, bool, error)
	// Now returns the store's time, which decides when requests expire.
	Now(ctx context.Context) (time.Time, error)
}

// Directory lists the streams that have a checkpoint in Redis.
type Directory interface {
	Streams(ctx context.Context) ([]string, error)
}

// CheckpointLog is the stream's checkpoint topic.
type CheckpointLog interface {
	bridge.CheckpointLog
	// WalkBefore is a Walk that begins with the commits at t. It may visit some newer ones
	// first.
	WalkBefore(ctx context.Context, t time.Time, visit func(bridge.Checkpoint) bool) error
}

// Group is the stream's consumer group.
type Group interface {
	// Members returns the processes in the stream's group, standbys included. If
	// there are none, no process runs the stream.
	Members(ctx context.Context) ([]bridge.Member, error)
}

// Ports are the servers of one stream.
type Ports struct {
	// Store, Entries, Inbox and Live are the ports to Redis; required.
	Store   bridge.Store
	Entries Entries
	Inbox   Inbox
	Live    Live
	// Directory lists the known streams in the error of a missing checkpoint; may be nil.
	Directory Directory
	// Log and Group are the ports to Kafka; required.
	Log   CheckpointLog
	Group Group
	// Backfilled returns the number of events at a time, in milliseconds since the epoch, or
	// later that backfills have published; may be nil. It may count some earlier ones.
	Backfilled func(ctx context.Context, since int64) (int64, error)
	// OpenSink returns a sink for one change, which the Controller closes after use.
	OpenSink func() (bridge.Sink, error)
}

// Controller shows and changes one stream. All methods may be called
// concurrently.
type Controller struct {
	cfg   engine.Config
	ports Ports
}

// New returns the controller of a stream. cfg is the configuration of the stream's bridge,
// with this process as the Owner. New contacts no server.
func New(cfg engine.Config, ports Ports) *Controller { return &Controller{cfg: cfg, ports: ports} }

// Stream returns the name of the stream.
func (c *Controller) Stream() string { return c.cfg.Stream }

const (
	// logTimeout bounds reading the checkpoint topic when Redis lacks an entry.
	logTimeout = 30 * time.Second
	// membersTimeout bounds the lookup of the stream's group.
	membersTimeout = 10 * time.Second
)

// Live returns the last status that the stream's bridge reported. It returns false if no
// bridge has reported for some seconds: none runs the stream, or the bridge cannot reach
// Redis.
func (c *Controller) Live(ctx context.Context) (bridge.Status, bool, error) {
	return c.ports.Live.Status(ctx)
}

// isAway reports whether an error of the store means that Redis is unreachable.
func isAway(err error) bool {
	fault, ok := errors.AsType[*bridge.Fault](err)
	return ok && fault.Class != bridge.Permanent && !errors.Is(err, bridge.ErrForeign)
}
