package ops

import (
	"context"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/control"
	"exportbridge/bridge/deadletter"
)

// Controller shows and changes one stream, by the contract of control.Controller.
// All methods may be called concurrently.
type Controller interface {
	Status(ctx context.Context) control.Report
	Glance(ctx context.Context) control.Report
	History(ctx context.Context, q bridge.HistoryQuery) (control.History, error)
	Plan(ctx context.Context, to control.Target) (*control.Move, error)
	Move(ctx context.Context, m *control.Move, by control.Request) (control.Done, error)
	Pause(ctx context.Context, by control.Request, length time.Duration) (control.Done, error)
	Resume(ctx context.Context, by control.Request) (control.Done, error)
}

// Records reads dead letters and jobs. All methods may be called concurrently.
type Records interface {
	// DeadLetters returns the newest dead letters of a stream, newest first, limit
	// at most.
	DeadLetters(ctx context.Context, stream string, limit int) ([]deadletter.DeadLetter, error)
	// Jobs returns the backfills and replays of all streams. If a job of a stream is of a newer
	// version, it returns those of the other streams, and an error.
	Jobs(ctx context.Context) ([]backfill.Listed, error)
}

// deadLetters are the newest dead letters of a stream.
type deadLetters struct {
	DeadLetters []deadLetter `json:"letters"` // newest first, at most the requested number
	// Total is the number of DeadLetters. More is true if there are older dead letters.
	Total int  `json:"total"`
	More  bool `json:"more"`
}

// deadLetter is a dead letter, without its item, id and key.
type deadLetter struct {
	// Partition and Offset locate the record, Time is its timestamp.
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Time      time.Time `json:"time"`
	// Reason is the code of the item's defect, Message describes the defect.
	// CursorHash identifies the cursor of the item's page.
	Reason     bridge.Defect `json:"reason"`
	Message    string        `json:"message"`
	CursorHash string        `json:"cursor_hash"`
	// Index is the item's place on its page, from 0; Bytes its size.
	Index int `json:"index"`
	Bytes int `json:"bytes"`
	// Headers are as in deadletter.DeadLetter.
	Headers map[string]string `json:"headers,omitempty"`
}

func deadLettersOf(all []deadletter.DeadLetter, limit int) deadLetters {
	n := min(limit, len(all))
	found := deadLetters{DeadLetters: make([]deadLetter, n), Total: n, More: len(all) > n}
	for i := range found.DeadLetters {
		l := &all[i]
		found.DeadLetters[i] = deadLetter{
			Partition: l.Partition, Offset: l.Offset, Time: l.Time.UTC(), Reason: l.Reason, Message: l.Message,
			CursorHash: l.CursorHash, Index: l.Index, Bytes: l.Size, Headers: l.Headers,
		}
	}
	return found
}

// Done is a change that was applied.
type Done struct {
	// Applied and By are those of bridge.Answer. Version is the stream's version after
	// the change, At the time of the answer.
	Applied bool   `json:"applied"`
	By      string `json:"by"`
	bridge.Version
	At time.Time `json:"at"`
}
