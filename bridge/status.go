package bridge

import (
	"maps"
	"slices"
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
	StateIdle     State = "idle"    // caught up, waiting to ask again
	StateBackoff  State = "backoff" // waiting to retry
	StatePaused   State = "paused"
	StateBlocked  State = "blocked" // needs somebody; probed once a minute
	StateStopped  State = "stopped"
)

// States lists all states, for metrics.
var States = []State{StateStarting, StateStandby, StateRunning, StateIdle, StateBackoff, StatePaused, StateBlocked, StateStopped}

// Contract is how an API marks the end of its results.
type Contract string

// The two public contracts, and not yet seen.
const (
	ContractUnknown     Contract = ""
	ContractEmptyCursor Contract = "empty-cursor" // nextCursor is null, empty or absent
	ContractEmptyItems  Contract = "empty-items"  // a cursor always comes; no items means the end
)

// Status is a snapshot of one stream. Its JSON form is shown by status --json
// and /api/v1/status and kept in the store.
type Status struct {
	// Owner is the reporting process.
	Stream string `json:"stream"`
	Owner  string `json:"owner"`
	State  State  `json:"state"`
	// Reason, Error and Hint explain StateBackoff and StateBlocked.
	Reason Reason `json:"reason,omitempty"`
	Error  string `json:"error,omitempty"`
	Hint   string `json:"hint,omitempty"`
	// Since is when State began, NextTry when the next request is sent, zero
	// for at once.
	Since   time.Time `json:"since"`
	NextTry time.Time `json:"next_try,omitzero"`
	// Overlap is the last overlap, read again after the API rejected a cursor.
	Overlap *Overlap `json:"overlap,omitempty"`
	// PausedUntil is the checkpoint's, while the stream is paused.
	PausedUntil int64 `json:"paused_until,omitempty"`

	// Leader is true while this process owns the stream.
	Leader bool `json:"leader"`
	// Mode and Version are the checkpoint's. CursorHash and CursorBytes
	// describe its cursor, TailItems counts its Tail.
	Mode        Mode    `json:"mode"`
	Version     Version `json:"place"`
	CursorHash  string  `json:"cursor_hash,omitempty"`
	CursorBytes int     `json:"cursor_bytes,omitempty"`
	TailItems   int     `json:"tail_items,omitempty"`

	// Events and Pages are the checkpoint's; the others count this process:
	// Published events, DeadLettered items, items Repeated by the API and
	// dropped, Requests, and how many Failures there were since the last success.
	Events       int64 `json:"events"`
	Pages        int64 `json:"pages"`
	Published    int64 `json:"published"`
	DeadLettered int64 `json:"dead_lettered"`
	Repeated     int64 `json:"repeated"`
	Requests     int64 `json:"requests"`
	Failures     int64 `json:"consecutive_failures"`
	// Rate is events a second, averaged over the last ten seconds.
	Rate float64 `json:"rate"`
	// Pace is how many seconds of the export pass in one second, over the same
	// time: a stream that is behind catches up above 1.
	Pace float64 `json:"pace"`

	// Position is the checkpoint's PositionTime, LastEvent its LastEventTime.
	// LastCommit is when it was written, LastPoll when a request last succeeded.
	Position   time.Time `json:"position,omitzero"`
	LastEvent  time.Time `json:"last_event,omitzero"`
	LastCommit time.Time `json:"last_commit,omitzero"`
	LastPoll   time.Time `json:"last_poll,omitzero"`
	// CaughtUp is true while the API has nothing more. Contract is how it says
	// so, empty until it has.
	CaughtUp bool     `json:"caught_up"`
	Contract Contract `json:"contract,omitempty"`
	// Ended is why a bounded run or a window ended.
	Ended string `json:"ended,omitempty"`
	// PrefetchedPages and PrefetchedBytes are fetched but not yet acknowledged
	// by the sink.
	PrefetchedPages int   `json:"prefetched_pages"`
	PrefetchedBytes int64 `json:"prefetched_bytes"`
	// StoreLagPages counts the committed pages missing from the store, exactly
	// once.
	StoreLagPages int64 `json:"store_lag_pages"`

	// Dependencies are keyed by DependencySource, DependencySink and
	// DependencyStore. A standby does not use the source.
	Dependencies map[string]Dependency `json:"dependencies,omitempty"`
}

// Dependency is the availability of a server that the stream needs.
type Dependency struct {
	// Up holds since Since; Error is why the server is down.
	Up    bool      `json:"up"`
	Since time.Time `json:"since"`
	Error string    `json:"error,omitempty"`
}

// The names of a stream's dependencies.
const (
	DependencySource = "api"
	DependencySink   = "kafka"
	DependencyStore  = "redis"
)

// Health collects the availability of the servers, as the adapters report it.
// The zero value is ready to use; all methods may be called concurrently.
type Health struct {
	mu   sync.Mutex // guards seen
	seen map[string]Dependency
}

// Reporter returns a function for one dependency's adapter to call: with nil
// after a response, with the error after a failure.
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

// Snapshot returns the last reports by dependency.
func (h *Health) Snapshot() map[string]Dependency {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.seen)
}

// totals counts the work of this process. Owned by the commit loop.
type totals struct {
	published, deadLettered, repeated int64
	rate                              rate
}

const rateSeconds = 10

// rate counts events by second, for an average over the last ten, and notes
// the position.
type rate struct {
	second   [rateSeconds + 1]int64
	events   [rateSeconds + 1]int
	position [rateSeconds + 1]int64 // milliseconds since the epoch, 0 if unknown
}

func (r *rate) add(now time.Time, events int, position int64) {
	s := now.Unix()
	i := s % int64(len(r.second))
	if r.second[i] != s {
		r.second[i], r.events[i] = s, 0
	}
	r.events[i] += events
	r.position[i] = position
}

// speed returns how many seconds the position moved in one, from the first to
// the last commit of the last ten seconds; 0 where there are not two.
func (r *rate) speed(now time.Time) float64 {
	var first, last, from, to int64
	for i, second := range r.second {
		if second < now.Unix()-rateSeconds || r.position[i] == 0 {
			continue
		}
		if first == 0 || second < first {
			first, from = second, r.position[i]
		}
		if second > last {
			last, to = second, r.position[i]
		}
	}
	if last == first || to < from {
		return 0
	}
	return float64(to-from) / 1000 / float64(last-first)
}

// at returns the events a second over the last ten whole seconds.
func (r *rate) at(now time.Time) float64 {
	s, sum := now.Unix(), 0
	for i, second := range r.second {
		if second < s && second >= s-rateSeconds {
			sum += r.events[i]
		}
	}
	return float64(sum) / rateSeconds
}

// Status returns a snapshot of the stream. It may be called concurrently, at
// any time.
func (b *Bridge) Status() Status {
	v := b.view.Load()
	s, now := v.status, time.Now()
	s.Rate, s.Pace = v.rate.at(now), v.rate.speed(now)
	s.PrefetchedPages, s.PrefetchedBytes = int(b.load.pages.Load()), b.load.bytes.Load()
	s.Requests, s.StoreLagPages = b.load.requests.Load(), b.load.lagPages.Load()
	if ms := b.load.lastPoll.Load(); ms > 0 {
		s.LastPoll = time.UnixMilli(ms)
	}
	if b.ports.Health != nil {
		s.Dependencies = b.ports.Health.Snapshot()
		if s.State == StateStandby {
			// A standby does not use the API: its last report is outdated.
			delete(s.Dependencies, DependencySource)
		}
		s.applyDependencies()
	}
	return s
}

// applyDependencies turns a healthy state into back-off while the stream waits
// for an unreachable server.
func (s *Status) applyDependencies() {
	if !slices.Contains([]State{StateStarting, StateStandby, StateRunning, StateIdle}, s.State) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.Dependencies)) {
		if name == DependencyStore && s.Mode == ExactlyOnce {
			continue // a copy and the commands; the events flow without it
		}
		if d := s.Dependencies[name]; !d.Up {
			s.State, s.Since, s.CaughtUp = StateBackoff, d.Since, false
			s.Error = name + " does not answer: " + d.Error
			return
		}
	}
}

// view is the commit loop's published state.
type view struct {
	status Status
	rate   rate
}

// setState changes the state and logs each change once.
func (f *follower) setState(state State, fault *Fault) {
	was, since := f.state, f.since
	changed := state != f.state || fault != nil && (f.fault == nil || fault.Error() != f.fault.Error())
	if state != f.state {
		f.since = time.Now()
		f.b.observe(Observation{What: ObserveState, Code: string(state)})
	}
	f.state, f.fault = state, fault
	f.publishStatus()
	if !changed {
		return
	}
	switch {
	case fault == nil && (was == StateBlocked || was == StateBackoff) && state != StateStopped && state != StateStandby:
		f.log.Info("recovered", "after", time.Since(since).Round(time.Millisecond).String(), "was", string(was))
	case fault == nil:
		f.log.Debug("state", "state", string(state))
	case state == StateBlocked:
		f.log.Error("blocked", f.b.cfg.faultAttrs(fault, "reason", string(fault.Reason), "next_try_in", time.Until(f.schedule.due).Round(time.Second).String())...)
	default:
		f.log.Warn("retrying", f.b.cfg.faultAttrs(fault, "in", time.Until(f.schedule.due).Round(time.Millisecond).String(), "failures", f.schedule.fetches.n+f.schedule.sessions.n)...)
	}
}

// faultAttrs adds the fault to a log record.
func (c *Config) faultAttrs(fault *Fault, more ...any) []any {
	more = append(more, "error", fault.Error())
	if hint := c.hintOf(fault); hint != "" {
		more = append(more, "hint", hint)
	}
	return more
}

// publishStatus makes the loop's state visible to Status.
func (f *follower) publishStatus() {
	s := Status{
		Stream: f.b.cfg.Stream, Owner: f.b.cfg.Owner, State: f.state, Since: f.since, Mode: f.b.cfg.Mode, Leader: f.ownership.active,
		Version: f.at.cp.Version, CursorHash: CursorHash(f.at.cp.Cursor), CursorBytes: len(f.at.cp.Cursor), TailItems: len(f.at.cp.Tail),
		Events: f.at.cp.Events, Pages: f.at.cp.Pages,
		Published: f.run.totals.published, DeadLettered: f.run.totals.deadLettered, Repeated: f.run.totals.repeated,
		Failures: int64(f.schedule.fetches.n + f.schedule.sessions.n),
		Overlap:  f.at.cp.Overlap,
		CaughtUp: f.state == StateIdle, Contract: f.run.contract, Ended: f.run.ended,
		Position: instant(f.at.head.PositionTime), LastEvent: instant(f.at.cp.LastEventTime), LastCommit: f.run.committed,
	}
	if f.fault != nil {
		s.Reason, s.Error, s.Hint = f.fault.Reason, f.fault.Error(), f.b.cfg.hintOf(f.fault)
	}
	if f.state == StateIdle || f.state == StateBackoff || f.state == StateBlocked {
		s.NextTry = f.schedule.due
	}
	if f.state == StatePaused {
		s.PausedUntil = f.at.cp.PausedUntil
	}
	f.b.view.Store(&view{status: s, rate: f.run.totals.rate})
}

func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
