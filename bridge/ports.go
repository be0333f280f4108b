package bridge

import (
	"context"
	"time"
)

// Source is the export API.
//
// Fetch is called by one goroutine at a time. Decode may run at the same time
// as a later Fetch, on one page at a time, in the pages' order.
type Source interface {
	// Fetch requests one page, and returns it with its Body and Next. Decode finds
	// the same cursor, or fails. The cursor is sent byte for byte. Errors are Faults;
	// a cancelled context returns its error. Fetch may be ended as overdue unless it
	// tells by Waiting that it waits on purpose.
	Fetch(ctx context.Context, at Position) (*Page, error)
	// Decode splits the page into Events and sets Items and Source. Of a window it
	// drops the events that lie outside of it by their time, where the API returns
	// such; Items counts them. Items are untouched bytes of the body. A page may leave out
	// its items, or have null for them, where it names a cursor or the end. Any
	// other body that is not exactly one page is a Fault, never an empty page. The
	// caller releases the page in any case.
	Decode(p *Page) error
}

type waitingKey struct{}

// WithWaiting returns a context in which Waiting calls wait, and what wait returns when
// the wait is over.
func WithWaiting(ctx context.Context, wait func() (resume func())) context.Context {
	return context.WithValue(ctx, waitingKey{}, wait)
}

// Waiting tells the caller of a port that the call waits on purpose, as for a rate
// limit, until resume is called: that time does not count as the call's.
func Waiting(ctx context.Context) (resume func()) {
	if wait, ok := ctx.Value(waitingKey{}).(func() func()); ok {
		return wait()
	}
	return func() {}
}

// Batch is what one commit makes visible: the events sent since the last one,
// and the checkpoint after them.
type Batch struct {
	// Checkpoint is the state after the batch.
	Checkpoint Checkpoint
	// From is the state before it: a checkpoint that is already committed under
	// the delivery mode. A sink may store a copy of it at any time.
	From Checkpoint
}

// Receipt is the outcome of a batch.
type Receipt struct {
	// Published counts the events written to the topic, DeadLettered those
	// written to the dead-letter topic instead, by defect.
	Published    int
	DeadLettered map[Defect]int
	// Restamped counts published events whose time the topic does not accept;
	// their records carry the time of publishing.
	Restamped int
	// Bytes is the total size of the published values.
	Bytes int64
	// Topics are those of Sink.Topics after the batch, as far as the session
	// knows. Each End includes at least the records of the batch.
	Topics []TopicState
}

// Sink publishes events. One goroutine calls it.
type Sink interface {
	// Recover ends earlier sessions and begins a new one: exactly once, nothing
	// that an earlier session has not committed by then ever becomes visible.
	// It then calls owned, if not nil, to confirm ownership, and returns its
	// error. It returns the newest checkpoint in the sink: exactly once, that
	// of the last commit; at least once, a copy that may be older. Without one
	// it returns ErrNoCheckpoint. It waits for the sink's server as long as ctx
	// allows. Every Publish belongs to the session of the last Recover. It
	// never recreates a topic that a checkpoint implies: that is a Permanent
	// Fault.
	Recover(ctx context.Context, owned func(context.Context) error) (Checkpoint, error)
	// Send takes the next page of a batch without waiting for acknowledgements.
	// The Sink owns the page from the call on, whatever it returns: it releases
	// it once nothing of it is in use, from any goroutine, before Publish or
	// the next Recover returns. ErrRefused means that the page has an event
	// that must not be published; nothing of the page was sent, and the batch
	// is unchanged. After any other error the session is over.
	Send(ctx context.Context, p *Page) error
	// Publish makes the batch durable: the pages sent since the last Publish,
	// possibly none, in order. Nil means that the server has acknowledged every
	// event and, exactly once, that the checkpoint is committed with them.
	// After any error the outcome is unknown and the session is over: the
	// caller must Recover. ErrFenced means that a newer session of the stream
	// has begun, a CutOffError that a topic has lost the end of its log during
	// the session.
	Publish(ctx context.Context, b Batch) (Receipt, error)
	// Topics asks the server for the session's topics: the event topic first,
	// then the dead-letter topic if there is one. The session publishes to
	// these topics only: from here on, publishing to a topic that was
	// recreated under the same name is an error, before anything is visible
	// there. After any error the session is over.
	Topics(ctx context.Context) ([]TopicState, error)
	// Holds reports whether the topic has any record of this stream. It is
	// called only if no checkpoint is found anywhere. If the answer is not
	// known in time it returns a Permanent Fault with ReasonCheckpointLost,
	// never false; another call may succeed.
	Holds(ctx context.Context) (bool, error)
}

// Store keeps one stream's checkpoint outside the sink, with its history. All
// methods may be called concurrently.
type Store interface {
	// Load returns the stored checkpoint, ErrNoCheckpoint if there is none, or
	// ErrForeign if the value is not a checkpoint. Any other error is
	// transient.
	Load(ctx context.Context) (Checkpoint, error)
	// Advance atomically replaces from by to and adds to to the history. It
	// succeeds iff nothing is stored, or to is after the stored version and the
	// stored change id is from's. Repeating a successful Advance (same version,
	// cursor and session) succeeds and changes nothing. Otherwise it returns
	// ErrConflict or ErrForeign, and nothing has changed. Any other error is
	// transient and leaves the outcome unknown; repeating is safe. On nil the
	// new checkpoint is as durable as the server is configured to be.
	Advance(ctx context.Context, from, to Checkpoint) error
}

// Owner elects the process that runs the stream. Safety does not depend on it:
// two processes that both assume ownership fence each other. It avoids that
// contention. One goroutine calls it.
type Owner interface {
	// Acquire waits for ownership as long as ctx allows, even while its server
	// is unreachable. When ctx ends, the error is ErrNotOwner if another
	// process is known to own the stream. An error that waiting does not
	// resolve is a Permanent Fault.
	Acquire(ctx context.Context) (Ownership, error)
}

// Ownership is the time during which this process owns a stream. Its methods
// may be called concurrently.
type Ownership interface {
	// Lost is closed when ownership must be released: finish or drop work in
	// flight and call Release. Another process may wait for that, for a limited
	// time.
	Lost() <-chan struct{}
	// Confirm checks that this process still owns the stream. ErrNotOwner means
	// that it does not; any other error leaves it unknown.
	Confirm(ctx context.Context) error
	// Shared reports whether another process could run the stream. It reports
	// false if it cannot find out soon.
	Shared(ctx context.Context) bool
	// Rival names a process or group outside the election that can run the
	// stream too; empty is none known. Each of the two fences the other.
	Rival(ctx context.Context) (string, error)
	// Release gives up ownership and returns when another process can acquire
	// it, or after a few seconds. Only the first call has an effect.
	Release()
}

// Command is an operator's request to a running stream.
type Command struct {
	ID   string `json:"id"`   // of this request alone
	Kind Kind   `json:"kind"` // KindReset, KindPause or KindResume
	// BaseEpoch is the epoch that the operator saw. At another epoch the
	// command is refused.
	BaseEpoch int64 `json:"base_epoch"`
	// Target is the position of a reset.
	Target Target `json:"target"`
	// AcceptSource is the Digest of the Fingerprint that a reset accepts as the
	// request of the stream from now on; empty accepts no other.
	AcceptSource string `json:"accept_source,omitempty"`
	// PausedUntil is as in Checkpoint, for KindPause.
	PausedUntil int64 `json:"paused_until,omitempty"`
	// Who and Reason are recorded in the history.
	Who    string `json:"who,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Deadline is the time after which the command must not be applied, by the
	// store's clock in milliseconds since the epoch.
	Deadline int64 `json:"deadline"`
}

// Target is a position to reset to.
type Target struct {
	// Cursor, Tail, Carried and Border are as in Checkpoint.
	Cursor  string `json:"cursor"`
	Tail    Tail   `json:"tail,omitempty"`
	Carried int    `json:"carried,omitempty"`
	Border  Border `json:"border,omitzero"`
	// Start is used when Cursor is empty; see Origin.Start.
	Start int64 `json:"start,omitempty"`
	// Events and Pages are the counters at the target, PositionTime is its
	// position; 0 where unknown.
	Events       int64 `json:"events,omitempty"`
	Pages        int64 `json:"pages,omitempty"`
	PositionTime int64 `json:"position_time,omitempty"`
	// Entry is the history entry that the target came from, if any.
	Entry *Version `json:"entry,omitempty"`
	// Request is the fingerprint of the request that Cursor came from, as far as
	// it is known.
	Request Fingerprint `json:"request,omitempty"`
}

// Answer is the outcome of a Command.
type Answer struct {
	// Applied is false if the command was refused.
	Applied bool `json:"applied"`
	// Detail is a text for people: why it was refused, or what the reset
	// accepted.
	Detail string `json:"detail,omitempty"`
	// By is the owner that answered, Version the stream's checkpoint at that
	// time.
	By      string  `json:"by"`
	Version Version `json:"place"`
	At      int64   `json:"at"` // milliseconds since the epoch
}

// Claim names the session that is about to decide a Command.
type Claim struct {
	// Owner names the process, for people; Session its session.
	Owner, Session string
	// Over is an earlier claimer that can no longer commit anything, or empty.
	Over string
}

// Claimed is how it stands with a Command after a Claim. It is zero where the
// command was withdrawn or answered.
type Claimed struct {
	// By is the session whose claim stands, or empty.
	By string
	// Late is true if the deadline has passed without a claim: the command must
	// not be applied.
	Late bool
}

// Inbox delivers the operator's commands to the stream's owner.
type Inbox interface {
	// Next waits for a command that has no answer yet. It returns the same
	// command again until it is answered or withdrawn. One caller at a time.
	// ErrInvalidCommand means that a request was refused and removed because it
	// is no valid Command; see Command.Validate.
	Next(ctx context.Context) (Command, error)
	// Claim tells who asked that a session is about to decide about the
	// command, and returns whose claim stands: a claimed command cannot be
	// withdrawn. The claim of another session stands, unless it is the one
	// that by says is over. Past the deadline nobody can claim any more.
	// Claiming twice is the same as once.
	Claim(ctx context.Context, c Command, by Claim) (Claimed, error)
	// Answer records the answer for who asked and removes the command. The first
	// answer stands: a later one changes nothing and succeeds, and Answer returns
	// the first. ErrConflict means that nothing has changed: the command was
	// withdrawn, or the answer is a refusal, which is one that is not Applied,
	// and others may still apply the command. A refusal counts while the claim
	// of its session stands, and past the deadline also where none does or only
	// one that by says is over.
	Answer(ctx context.Context, c Command, by Claim, a Answer) (Answer, error)
}

// Observer receives observations synchronously, on the goroutine where they
// occur: it must return quickly, must not block, and may be called
// concurrently.
type Observer interface {
	Observe(o Observation)
}

// What names the thing observed.
type What string

// The observations. Fields not listed are zero.
const (
	// ObserveFetch: one request that was sent. Took, Code ("200", another status,
	// "timeout", "network", ...), Bytes of the decompressed body.
	ObserveFetch What = "fetch"
	// ObserveDecode: one page. Took, Events as they arrived, Code ("full",
	// "partial" or "empty").
	ObserveDecode What = "decode"
	// ObserveWait: the commit loop waited for a page. Took.
	ObserveWait What = "wait"
	// ObservePublish: one batch. Took, Code ("ok", or the code of the Fault).
	ObservePublish What = "publish"
	// ObserveTransaction: one transaction, exactly once. Took, Code
	// ("committed", "fenced" or "unknown").
	ObserveTransaction What = "transaction"
	// ObserveCheckpoint: one Advance. Took, Code ("ok", "error", "conflict").
	ObserveCheckpoint What = "checkpoint"
	// ObserveCommit: a batch is committed. Pages, Events (published),
	// Receipt, Repeated, AtBorder, Shared, Vanished, Changed, Unaccounted, Times.
	ObserveCommit What = "commit"
	// ObserveRetry: a request or step is retried. Code, Took (the wait).
	ObserveRetry What = "retry"
	// ObserveReset: an operator's command was applied, or the stream was moved
	// away from a rejected cursor. Code is its kind, or "refused-cursor".
	ObserveReset What = "reset"
	// ObserveState: the state changed. Code is the new one.
	ObserveState What = "state"
	// ObserveOwner: ownership was acquired or lost. Code ("owner" or
	// "standby").
	ObserveOwner What = "owner"
	// ObserveRejected: a server rejected a stale write. Code is the dependency:
	// DependencySink (fenced) or DependencyStore (conflict).
	ObserveRejected What = "rejected"
	// ObserveStuck: a page made no progress. Code: "cycle" for a page that
	// leads back to one read before, or "full-tail" for a full page that names
	// its own cursor as the next and has no new items, or StuckFullPage for a full
	// page without a next one, or StuckOlder for a last page that lists none of its
	// items any more, but older ones, or StuckBorder for a page that begins with all
	// items kept of the page before, so that earlier ones may be published twice.
	ObserveStuck What = "stuck"
	// ObserveTopic: a topic changed. Code: TopicLost, once for each loss of what a
	// checkpoint implies, or of a checkpoint that the store has, or TopicGrew for
	// added partitions.
	ObserveTopic What = "topic"
)

// Codes of ObserveStuck.
const (
	StuckFullPage = "full_page_without_next"
	StuckOlder    = "older_page"
	StuckBorder   = "border_overlap"
)

// The codes of ObserveTopic.
const (
	TopicLost = "lost"
	TopicGrew = "partitions"
)

// Observation is one thing that happened to a stream.
type Observation struct {
	// Stream is the stream observed. What names the observation and decides
	// which of the fields below are set.
	Stream string
	What   What
	// Took is the duration, Code the outcome: one of a few words.
	Took time.Duration
	Code string
	// Pages, Events and Bytes are amounts, Receipt is the Sink's.
	Pages   int
	Events  int
	Bytes   int64
	Receipt Receipt
	// Repeated counts items that the page repeated and that were dropped,
	// Shared items whose id another item of the page has too, Vanished tail
	// items that the API no longer lists, Changed tail items listed again with
	// other bytes.
	Repeated, Shared, Vanished, Changed int
	// Keyless counts events without a key.
	Keyless int
	// AtBorder counts items that ended the page before and were dropped.
	AtBorder int
	// Unaccounted counts events that were sent but are missing from the
	// receipt. It must be 0.
	Unaccounted int
	// Times are the times of some of the events, in milliseconds since the
	// epoch: all of a small page, evenly spread ones of a larger page. Valid
	// during the call.
	Times []int64
}

// History returns earlier positions of a stream.
type History interface {
	// Before returns the newest committed checkpoint among the ancestors of c
	// that matches accepts, or ErrNoCheckpoint. A store that is not in the epoch
	// of c does not know them and returns an error, as Store.Load does.
	Before(ctx context.Context, c Checkpoint, matches func(*Checkpoint) bool) (Checkpoint, error)
}

// PublishedEvents reads back which events are in the topic or in the
// dead-letter topic.
type PublishedEvents interface {
	// Index returns the stream's events committed before the call, and maybe
	// later ones, to the topic or the dead-letter topic, at least those with
	// times from since.Time on and those behind the ends of since.Topics, as far
	// as these are known and of the same topic; the time of a dead letter is that of its publishing. Events
	// of another source are excluded if both sources are known: they may have
	// equal ids. It is only called between two batches. Too many events for
	// memory are a Permanent Fault.
	Index(ctx context.Context, since Since, source SourceIdentity) (PublishedIndex, error)
	// PartialIndex is Index for marking republished events: the events of this
	// source in the topic, as far as they were read when ctx ends or memory is
	// full. Nil if records carry no marks.
	PartialIndex(ctx context.Context, from time.Time, source SourceIdentity) (PublishedIndex, error)
}

// PublishedIndex is a multiset of events, used by one goroutine.
type PublishedIndex interface {
	// Match reports whether the index has the event, by its bytes: the same id
	// with other bytes is an update. Without an id, each copy in the index
	// matches once: two equal events can both be real.
	Match(e *Event) bool
}

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
