package bridge

import (
	"context"
	"sync"
	"time"
)

// Source is the export API.
//
// Fetch is called by one goroutine at a time. Decode may run at the same time
// as a later Fetch, on one page at a time, in the pages' order.
type Source interface {
	// Fetch requests one page and returns it with its Body and Next. It sends the
	// cursor byte for byte. Errors are Faults, or the error of a cancelled context.
	// The caller may cancel an overdue Fetch; see Waiting.
	Fetch(ctx context.Context, at Position) (*Page, error)
	// Decode splits the page into Events and sets Items and Source. It finds the same
	// Next as Fetch, or fails. In a window, it drops events whose time is outside the
	// window; Items counts them. Events are untouched bytes of the body. A page that
	// names a cursor or the end may leave out its items, or have null. Any other body
	// that is not exactly one page is a Fault, never an empty page. The caller
	// releases the page in any case.
	Decode(p *Page) error
}

type waitingKey struct{}

// WithWaiting returns a context in which Waiting calls wait. When the wait is over,
// Waiting calls resume.
func WithWaiting(ctx context.Context, wait func() (resume func())) context.Context {
	return context.WithValue(ctx, waitingKey{}, wait)
}

// Waiting tells the caller of a port that the call waits on purpose, for example for a rate
// limit. Until resume is called, no time counts towards the timeout of the call.
func Waiting(ctx context.Context) (resume func()) {
	if wait, ok := ctx.Value(waitingKey{}).(func() func()); ok {
		return wait()
	}
	return func() {}
}

// Batch is what one commit makes visible: the events sent since the last commit, and
// the checkpoint after them.
type Batch struct {
	// Checkpoint is the state after the batch.
	Checkpoint Checkpoint
	// From is the state before the batch: a committed checkpoint. A sink may store a
	// copy of it at any time.
	From Checkpoint
}

// Receipt is the outcome of a batch.
type Receipt struct {
	// Published counts the events written to the topic, DeadLettered those written to
	// the dead-letter topic instead, by defect.
	Published    int
	DeadLettered map[Defect]int
	// Dropped counts the events whose Route is RouteDrop.
	Dropped int
	// Restamped counts published events whose time the topic does not accept: the timestamp
	// of their records is the publish time.
	Restamped int
	// Mismatched counts the events that have a Mismatch, published or not.
	Mismatched int
	// Bytes is the total size of the published values.
	Bytes int64
	// Topics are those of Sink.Topics after the batch, as far as the session knows.
	// Each End includes at least the records of the batch.
	Topics []TopicState
}

// Sink publishes events. One goroutine calls it.
type Sink interface {
	// Recover ends earlier sessions and begins a new one. In exactly-once mode,
	// nothing that an earlier session has not committed by then ever becomes visible.
	// Recover then calls owned, if not nil, to confirm ownership, and returns its
	// error. It returns the newest checkpoint in the sink, or ErrNoCheckpoint: in
	// exactly-once mode the checkpoint of the last commit, in at-least-once mode a
	// copy that may be older. It waits for the sink's server as long as ctx allows.
	// Every Publish belongs to the session of the last Recover. Recover never
	// recreates a topic that a checkpoint implies: a missing one is a Permanent Fault.
	Recover(ctx context.Context, owned func(context.Context) error) (Checkpoint, error)
	// Send takes the next page of a batch without waiting for acknowledgements. The Sink
	// owns the page from the call on, even after an error. It releases the page on any
	// goroutine, before Publish or the next Recover returns. ErrRejected means that the
	// page has an event that must not be published: nothing of the page was sent, and the
	// batch is unchanged. After any other error the session is over.
	Send(ctx context.Context, p *Page) error
	// Publish makes the batch durable: the pages sent since the last Publish, possibly
	// none, in order. Nil means that the server has acknowledged every event and, in
	// exactly-once mode, that the checkpoint is committed with them. After any error
	// the outcome is unknown and the session is over: the caller must Recover.
	// ErrFenced means that a newer session of the stream has begun. A CutOffError
	// means that a topic has lost the end of its log during the session.
	Publish(ctx context.Context, b Batch) (Receipt, error)
	// Topics asks the server for the session's topics: the event topic first, then the
	// dead-letter topic if any. The session publishes to these only. From here on, publishing
	// to a topic recreated under the same name fails before anything is visible there. A
	// second call has no answer of a former leader. After any error the session is over.
	Topics(ctx context.Context) ([]TopicState, error)
	// Holds reports whether the topic has any record of this stream. The engine calls
	// it only if no checkpoint is found anywhere. An answer that is not known in time
	// is a Permanent Fault with ReasonCheckpointLost, never false. Another call may
	// succeed.
	Holds(ctx context.Context) (bool, error)
	// Close ends the session, if there is one, and frees its connections. A Recover begins
	// another session.
	Close()
}

// Store keeps one stream's checkpoint outside the sink, with its history. All
// methods may be called concurrently.
type Store interface {
	// Load returns the stored checkpoint, ErrNoCheckpoint if there is none, or
	// ErrForeign if the value is not a checkpoint. Any other error is transient.
	Load(ctx context.Context) (Checkpoint, error)
	// Advance atomically replaces the checkpoint from by the checkpoint to, and adds
	// the latter to the history. It succeeds if nothing is stored, or if the version
	// of to is after the stored version and the stored change id is from's. Repeating
	// a successful Advance (same version, cursor and session) succeeds and changes
	// nothing. Otherwise Advance returns ErrConflict or ErrForeign and changes
	// nothing. Any other error is transient and leaves the outcome unknown; repeating
	// is safe. After nil the new checkpoint is as durable as the server is configured
	// to be.
	Advance(ctx context.Context, from, to Checkpoint) error
}

// Owner elects the process that runs the stream. Safety does not depend on it: two
// processes that both assume ownership fence each other. One goroutine calls it.
type Owner interface {
	// Acquire waits for ownership as long as ctx allows, even while its server is
	// unreachable. When ctx ends, the error is ErrNotOwner if another process is known
	// to own the stream. An error that waiting does not resolve is a Permanent Fault.
	Acquire(ctx context.Context) (Ownership, error)
}

// Ownership is the time during which this process owns a stream. Its methods
// may be called concurrently.
type Ownership interface {
	// Lost is closed when ownership must be released: finish or drop work in flight,
	// then call Release. Another process may wait for the Release for a limited time.
	Lost() <-chan struct{}
	// Confirm checks that this process still owns the stream. ErrNotOwner means that
	// it does not. Any other error leaves that unknown.
	Confirm(ctx context.Context) error
	// Shared reports whether another process could run the stream. It returns false if it
	// cannot find out soon.
	Shared(ctx context.Context) bool
	// Rival names a process or group outside the election that can also run the stream;
	// empty if none is known. This process and the rival fence each other.
	Rival(ctx context.Context) (string, error)
	// Release gives up ownership. It returns when another process can acquire
	// ownership, or after a few seconds. Only the first call has an effect.
	Release()
}

// WhileOwned returns a context that ends with ctx or when ownership is lost. end ends it, and
// waits for its goroutine.
func WhileOwned(ctx context.Context, o Ownership) (owned context.Context, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		defer cancel()
		select {
		case <-o.Lost():
		case <-ctx.Done():
		}
	})
	return ctx, func() { cancel(); watching.Wait() }
}

// Command is an operator's request to a running stream.
type Command struct {
	ID   string `json:"id"`   // unique to this command
	Kind Kind   `json:"kind"` // KindReset, KindPause or KindResume
	// BaseEpoch is the epoch that the operator saw. At another epoch the command is
	// rejected.
	BaseEpoch int64 `json:"base_epoch"`
	// Target is the position of a reset.
	Target Target `json:"target"`
	// AcceptSource is the Digest of the Fingerprint that a reset accepts as the
	// stream's from now on; empty accepts no other.
	AcceptSource string `json:"accept_source,omitempty"`
	// PausedUntil is as in Checkpoint, for KindPause.
	PausedUntil int64 `json:"paused_until,omitempty"`
	// Who and Reason are recorded in the history.
	Who    string `json:"who,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Deadline is the time after which the command must not be applied, by the store's
	// clock, in milliseconds since the epoch.
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
	// Events, Pages, Outside and Dropped are the counters at the target, PositionTime is its
	// position; 0 if unknown. AdvanceTime is as in Checkpoint, LastEventTime is at
	// most that of the Checkpoint.
	Events        int64 `json:"events,omitempty"`
	Pages         int64 `json:"pages,omitempty"`
	Outside       int64 `json:"outside_range,omitempty"`
	Dropped       int64 `json:"dropped_by_route,omitempty"`
	PositionTime  int64 `json:"position_time,omitempty"`
	LastEventTime int64 `json:"last_event_time,omitempty"`
	AdvanceTime   int64 `json:"advance_time,omitempty"`
	// Entry is the history entry that the target came from, if any.
	Entry *Version `json:"entry,omitempty"`
	// Request is the fingerprint of the API request that returned Cursor, if known.
	Request Fingerprint `json:"request,omitempty"`
	// FollowOtherwise is set if the stream changes at Start from its cursor to windows, or
	// back. Events in its topic are then dropped.
	FollowOtherwise bool `json:"follow_otherwise,omitempty"`
	// Stay is set if the stream keeps its position: that of Entry, or of a later commit
	// of the same epoch.
	Stay bool `json:"stay,omitempty"`
}

// Answer is the outcome of a Command.
type Answer struct {
	// Applied is false if the command was rejected.
	Applied bool `json:"applied"`
	// Detail says why the command was rejected, or what the reset accepted. It is for
	// people.
	Detail string `json:"detail,omitempty"`
	// By is the owner that answered. Version is the version of its checkpoint at that time.
	By      string  `json:"by"`
	Version Version `json:"place"`
	At      int64   `json:"at"` // milliseconds since the epoch
}

// Claim names the session that is about to apply or reject a Command.
type Claim struct {
	// Owner names the process, for people; Session its session.
	Owner, Session string
	// Over is an earlier claimer that can no longer commit, or empty.
	Over string
}

// Claimed is the state of a Command after a Claim. It is zero if the command was
// withdrawn or answered.
type Claimed struct {
	// By is the session that holds the claim, or empty.
	By string
	// Late is true if the deadline passed without a claim: the command must not be
	// applied.
	Late bool
}

// Inbox delivers the operator's commands to the stream's owner.
type Inbox interface {
	// Next waits for a command without an answer. It returns the same command again
	// until the command is answered or withdrawn. One caller at a time.
	// ErrInvalidCommand means that an invalid command was rejected and removed; see
	// Command.Validate.
	Next(ctx context.Context) (Command, error)
	// Claim announces to the operator that a session is about to apply or reject the
	// command, and returns the session that holds the claim. A claimed command cannot
	// be withdrawn. Another session keeps its claim, except the session by.Over. Past
	// the deadline nobody can claim. Claiming twice is the same as once.
	Claim(ctx context.Context, c Command, by Claim) (Claimed, error)
	// Answer records the answer for the operator and removes the command. The first
	// answer is final: a later Answer succeeds, changes nothing and returns the first.
	// ErrConflict means that nothing has changed: the command was withdrawn, or the
	// answer is a rejection (not Applied) while another session may still apply the
	// command. A rejection is recorded if its session holds the claim. Past the
	// deadline it is also recorded if nobody holds the claim, or only by.Over.
	Answer(ctx context.Context, c Command, by Claim, a Answer) (Answer, error)
}

// Observer receives observations on the goroutine where they occur.
type Observer interface {
	// Observe must return quickly and must not block. It may be called concurrently.
	Observe(o Observation)
}

// What is the kind of an Observation.
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
	// ObserveTransaction: one transaction, in exactly-once mode. Took, Code
	// ("committed", "fenced" or "unknown").
	ObserveTransaction What = "transaction"
	// ObserveCheckpoint: one Advance. Took, Code ("ok", "error", "conflict").
	ObserveCheckpoint What = "checkpoint"
	// ObserveCommit: a batch is committed. Pages, Events (published),
	// Receipt, Repeated, AtBorder, Shared, Vanished, Changed, Unaccounted, Times, Late.
	ObserveCommit What = "commit"
	// ObserveRetry: a request or step is retried. Code, Took (the wait).
	ObserveRetry What = "retry"
	// ObserveReset: a command was applied, or the stream left a rejected cursor. Code
	// is the command's kind, or "refused-cursor".
	ObserveReset What = "reset"
	// ObserveState: the state changed. Code is the new one.
	ObserveState What = "state"
	// ObserveOwner: ownership was acquired or lost. Code ("owner" or
	// "standby").
	ObserveOwner What = "owner"
	// ObserveRejected: a server rejected a stale write. Code is the dependency:
	// DependencySink (fenced) or DependencyStore (conflict).
	ObserveRejected What = "rejected"
	// ObserveStuck: a page made no progress. Code: "cycle" for a page that leads back
	// to an earlier page, "full-tail" for a full page without new items that names its
	// own cursor as the next, or one of the codes below.
	ObserveStuck What = "stuck"
	// ObserveTopic: a topic changed. Code: TopicLost or TopicGrew.
	ObserveTopic What = "topic"
)

// More codes of ObserveStuck.
const (
	// StuckFullPage: a full page names no next page.
	StuckFullPage = "full_page_without_next"
	// StuckOlder: the last page lists older items, and none that it listed before.
	StuckOlder = "older_page"
	// StuckBorder: a page begins with all items kept of the page before. Items before
	// those may be published twice.
	StuckBorder = "border_overlap"
)

// The codes of ObserveTopic.
const (
	// TopicLost: Kafka lost records that a checkpoint implies, or a checkpoint that the
	// store has. Observed once for each loss.
	TopicLost = "lost"
	// TopicGrew: partitions were added.
	TopicGrew = "partitions"
)

// Observation is one event in the life of a stream. What decides which of the fields below
// it are set.
type Observation struct {
	Stream string
	What   What
	// Took is the duration. Code is the outcome, one of a few words.
	Took time.Duration
	Code string
	// Pages, Events and Bytes are amounts. Receipt is that of the Sink.
	Pages   int
	Events  int
	Bytes   int64
	Receipt Receipt
	// Repeated counts dropped items that the page repeated. Shared counts items that share
	// their id with another item of the page. Vanished counts items of the tail that the
	// API no longer lists. Changed counts items of the tail that the API lists with other
	// bytes.
	Repeated, Shared, Vanished, Changed int
	// Keyless counts events without a key that no route drops.
	Keyless int
	// AtBorder counts dropped items that were at the end of the page before.
	AtBorder int
	// Late has the Event.Late of each late event.
	Late []time.Duration
	// Unaccounted counts events that were sent but are missing from the receipt. It must be
	// 0.
	Unaccounted int
	// Times are event times in milliseconds since the epoch: all times of a small page, or
	// evenly spread times of a larger one. They are valid during the call.
	Times []int64
}

// History returns earlier positions of a stream.
type History interface {
	// Before returns the newest committed checkpoint among the ancestors of c that
	// matches accepts, or ErrNoCheckpoint. A store in another epoch than c does not
	// know the ancestors: it returns an error of Store.Load.
	Before(ctx context.Context, c Checkpoint, matches func(*Checkpoint) bool) (Checkpoint, error)
}

// PublishedEvents reads back the events in the topic and in the dead-letter topic.
type PublishedEvents interface {
	// Index returns the stream's events that were committed before the call, and maybe
	// later ones. It has at least the events from since.Time on. It also has the events
	// after the ends of since.Topics, for topics whose end is known and whose id is the
	// same. It reads the former topics in since.Topics too, while they exist. The time of a
	// dead letter is its publish time. Events of another source, which may have equal ids,
	// are excluded if both sources are known. The engine calls Index only between two
	// batches. More events than memory can hold are a Permanent Fault.
	Index(ctx context.Context, since Since, source SourceIdentity) (PublishedIndex, error)
	// PartialIndex is an Index that marks republished events. It has the events of this
	// source that were read from the topic before ctx ended or memory was full. It is nil
	// if records carry no marks.
	PartialIndex(ctx context.Context, from time.Time, source SourceIdentity) (PublishedIndex, error)
}

// PublishedIndex is a multiset of events, used by one goroutine.
type PublishedIndex interface {
	// Match reports whether the index has the event, by its bytes: the same id with other
	// bytes is an update. Two equal events without an id can both be real, so each copy in
	// the index matches once.
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
