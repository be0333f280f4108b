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
	// Fetch asks for one page and returns as soon as the page's Next is known
	// for certain: it is the cursor that Decode will find, or Decode fails.
	// The cursor goes out byte for byte. Errors are Faults; a cancelled
	// context returns its error.
	//
	// The body has arrived then, or it is on its way: in a page whose
	// ArrivedAt is zero. Such a page leads on (it is no Tail), was asked for
	// with a cursor, and is no smaller than SmallBody. ctx counts until its
	// body has arrived. At most three bodies are on their way at once; Fetch
	// waits for none of the caller's calls to keep to that.
	Fetch(ctx context.Context, at Position) (*Page, error)
	// Decode splits the page into Events and sets Items and Source. Items are
	// untouched bytes of the body. A body that is not exactly one page is a
	// Fault, never an empty page. Of a page that is arriving it first takes in
	// the rest and sets Body, Size and ArrivedAt; what ends that early is the
	// Fault, or the context's error, that it would have been in Fetch. The
	// caller releases the page in any case. A page that is released without
	// being decoded ends its transfer.
	Decode(p *Page) error
}

// Batch is what one commit makes visible: the events that were sent since the
// last one, and the checkpoint that the stream has reached with them.
type Batch struct {
	// Checkpoint is the state after the batch.
	Checkpoint Checkpoint
	// From is the state before it: a checkpoint that is committed wherever the
	// delivery mode commits. A sink may keep a copy of it at any time.
	From Checkpoint
}

// Receipt says what became of a batch.
type Receipt struct {
	// Published counts the events now in the topic, DeadLettered those in the
	// dead-letter topic instead, by defect.
	Published    int
	DeadLettered map[Defect]int
	// Restamped counts published events whose time the topic would not keep
	// and that carry the time of publishing instead.
	Restamped int
	// Bytes is the size of all published values.
	Bytes int64
	// Topics are those of Sink.Topics after the batch, as far as the session
	// knows. Each reaches at least as far as the records of the batch.
	Topics []TopicState
}

// Sink is where events go. One goroutine calls it.
type Sink interface {
	// Recover ends whatever an earlier session left and begins a new one:
	// exactly once, nothing that an earlier session has not committed by then
	// will ever become visible. It then asks owned whether the stream is still
	// this process's, and returns its error; nil asks nobody. It returns the
	// newest checkpoint that the sink holds: exactly once, that of the last
	// commit, at least once, a copy that may be older. Where it holds none,
	// ErrNoCheckpoint. It waits for the sink's server as long as ctx allows.
	// Every Publish belongs to the session of the last Recover. It makes no
	// topic again that a checkpoint implies: that is a Permanent Fault.
	Recover(ctx context.Context, owned func(context.Context) error) (Checkpoint, error)
	// Send hands over the next page of a batch and does not wait until its
	// events have arrived. The page is the Sink's from the call on, whatever it
	// returns: it is released when nothing of it is in use any more, from any
	// goroutine, and before Publish or the next Recover returns. An error that
	// is an ErrRefused says that the page has an event that must not be
	// published; nothing of the page was sent, and the batch stays as it was.
	// After any other error the session is over.
	Send(ctx context.Context, p *Page) error
	// Publish makes the batch durable: the pages that were sent since the last
	// Publish, in their order, which may be none. All of it or the error says
	// otherwise. Nil means that every event is acknowledged by the server (and,
	// exactly once, that the checkpoint is committed with them). After any
	// error the outcome is unknown and the session is over: the caller must
	// Recover. An ErrFenced says that a newer session of the stream has begun, a
	// CutOffError that a topic has lost its end since the session knew it.
	Publish(ctx context.Context, b Batch) (Receipt, error)
	// Topics asks the server for the topics of the session, that of the events
	// first, then that of the dead letters if there is one. The session publishes
	// to those and to no others: from here on, what would go to a topic that was
	// made again under the same name is an error, before it is visible there.
	// After any error the session is over.
	Topics(ctx context.Context) ([]TopicState, error)
	// Holds reports whether the topic has any record of this stream. Only
	// asked when no checkpoint is found anywhere. Where that cannot be known in
	// time it is a Permanent Fault with ReasonCheckpointLost, never false; to ask
	// again may find out.
	Holds(ctx context.Context) (bool, error)
}

// Store keeps the stream's checkpoint outside the sink, with its history. The
// stream is the Store's own. All methods may be called concurrently.
type Store interface {
	// Load returns the stored checkpoint, ErrNoCheckpoint where there is none,
	// or ErrForeign where the value is not ours. Any other error is transient.
	Load(ctx context.Context) (Checkpoint, error)
	// Advance replaces from by to in one step and adds to to the history.
	// It succeeds iff nothing is stored, or to is after the stored version and
	// the stored change id is from's. A repetition of a successful Advance
	// (same version, cursor and session) succeeds and changes nothing. Otherwise
	// ErrConflict, or ErrForeign; then nothing has changed. Any other error
	// is transient and leaves the outcome unknown; repeating is safe. On nil
	// the new checkpoint is as durable as the server is configured to be.
	Advance(ctx context.Context, from, to Checkpoint) error
}

// Owner says which of several processes runs the stream. Safety does not
// depend on it: two who believe to own a stream fence each other. It only
// keeps them from trying. One goroutine calls it.
type Owner interface {
	// Acquire waits until the stream is this process's, as long as ctx allows
	// and however long its server is away. When ctx ends, the error is an
	// ErrNotOwner if another process is known to have the stream. What waiting
	// does not cure is a Permanent Fault.
	Acquire(ctx context.Context) (Ownership, error)
}

// Ownership is the time for which a stream is this process's. Its methods may
// be called concurrently.
type Ownership interface {
	// Lost is closed when the stream is to be let go: finish or drop what is
	// in hand and Release. Another process may wait for that, not for long.
	Lost() <-chan struct{}
	// Confirm asks whether the stream is still this process's. An error that
	// is ErrNotOwner says no; any other leaves it unknown.
	Confirm(ctx context.Context) error
	// Shared reports whether another process could run the stream. Where that
	// cannot be found out soon, it reports false.
	Shared(ctx context.Context) bool
	// Release lets the stream go and returns when another process can have
	// it, or after a few seconds. Only the first call counts.
	Release()
}

// Command is an operator's request to a running stream.
type Command struct {
	ID   string `json:"id"`   // of this request alone
	Kind Kind   `json:"kind"` // KindReset, KindPause or KindResume
	// BaseEpoch is the epoch the operator saw. Another epoch refuses.
	BaseEpoch int64 `json:"base_epoch"`
	// Target is where a reset goes.
	Target Target `json:"target"`
	// PausedUntil is as in Checkpoint, for KindPause.
	PausedUntil int64 `json:"paused_until,omitempty"`
	// Who asks, and the Reason, are for the history.
	Who    string `json:"who,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Deadline is the store's time, in milliseconds since the epoch, after
	// which the command must not be applied any more.
	Deadline int64 `json:"deadline"`
}

// Target is a position to reset to.
type Target struct {
	// Cursor, Tail and Carried are as in Checkpoint.
	Cursor  string `json:"cursor"`
	Tail    Tail   `json:"tail,omitempty"`
	Carried int    `json:"carried,omitempty"`
	// Start is used when Cursor is empty; see Origin.Start.
	Start int64 `json:"start,omitempty"`
	// Events and Pages are the counters at the target, 0 where unknown.
	Events int64 `json:"events,omitempty"`
	Pages  int64 `json:"pages,omitempty"`
	// Entry names the history entry it came from, if it did.
	Entry *Version `json:"entry,omitempty"`
}

// Answer is what became of a Command.
type Answer struct {
	// Applied is false where the request was refused.
	Applied bool `json:"applied"`
	// Detail says why not, or what was accepted with it, for people.
	Detail string `json:"detail,omitempty"`
	// By is the owner that answered, Version where the stream is then.
	By      string  `json:"by"`
	Version Version `json:"place"`
	At      int64   `json:"at"` // milliseconds since the epoch
}

// Claim says which session of a stream is about to decide about a Command.
type Claim struct {
	// Owner names the process, for people, Session its attempt.
	Owner, Session string
	// Over is another session that has claimed the command and can commit
	// nothing any more, or empty.
	Over string
}

// Claimed is how it stands with a Command after a Claim. It is zero where the
// command was withdrawn or answered.
type Claimed struct {
	// By is the session whose claim stands, or empty.
	By string
	// Late is true where the deadline has passed and no claim stands: nobody
	// may apply the command any more.
	Late bool
}

// Inbox brings the operator's commands to the stream's owner.
type Inbox interface {
	// Next waits for a command that has no answer yet. It returns the same
	// command again until it is answered or withdrawn. One caller at a time.
	Next(ctx context.Context) (Command, error)
	// Claim tells who asked that a session is about to decide about the
	// command, and returns whose claim stands: a claimed command cannot be
	// withdrawn. The claim of another session stands, unless it is the one
	// that by says is over. Past the deadline nobody can claim any more.
	// Claiming twice is the same as once.
	Claim(ctx context.Context, c Command, by Claim) (Claimed, error)
	// Answer records the answer for who asked and removes the command. The first
	// answer stands: a later one changes nothing and succeeds, and Answer returns
	// the first. A refusal, which is one that is not Applied, is an ErrConflict
	// and changes nothing while others may still apply the command: it counts
	// while the claim of its session stands, and past the deadline also where
	// none does or only one that by says is over.
	Answer(ctx context.Context, c Command, by Claim, a Answer) (Answer, error)
}

// Observer is told what happens, as it happens, on the goroutine where it
// happens: it must be quick, must not block, and may be called concurrently.
type Observer interface {
	Observe(o Observation)
}

// What names the thing observed.
type What string

// The observations. Fields not listed are zero.
const (
	// ObserveFetch: one request. Took, Code ("200", another status,
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
	// Receipt, Repeated, Shared, Vanished, Changed, Unaccounted, Times.
	ObserveCommit What = "commit"
	// ObserveRetry: a request or step will be tried again. Code, Took (the wait).
	ObserveRetry What = "retry"
	// ObserveReset: an operator's command was applied, or the stream left a
	// cursor that the API refuses. Code is its kind, or "refused-cursor".
	ObserveReset What = "reset"
	// ObserveState: the state changed. Code is the new one.
	ObserveState What = "state"
	// ObserveOwner: the stream became this process's, or is no longer. Code
	// ("owner" or "standby").
	ObserveOwner What = "owner"
	// ObserveRejected: a server refused what somebody else has overtaken. Code
	// is the dependency: DependencySink (fenced) or DependencyStore (conflict).
	ObserveRejected What = "rejected"
	// ObserveStuck: a page led nowhere. Code: "cycle", back to a page that was
	// read before, or "full-tail", a full page that names its own cursor as
	// the next and has nothing new.
	ObserveStuck What = "stuck"
	// ObserveTopic: something happened to a topic. Code: TopicLost, once for each
	// loss of what a checkpoint implies, or TopicGrew, partitions were added.
	ObserveTopic What = "topic"
)

// The codes of ObserveTopic.
const (
	TopicLost = "lost"
	TopicGrew = "partitions"
)

// Observation is one thing that happened to a stream.
type Observation struct {
	// Stream is whom it happened to. What says what happened, and which of the
	// fields below it sets.
	Stream string
	What   What
	// Took is how long it took, Code how it ended: one of few words.
	Took time.Duration
	Code string
	// Pages, Events and Bytes are how much it was, Receipt is the Sink's.
	Pages   int
	Events  int
	Bytes   int64
	Receipt Receipt
	// Repeated counts items dropped because the page repeated them, Shared those
	// that have an id which another item of the page has too, Vanished
	// tail items that did not come back, Changed tail items that came back
	// with other bytes.
	Repeated, Shared, Vanished, Changed int
	// Unaccounted counts events that were sent and that the receipt does not
	// name. It must be 0.
	Unaccounted int
	// Times are the times of some of the events, in milliseconds since the
	// epoch: all of a small page, evenly spread ones of a larger page. Valid
	// during the call.
	Times []int64
}
