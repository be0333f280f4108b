package bridge

import (
	"sync"
	"time"
)

// State is what a stream is doing.
type State string

// The states of a stream.
const (
	StateStarting State = "starting"
	StateRunning  State = "running"
	StateIdle     State = "idle"    // caught up, waiting to ask again
	StateBackoff  State = "backoff" // waiting to retry
	StatePaused   State = "paused"
	StateBlocked  State = "blocked" // needs somebody; probed once a minute
	StateStopped  State = "stopped"
)

// States lists all states, for metrics.
var States = []State{StateStarting, StateRunning, StateIdle, StateBackoff, StatePaused, StateBlocked, StateStopped}

// Contract is how the API marks the end of the results.
type Contract string

// The two public contracts, and not yet seen.
const (
	ContractUnknown     Contract = ""
	ContractEmptyCursor Contract = "empty-cursor" // nextCursor is null, empty or absent
	ContractEmptyItems  Contract = "empty-items"  // a cursor always comes; no items means the end
)

// Status is a snapshot of one stream. Its JSON form is what status --json,
// the store and /api/v1/status show.
type Status struct {
	Stream string `json:"stream"`
	Owner  string `json:"owner"`
	State  State  `json:"state"`
	// Reason, Error and Hint explain StateBackoff and StateBlocked.
	Reason Reason `json:"reason,omitempty"`
	Error  string `json:"error,omitempty"`
	Hint   string `json:"hint,omitempty"`
	// Since is when State began; NextTry when the next request leaves, zero
	// when at once.
	Since   time.Time `json:"since"`
	NextTry time.Time `json:"next_try,omitzero"`

	Mode        Mode   `json:"mode"`
	Place       Place  `json:"place"`
	CursorHash  string `json:"cursor_hash,omitempty"`
	CursorBytes int    `json:"cursor_bytes,omitempty"`
	TailItems   int    `json:"tail_items,omitempty"`

	// Events and Pages are the checkpoint's; the others count this process.
	Events       int64 `json:"events"`
	Pages        int64 `json:"pages"`
	Published    int64 `json:"published"`
	DeadLettered int64 `json:"dead_lettered"`
	Repeated     int64 `json:"repeated"`
	Requests     int64 `json:"requests"`
	Failures     int64 `json:"consecutive_failures"`
	// Rate is events a second, averaged over the last ten seconds.
	Rate float64 `json:"rate"`

	Position   time.Time `json:"position,omitzero"`
	LastEvent  time.Time `json:"last_event,omitzero"`
	LastCommit time.Time `json:"last_commit,omitzero"`
	LastPoll   time.Time `json:"last_poll,omitzero"`
	CaughtUp   bool      `json:"caught_up"`
	Contract   Contract  `json:"contract,omitempty"`
	// PrefetchedPages and PrefetchedBytes are fetched and not yet committed.
	PrefetchedPages int   `json:"prefetched_pages"`
	PrefetchedBytes int64 `json:"prefetched_bytes"`

	Dependencies map[string]Dependency `json:"dependencies,omitempty"`
}

// Dependency is whether a server that the stream needs answers.
type Dependency struct {
	Up    bool      `json:"up"`
	Since time.Time `json:"since"`
	Error string    `json:"error,omitempty"`
}

// Health collects what the adapters see of their servers. The zero value is
// ready; all methods may be called concurrently.
type Health struct {
	mu   sync.Mutex // guards seen
	seen map[string]Dependency
}

// Reporter returns a function for one dependency's adapter to call: with nil
// when the server answered, with the error when it did not.
func (h *Health) Reporter(name string) func(error) {
	return func(err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.seen == nil {
			h.seen = make(map[string]Dependency)
		}
		was, known := h.seen[name]
		now := Dependency{Up: err == nil, Since: was.Since}
		if err != nil {
			now.Error = err.Error()
		}
		if !known || was.Up != now.Up {
			now.Since = time.Now()
		}
		h.seen[name] = now
	}
}

// Snapshot returns what was reported last, by dependency.
func (h *Health) Snapshot() map[string]Dependency {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[string]Dependency, len(h.seen))
	for k, v := range h.seen {
		out[k] = v
	}
	return out
}
