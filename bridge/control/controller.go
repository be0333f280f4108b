package control

import (
	"context"
	"errors"
	"time"

	"exportbridge/bridge"
)

// Entries are the committed checkpoints that Redis keeps of a stream, by the
// contract of cursorstore.Store. What is not there is a bridge.ErrNoEntry.
type Entries interface {
	// History returns entries of all branches, newest first.
	History(ctx context.Context, q bridge.HistoryQuery) ([]bridge.Entry, error)
	// Entry returns the entry with this name.
	Entry(ctx context.Context, at bridge.Version) (bridge.Entry, error)
	// EntryAt returns the newest entry of the current branch that was committed
	// at or before t, Back the newest at least so many pages before the
	// checkpoint. Both may be a bridge.ErrNoCheckpoint.
	EntryAt(ctx context.Context, t time.Time) (bridge.Entry, error)
	Back(ctx context.Context, pages int64) (bridge.Entry, error)
}

// Inbox takes requests to the bridge that runs the stream.
type Inbox interface {
	bridge.Inbox
	// Request leaves a command, to be applied within ttl by the store's clock.
	// Repeating it is safe. While another one is pending it is a
	// *bridge.PendingError.
	Request(ctx context.Context, c bridge.Command, ttl time.Duration) error
	// Withdraw takes a request back if nobody has claimed it, and returns how
	// far it has come.
	Withdraw(ctx context.Context, id string) (bridge.RequestOutcome, error)
	// Wait waits until the request is answered, as long as ctx allows.
	Wait(ctx context.Context, id string) (bridge.Answer, error)
}

// Live is what Redis knows of the present.
type Live interface {
	// Status returns what the bridge that runs the stream says of it; false
	// where none has said anything for some seconds.
	Status(ctx context.Context) (bridge.Status, bool, error)
	// Now returns the time by which requests expire.
	Now(ctx context.Context) (time.Time, error)
}

// Directory lists the streams that Redis has a checkpoint of.
type Directory interface {
	Streams(ctx context.Context) ([]string, error)
}

// CheckpointLog is the stream's checkpoint topic.
type CheckpointLog interface {
	// Walk shows the committed checkpoints to visit, newest first, until it
	// returns false. It begins no session.
	Walk(ctx context.Context, visit func(bridge.Checkpoint) bool) error
}

// Group is the stream's consumer group.
type Group interface {
	// Members returns the processes that run the stream or stand by for it;
	// none means that nobody runs it.
	Members(ctx context.Context) ([]Member, error)
}

// Sink is a bridge.Sink that is closed after use.
type Sink interface {
	bridge.Sink
	Close()
}

// Member is a process in a stream's group, as Kafka's coordinator knows it.
type Member struct {
	// ClientID is its KAFKA_CLIENT_ID.
	ClientID string `json:"client_id"`
	// Host is the address that the brokers see.
	Host string `json:"host"`
	// InstanceID is its BRIDGE_INSTANCE_ID; empty if it has none.
	InstanceID string `json:"instance_id,omitempty"`
	// Owner: the stream is assigned to it. For a moment, while the group
	// changes, nobody is the owner.
	Owner bool `json:"owner"`
}

// String names the process for people.
func (m Member) String() string { return m.Name() + " at " + m.Host }

// Name is the instance's, or the client's where it has none.
func (m Member) Name() string {
	if m.InstanceID != "" {
		return m.InstanceID
	}
	return m.ClientID
}

// Ports are the servers of one stream.
type Ports struct {
	// Store, Entries, Inbox and Live are Redis's, and required.
	Store   bridge.Store
	Entries Entries
	Inbox   Inbox
	Live    Live
	// Directory names other streams where this one has no checkpoint; nil
	// names none.
	Directory Directory
	// Log and Group are Kafka's, and required.
	Log   CheckpointLog
	Group Group
	// OpenSink returns a sink for the session of one change.
	OpenSink func() (Sink, error)
}

// Controller sees and steers one stream. All methods may be called
// concurrently.
type Controller struct {
	cfg   bridge.Config
	ports Ports
}

// New returns the controller of a stream. cfg is that of the stream's bridge, with
// this process as its Owner. New contacts no server.
func New(cfg bridge.Config, ports Ports) *Controller { return &Controller{cfg: cfg, ports: ports} }

// Stream returns the name of the stream.
func (c *Controller) Stream() string { return c.cfg.Stream }

const (
	// logTimeout bounds how long the checkpoint topic is read where Redis does
	// not have what is asked for.
	logTimeout = 30 * time.Second
	// membersTimeout bounds the question who runs the stream.
	membersTimeout = 10 * time.Second
)

// Live returns what the bridge that runs the stream says of it; false where
// none has said anything for some seconds. Then none runs it, or it does not
// reach Redis.
func (c *Controller) Live(ctx context.Context) (bridge.Status, bool, error) {
	return c.ports.Live.Status(ctx)
}

// isAway reports whether an error of the store says that Redis does not answer,
// and not that what was asked for is not there, or wrong.
func isAway(err error) bool {
	fault, ok := errors.AsType[*bridge.Fault](err)
	return ok && fault.Class != bridge.Permanent && !errors.Is(err, bridge.ErrForeign)
}
