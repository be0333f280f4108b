package ops

import (
	"context"
	"time"

	"exportbridge/bridge"
)

// Desk answers what the server is asked about the streams, and steers them. All
// methods may be called concurrently. An error that is an *Error decides the
// status of the answer, a *bridge.Fault says that a server is away.
type Desk interface {
	// Reports returns what is known of every stream. What cannot be found out
	// is a note of the report.
	Reports(ctx context.Context) ([]Report, error)
	// History returns committed cursors, newest first.
	History(ctx context.Context, stream string, q HistoryQuery) (History, error)
	// Letters returns the newest dead letters, newest first, limit at most.
	Letters(ctx context.Context, stream string, limit int) (Letters, error)
	// Jobs returns the backfills and replays of all streams.
	Jobs(ctx context.Context) ([]Job, error)
	// Plan says what a move would do. It changes nothing.
	Plan(ctx context.Context, stream string, to Destination) (Plan, error)
	// Do has the stream's owner carry out an order, and returns when that has
	// acknowledged it. An order that is refused is an *Error with status 409.
	// After any other error nothing was changed, or the error says that this
	// is not known.
	Do(ctx context.Context, stream string, o Order) (Done, error)
}

// HistoryQuery selects entries of the history.
type HistoryQuery struct {
	// Since leaves out what was committed before; zero is all.
	Since time.Time
	// Limit is the number of entries at most.
	Limit int
}

// The sources of a History.
const (
	SourceRedis = "redis"
	SourceKafka = "kafka"
)

// History is a part of the committed cursors of a stream.
type History struct {
	// Source is where the newest entries are from: Kafka's checkpoint topic
	// where Redis has none or does not answer. Note says what is missing.
	Source  string         `json:"source"`
	Note    string         `json:"note,omitempty"`
	Entries []HistoryEntry `json:"entries"` // newest first
}

// HistoryEntry is one committed cursor, without the cursor itself.
type HistoryEntry struct {
	bridge.Place
	// Parent is the entry before it, empty where that is not known.
	Parent string `json:"parent,omitempty"`
	// At is when it was committed; Kind, Events, Pages, CursorHash, Position and
	// Change are the checkpoint's.
	At         time.Time      `json:"at"`
	Kind       bridge.Kind    `json:"kind"`
	Events     int64          `json:"events"`
	Pages      int64          `json:"pages"`
	CursorHash string         `json:"cursor_hash"`
	Position   time.Time      `json:"position,omitzero"`
	Change     *bridge.Change `json:"change"`
}

// Letters are dead letters of a stream.
type Letters struct {
	Letters []Letter `json:"letters"` // newest first, as many as were asked for
	// Total is how many there are. Counting ends at MaxLetters.
	Total int `json:"total"`
}

// MaxLetters is how many dead letters are counted at most.
const MaxLetters = 1000

// Letter is a dead letter, without its item and key.
type Letter struct {
	// Partition and Offset are where it is, Time is when it was written.
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Time      time.Time `json:"time"`
	// Reason is what was wrong with the item in a word, Message the same for
	// people, CursorHash tells the cursor of its page from others.
	Reason     bridge.Defect `json:"reason"`
	Message    string        `json:"message"`
	CursorHash string        `json:"cursor_hash"`
	// Index is the item's place on its page, from 0; Bytes its size.
	Index int `json:"index"`
	Bytes int `json:"bytes"`
}

// Job is a backfill or replay.
type Job struct {
	// ID is what commands call it, Kind "backfill" or "replay", Stream whose
	// export it reads.
	ID     string `json:"id"`
	Kind   string `json:"kind"`
	Stream string `json:"stream"`
	// State is running, interrupted, done or cancelled.
	State string `json:"state"`
	// Topic is where it publishes the events from From on and before To.
	Topic string    `json:"topic"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	// Windows is how many parts the job has, Done how many are finished, Events
	// how many it has passed.
	Windows int   `json:"windows"`
	Done    int   `json:"done"`
	Events  int64 `json:"events"`
	// Progress is how far the windows are in time, from 0 to 1.
	Progress float64 `json:"progress"`
}

// Destination is where a move goes. Exactly one field is set.
type Destination struct {
	// Entry names an entry of the history, as 3.12.
	Entry string `json:"entry"`
	// Datetime is the newest commit at or before this time.
	Datetime time.Time `json:"datetime"`
	// Shift is so many pages back, below 0.
	Shift int64 `json:"shift"`
	// Earliest is the first event of the export, Current where the stream is,
	// with the topics as they are now, Latest what comes from now on.
	Earliest bool `json:"earliest"`
	Current  bool `json:"current"`
	Latest   bool `json:"latest"`
}

// Spot is one end of a move.
type Spot struct {
	// Place is nil where no commit was, as after a reset.
	*bridge.Place
	// Text says where it is, for people.
	Text string `json:"text"`
	// The others are as in HistoryEntry, zero where they are not known.
	At         time.Time `json:"at,omitzero"`
	Position   time.Time `json:"position,omitzero"`
	Events     int64     `json:"events,omitempty"`
	Pages      int64     `json:"pages,omitempty"`
	CursorHash string    `json:"cursor_hash,omitempty"`
}

// Plan is what a move would do.
type Plan struct {
	// Stream would be moved From where it is To there.
	Stream string `json:"stream"`
	From   Spot   `json:"from"`
	To     Spot   `json:"to"`
	// AgainEvents and AgainPages will be published again, -1 where that cannot
	// be known.
	AgainEvents int64 `json:"again_events"`
	AgainPages  int64 `json:"again_pages"`
	// Guarantee says what consumers must expect, Notes what else is to be known.
	Guarantee string `json:"guarantee"`
	// BaseEpoch is the epoch that the plan was made for. A move that was
	// planned for another one is refused.
	BaseEpoch int64    `json:"base_epoch"`
	Notes     []string `json:"notes,omitempty"`
}

// Order is what somebody wants done.
type Order struct {
	// Kind is KindPause, KindResume or KindReset.
	Kind bridge.Kind
	// Who asks and why, for the history.
	Who, Reason string
	// For is how long a pause lasts; 0 is until it is resumed.
	For time.Duration
	// To is where a reset goes, BaseEpoch the epoch of its plan.
	To        Destination
	BaseEpoch int64
}

// Done is an order that was carried out.
type Done struct {
	// Applied and By are as in bridge.Answer, the Place is where the stream is
	// then, At when it was answered.
	Applied bool   `json:"applied"`
	By      string `json:"by"`
	bridge.Place
	At time.Time `json:"at"`
}

// Error is an error that is answered with a status of its own.
type Error struct {
	// Status is an HTTP status, 400 or above.
	Status int
	// Err is what is answered.
	Err error
	// Hint says what to do, empty for nothing.
	Hint string
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }
