package bridge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
)

// State is the state of a stream.
type State string

// The states of a stream.
const (
	StateStarting State = "starting"
	StateStandby  State = "standby" // another process runs the stream
	StateRunning  State = "running"
	StateIdle     State = "idle"    // caught up, waiting for the next poll
	StateBackoff  State = "backoff" // waiting to retry
	StatePaused   State = "paused"
	StateBlocked  State = "blocked" // needs an operator; retried at NextTry
	StateStopped  State = "stopped"
)

// States lists all states, for metrics.
var States = []State{
	StateStarting, StateStandby, StateRunning, StateIdle, StateBackoff, StatePaused, StateBlocked, StateStopped,
}

// Text returns the state for people. The values of StateIdle and StateBackoff are for JSON,
// metrics and spans.
func (s State) Text() string {
	switch s {
	case StateIdle:
		return "caught up"
	case StateBackoff:
		return "retrying"
	}
	return string(s)
}

// Contract is how an API marks the end of its results.
type Contract string

// The two public contracts, and a value for an unknown one.
const (
	ContractUnknown     Contract = ""
	ContractEmptyCursor Contract = "empty-cursor" // nextCursor is null, empty or absent
	ContractEmptyItems  Contract = "empty-items"  // every page has a cursor; a page without items is the end
)

// Status is a snapshot of one stream. status --json and /api/v1/status show its JSON
// form, and the store keeps it.
type Status struct {
	Stream string `json:"stream"`
	// Owner is the reporting process.
	Owner string `json:"owner"`
	State State  `json:"state"`
	// Reason, Error and Hint explain StateBackoff and StateBlocked.
	Reason Reason `json:"reason,omitempty"`
	Error  string `json:"error,omitempty"`
	Hint   string `json:"hint,omitempty"`
	// Since is when State began. NextTry is when the next request is sent; zero means at
	// once.
	Since   time.Time `json:"since"`
	NextTry time.Time `json:"next_try,omitzero"`
	// Overlap is the last overlap, read again after the API rejected a cursor.
	Overlap *Overlap `json:"overlap,omitempty"`
	// PausedUntil is that of the checkpoint, while the stream is paused.
	PausedUntil int64 `json:"paused_until,omitempty"`

	// Leader is true while this process owns the stream.
	Leader bool `json:"leader"`
	// Mode and Version are those of the checkpoint. CursorHash and CursorBytes describe its
	// cursor. TailItems counts its Tail.
	Mode        Mode    `json:"mode"`
	Version     Version `json:"place"`
	CursorHash  string  `json:"cursor_hash,omitempty"`
	CursorBytes int     `json:"cursor_bytes,omitempty"`
	TailItems   int     `json:"tail_items,omitempty"`

	// Events, Pages, Outside and the events Dropped by a route are those of the checkpoint.
	// The others count in this process: Published events, DeadLettered items, dropped items
	// that the API Repeated, Requests, and Failures since the last success.
	Events       int64 `json:"events"`
	Pages        int64 `json:"pages"`
	Outside      int64 `json:"outside_range,omitempty"`
	Published    int64 `json:"published"`
	DeadLettered int64 `json:"dead_lettered"`
	Dropped      int64 `json:"dropped_by_route,omitempty"`
	Repeated     int64 `json:"repeated"`
	// BorderRepeats counts the dropped items that were at the end of the page before, in
	// this process.
	BorderRepeats int64 `json:"border_repeats"`
	// Late counts the events that the API showed late, in this process.
	Late Late `json:"late_events,omitempty"`
	// FullPage is true while the last page was full and named no next page, or named
	// itself. The API may hold back more items.
	FullPage bool `json:"full_page_without_next,omitempty"`
	// OlderPage is true while the last page, which is not the first one, lists older items
	// and none that it listed before. The API may have forgotten the cursor.
	OlderPage bool `json:"older_page,omitempty"`
	// Warnings are reasons to doubt a healthy State. A stream with warnings is not shown as
	// healthy.
	Warnings []Warning `json:"warnings,omitempty"`
	Requests int64     `json:"requests"`
	Failures int64     `json:"consecutive_failures"`
	// Rate is events per second, averaged over the last ten seconds.
	Rate float64 `json:"rate"`
	// Pace is the seconds of the export per second, averaged over the same time. Above 1, a
	// stream that is behind catches up.
	Pace float64 `json:"pace"`

	// Position is the checkpoint's PositionTime, LastEvent its LastEventTime, and
	// LastCommit its WrittenAt. LastPoll is when a request last succeeded.
	Position   time.Time `json:"position,omitzero"`
	LastEvent  time.Time `json:"last_event,omitzero"`
	LastCommit time.Time `json:"last_commit,omitzero"`
	LastPoll   time.Time `json:"last_poll,omitzero"`
	// CaughtUp is true while the API has no more events. Contract is how the API marks
	// that, empty until it has done so.
	CaughtUp bool     `json:"caught_up"`
	Contract Contract `json:"contract,omitempty"`
	// Ended is why a bounded run or a window ended. EndedEmpty is the number of consecutive
	// empty pages that ended it, 0 if they did not. If it is not 0, the API has never
	// marked its end, and more events may follow.
	Ended      string `json:"ended,omitempty"`
	EndedEmpty int    `json:"ended_empty,omitempty"`
	// PrefetchedPages and PrefetchedBytes count pages that are fetched, but not
	// acknowledged by the sink.
	PrefetchedPages int   `json:"prefetched_pages"`
	PrefetchedBytes int64 `json:"prefetched_bytes"`
	// StoreLagPages counts the committed pages missing from the store, in exactly-once
	// mode.
	StoreLagPages int64 `json:"store_lag_pages"`

	// Attested is the last attested period. It is nil if the stream is not attested, or if
	// the period is unknown.
	Attested *Attested `json:"attested,omitempty"`

	// Schema is nil if events are not compared with a schema, or if the result is unknown.
	Schema *SchemaCheck `json:"schema,omitempty"`

	// Dependencies are keyed by DependencySource, DependencySink and
	// DependencyStore. A standby does not use the source.
	Dependencies map[string]Dependency `json:"dependencies,omitempty"`
}

// Attested is the last attested period of a stream.
type Attested struct {
	// Seq is the number of the record, 0 if there is none. The other fields are those of
	// the record.
	Seq     int64     `json:"seq"`
	From    time.Time `json:"from,omitzero"`
	To      time.Time `json:"to,omitzero"`
	Listed  int64     `json:"listed"`
	Missing int64     `json:"missing"`
	// Repaired counts the missing events that were published for the record.
	Repaired int64 `json:"repaired"`
	// Pending counts the periods that the stream's position has passed since To.
	Pending int64 `json:"pending"`
	// Error is why the next period is not attested, or empty. Hint tells the operator what
	// to do.
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
}

// Warnings returns the doubts about a stream that follow from its attestation.
func (a *Attested) Warnings(stream string) (all []Warning) {
	if a == nil {
		return nil
	}
	if a.Missing > 0 {
		from, to := a.From.Format(time.RFC3339), a.To.Format(time.RFC3339)
		all = append(all, Warning{
			Code: WarningAttestMissing,
			Text: fmt.Sprintf("%d of %d events from %s to %s are missing in the topic", a.Missing, a.Listed, from, to),
			Hint: fmt.Sprintf("exportbridge verify --stream %s --from %s --to %s --repair", stream, from, to),
		})
	}
	if a.Error != "" {
		all = append(all, Warning{WarningAttestFailed, "the next period is not attested: " + a.Error, a.Hint})
	}
	return all
}

// Codes of Warning, besides StuckFullPage and StuckOlder.
const (
	// WarningUnread: a last page has signs of a next one, or is the first page again, at its own cursor.
	WarningUnread = "unread_cursor"
	// WarningStart: the start of the stream is in the future by the API's clock.
	WarningStart = "future_start"
	// WarningGap: events may be missing, see Listing.Gap.
	WarningGap = "gap"
	// WarningAttestMissing: the last attested period lacks events. WarningAttestFailed: the
	// next period is not attested.
	WarningAttestMissing = "attest_missing"
	WarningAttestFailed  = "attest_failed"
	// WarningKeyless: none of the events of this run has a key.
	WarningKeyless = "keyless"
)

// Warning is a reason to doubt a healthy State.
type Warning struct {
	// Code is stable. Text says what was seen, and Hint what to do.
	Code string `json:"code"`
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"`
}

// EndDoubtful reports whether a warning says that more results may follow the end.
func (s *Status) EndDoubtful() bool {
	return slices.ContainsFunc(s.Warnings, func(w Warning) bool {
		return slices.Contains([]string{StuckFullPage, StuckOlder, WarningUnread, WarningStart}, w.Code)
	})
}

// ApplyDependencies turns a healthy state into StateBackoff while a server that the
// stream needs is not up.
func (s *Status) ApplyDependencies() {
	if !slices.Contains([]State{StateStarting, StateStandby, StateRunning, StateIdle}, s.State) {
		return
	}
	for _, name := range s.Down() {
		if name == DependencyStore && s.Mode == ExactlyOnce {
			continue // the store has a copy and the commands: events flow without it
		}
		d := s.Dependencies[name]
		s.State, s.Since, s.CaughtUp = StateBackoff, d.Since, false
		s.Error, s.Hint = name+" "+d.Trouble+": "+d.Error, d.Hint
		return
	}
}

// Down returns the names of the dependencies that are not up, in alphabetical order.
func (s *Status) Down() (names []string) {
	for name, d := range s.Dependencies {
		if !d.Up {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// DeadShare returns the share of dead letters in the events of this process, from 0 to 1.
func (s *Status) DeadShare() float64 {
	if s.DeadLettered == 0 {
		return 0
	}
	return float64(s.DeadLettered) / float64(s.DeadLettered+s.Published)
}

// Fenced reports whether another bridge has fenced this one off the stream. A fenced
// bridge applies no commands.
func (s *Status) Fenced() bool { return s.State == StateBlocked && s.Reason == ReasonOwner }

// Dependency is the availability of a server that the stream needs.
type Dependency struct {
	// Up and Trouble have not changed since Since. Trouble says in a few words why the
	// server is not up, for example "is down". Error is the full text, and Hint what to do.
	Up      bool      `json:"up"`
	Since   time.Time `json:"since"`
	Trouble string    `json:"trouble,omitempty"`
	Error   string    `json:"error,omitempty"`
	Hint    string    `json:"hint,omitempty"`
}

// troubleOf describes a server that fails with err. A server that answers is not down.
func troubleOf(name string, err error) string {
	f := FaultOf(err)
	status, _ := strconv.Atoi(f.Code) // 0 for other codes
	is := func(codes ...string) bool { return slices.Contains(codes, f.Code) }
	switch {
	case f.Reason == ReasonAuth && name == DependencySource:
		return "refuses the key"
	case f.Reason == ReasonAuth:
		return "refuses access"
	case is("tls"):
		return "fails the TLS handshake"
	case is("network") && f.Class == Permanent, is("request", "leak"):
		return "is not asked"
	case is("network", "timeout", "closed", "error"):
		return "is down"
	case is("decode", "schema", "size", "next_url"):
		return "sends no valid page"
	case status >= 300 && status < 400:
		return "redirects requests"
	case f.Class != Transient && f.Class != Throttled:
		return "refuses requests"
	}
	return "answers with errors"
}

// The names of a stream's dependencies.
const (
	DependencySource = "api"
	DependencySink   = "kafka"
	DependencyStore  = "redis"
)

// Health collects the availability of the servers, as the adapters report it. The zero
// value is ready to use. All methods may be called concurrently.
type Health struct {
	mu   sync.Mutex            // guards seen
	seen map[string]Dependency // replaced, never changed
}

// Reporter returns a function that the adapter of a dependency calls with nil after a
// good response, and with the error after a failure.
func (h *Health) Reporter(name string) func(error) {
	return func(err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		was, known := h.seen[name]
		now := Dependency{Up: err == nil, Since: was.Since}
		if err != nil {
			now.Trouble, now.Error, now.Hint = troubleOf(name, err), err.Error(), FaultOf(err).Hint
		}
		if !known || was.Trouble != now.Trouble {
			now.Since = time.Now()
		}
		if now == was {
			return // most requests change nothing
		}
		seen := make(map[string]Dependency, len(h.seen)+1)
		maps.Copy(seen, h.seen)
		seen[name] = now
		h.seen = seen
	}
}

// Snapshot returns the last reports by dependency. The caller must not change them.
func (h *Health) Snapshot() map[string]Dependency {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen
}

// MaxLanes is the maximum number of lanes of a job.
const MaxLanes = 256

// Member is a process in a stream's group, as the group coordinator reports it.
type Member struct {
	// Process is the name of the process in its checkpoints; empty if unknown, for example
	// during a rebalance.
	Process string `json:"process,omitempty"`
	// ClientID is the KAFKA_CLIENT_ID of the process.
	ClientID string `json:"client_id"`
	// Host is the address of the process as the brokers see it.
	Host string `json:"host"`
	// InstanceID is the BRIDGE_INSTANCE_ID of the process, or empty.
	InstanceID string `json:"instance_id,omitempty"`
	// Owner is true if the stream is assigned to the process. During a rebalance, it may be
	// true for no member.
	Owner bool `json:"owner"`
}

// String names the process for people.
func (m Member) String() string { return m.Name() + " at " + m.Host }

// Name returns the name of the process, or else its instance id or client id.
func (m Member) Name() string { return cmp.Or(m.Process, m.InstanceID, m.ClientID) }
