package engine

import (
	"maps"
	"time"

	"exportbridge/bridge"
)

// totals counts the work of this process. Owned by the commit loop.
type totals struct {
	published, deadLettered, repeated, atBorder, keyless int64
	late                                                 bridge.Late // nil if there are no late events
	rate                                                 rate
}

const rateSeconds = 10

// rate counts events by second, for an average over the last ten seconds, and records the
// position.
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

// over returns the events per second over the last ten whole seconds, and the pace: the
// seconds by which the position moved per second, between the first and the last commit
// of that time. The pace is 0 without two commits.
func (r *rate) over(now time.Time) (perSecond, pace float64) {
	var first, last, from, to int64
	for i, second := range r.second {
		if second < now.Unix()-rateSeconds {
			continue
		}
		if second < now.Unix() {
			perSecond += float64(r.events[i]) / rateSeconds
		}
		if r.position[i] == 0 {
			continue
		}
		if first == 0 || second < first {
			first, from = second, r.position[i]
		}
		if second > last {
			last, to = second, r.position[i]
		}
	}
	if last > first && to >= from {
		pace = float64(to-from) / 1000 / float64(last-first)
	}
	return perSecond, pace
}

// Status returns a snapshot of the stream. It may be called concurrently, at
// any time.
func (e *Engine) Status() bridge.Status {
	v := e.view.Load()
	s := v.status
	s.Rate, s.Pace = v.rate.over(time.Now())
	s.PrefetchedPages, s.PrefetchedBytes = int(e.load.pages.Load()), e.load.bytes.Load()
	s.Requests, s.StoreLagPages = e.load.requests.Load(), e.load.lagPages.Load()
	if ms := e.load.lastPoll.Load(); ms > 0 {
		s.LastPoll = time.UnixMilli(ms)
	}
	if e.ports.Health != nil {
		s.Dependencies = e.ports.Health.Snapshot()
		if s.State == bridge.StateStandby {
			// A standby does not use the API, so its last report is outdated.
			s.Dependencies = maps.Clone(s.Dependencies)
			delete(s.Dependencies, bridge.DependencySource)
		}
		s.ApplyDependencies()
	}
	return s
}

// Leads is Leader of the status. It may be called at any time.
func (e *Engine) Leads() bool { return e.view.Load().status.Leader }

// view is the commit loop's published state.
type view struct {
	status bridge.Status
	rate   rate
}

// setState changes the state and logs each change once.
func (f *follower) setState(state bridge.State, fault *bridge.Fault) {
	was, since := f.state, f.since
	changed := state != f.state || fault != nil && (f.fault == nil || fault.Error() != f.fault.Error())
	if state != f.state {
		f.since = time.Now()
		switch { // a caught-up stream stays so while it reads new events for less than a minute
		case f.state == bridge.StateIdle && state == bridge.StateRunning:
			f.readingSince = f.since
		case state != bridge.StateIdle || f.since.Sub(f.readingSince) > time.Minute:
			f.idleSince, f.readingSince = f.since, time.Time{}
		default:
			f.since = f.idleSince
		}
		f.e.observe(bridge.Observation{What: bridge.ObserveState, Code: string(state)})
	}
	f.state, f.fault = state, fault
	f.publishStatus()
	if !changed {
		return
	}
	switch {
	case fault == nil && (was == bridge.StateBlocked || was == bridge.StateBackoff) && state != bridge.StateStopped &&
		state != bridge.StateStandby:
		f.log.Info("recovered", "after", time.Since(since).Round(time.Millisecond).String(), "was", was.Text())
	case fault == nil:
		f.log.Debug("state", "state", state.Text())
	case state == bridge.StateBlocked:
		f.log.Error("blocked", f.e.cfg.faultAttrs(fault, "reason", string(fault.Reason),
			"next_try_in", time.Until(f.schedule.due).Round(time.Second).String())...)
	default:
		f.log.Warn("retrying", f.e.cfg.faultAttrs(fault, "in", time.Until(f.schedule.due).Round(time.Millisecond).String(),
			"failures", f.schedule.fetches.n+f.schedule.sessions.n)...)
	}
}

// faultAttrs adds the fault to a log record.
func (c *Config) faultAttrs(fault *bridge.Fault, more ...any) []any {
	more = append(more, "error", fault.Error())
	if hint := c.hintOf(fault); hint != "" {
		more = append(more, "hint", hint)
	}
	return more
}

// publishStatus makes the loop's state visible to Status.
func (f *follower) publishStatus() {
	s := bridge.Status{
		Stream: f.e.cfg.Stream, Owner: f.e.cfg.Owner, State: f.state, Since: f.since, Mode: f.e.cfg.Mode,
		Leader:  f.ownership.active,
		Version: f.committed.Version, CursorHash: bridge.CursorHash(f.committed.Cursor),
		CursorBytes: len(f.committed.Cursor), TailItems: len(f.committed.Tail),
		Events: f.committed.Events, Pages: f.committed.Pages, Outside: f.committed.Outside,
		Dropped: f.committed.Dropped, Published: f.run.totals.published, DeadLettered: f.run.totals.deadLettered,
		Repeated: f.run.totals.repeated, BorderRepeats: f.run.totals.atBorder, Late: maps.Clone(f.run.totals.late),
		FullPage: f.last.FullEnd, OlderPage: f.at.Trusted != 0,
		Failures: int64(f.schedule.fetches.n + f.schedule.sessions.n),
		Overlap:  f.committed.Overlap,
		Warnings: f.warnings(&f.e.cfg, &f.run.totals),
		CaughtUp: f.state == bridge.StateIdle, Contract: f.run.contract, Ended: f.run.ended, EndedEmpty: f.run.endedEmpty,
		Position: bridge.Instant(f.at.PositionTime), LastEvent: bridge.Instant(f.committed.LastEventTime),
		LastCommit: f.run.committed,
	}
	if f.fault != nil {
		s.Reason, s.Error, s.Hint = f.fault.Reason, f.fault.Error(), f.e.cfg.hintOf(f.fault)
	}
	if f.state == bridge.StateIdle || f.state == bridge.StateBackoff || f.state == bridge.StateBlocked {
		s.NextTry = f.schedule.due
	}
	if f.state == bridge.StatePaused {
		s.PausedUntil = f.committed.PausedUntil
	}
	f.e.view.Store(&view{status: s, rate: f.run.totals.rate})
}
