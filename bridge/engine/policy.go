package engine

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"exportbridge/bridge"
)

const (
	retryBase     = 500 * time.Millisecond
	probeInterval = time.Minute
	// triesBeforeBlock is the number of requests before a fault that may be temporary
	// blocks the stream.
	triesBeforeBlock = 3
	// heartbeatInterval is the shortest time between a commit and the next heartbeat, and
	// quietHeartbeat the longest: the wait doubles while a stream has nothing to commit. A
	// cursor that moves past empty pages is committed after heartbeatInterval, so that a
	// restart sends a fresh cursor.
	heartbeatInterval = 30 * time.Second
	quietHeartbeat    = 5 * time.Minute
	// emptyCommit is the shortest time between two commits that only move the cursor past
	// empty pages while the export continues.
	emptyCommit = time.Second
)

// badCursorWaits spreads the three requests with a rejected cursor over most of a minute.
var badCursorWaits = [triesBeforeBlock - 1]time.Duration{10 * time.Second, 30 * time.Second}

// retries counts the consecutive failures of one kind of step. Owned by the commit loop.
type retries struct {
	max    time.Duration
	class  bridge.Class
	reason bridge.Reason
	n      int
}

// verdict is the reaction to a fault.
type verdict struct {
	wait    time.Duration
	blocked bool
	// crossCheck requires a request without a cursor before the cursor is treated as
	// invalid: in an outage an API may answer every request with 404.
	crossCheck bool
}

func (r *retries) reset() { r.n = 0 }

// blocks reports whether one more malformed f blocks the stream.
func (r *retries) blocks(f *bridge.Fault) bool {
	return f.Class == r.class && f.Reason == r.reason && r.n >= triesBeforeBlock-1
}

// after counts a failure and returns the verdict.
func (r *retries) after(f *bridge.Fault) verdict {
	if f.Unsent && f.Class == bridge.Throttled { // no request was sent, so the state of the API is unknown
		return verdict{wait: f.RetryAfter + rand.N(f.RetryAfter/10+time.Millisecond)}
	}
	if f.Class != r.class || f.Reason != r.reason {
		r.n = 0
	}
	r.class, r.reason = f.Class, f.Reason
	r.n++
	switch f.Class {
	case bridge.Permanent:
		return verdict{wait: cmp.Or(f.RetryAfter, probeInterval), blocked: true}
	case bridge.Malformed:
		if r.n >= triesBeforeBlock {
			return verdict{wait: probeInterval, blocked: true}
		}
		return verdict{wait: backoff(r.n+1, r.max)}
	case bridge.BadCursor:
		if r.n >= triesBeforeBlock {
			return verdict{crossCheck: true}
		}
		return verdict{wait: badCursorWaits[r.n-1]}
	case bridge.Throttled:
		if f.RetryAfter > 0 {
			return verdict{wait: f.RetryAfter + rand.N(f.RetryAfter/10+time.Millisecond)}
		}
		return verdict{wait: max(retryBase, backoff(r.n, r.max))}
	default:
		return verdict{wait: max(f.RetryAfter, backoff(r.n, r.max))}
	}
}

// backoff returns the full-jitter exponential wait before try n+1: a random time up to base
// * 2^n, at most limit. Full jitter keeps many bridges from retrying in step.
func backoff(n int, limit time.Duration) time.Duration {
	ceiling := limit
	if n < 16 {
		ceiling = min(limit, retryBase<<(n-1))
	}
	return rand.N(ceiling + 1)
}

// schedule says when the next step is due, and what delays it. It is reset when the stream
// is moved or ownership changes. Owned by the commit loop.
type schedule struct {
	due       time.Time
	fetches   retries
	sessions  retries
	polls     polls
	newEvents bool // events were committed since the last poll
	// suspect is the fault of a cursor while a request without a cursor must show whether
	// the API works at all.
	suspect *bridge.Fault
	// outage is the fault of the last request without a cursor, until a page arrives.
	outage *bridge.Fault
}

// newSchedule returns a schedule whose next step is due at once.
func newSchedule(c *Config) schedule {
	return schedule{
		due: time.Now(), fetches: retries{max: c.RetryMax}, sessions: retries{max: c.RetryMax},
		polls: polls{pace: paceOf(c.Stream), least: c.PollInterval, most: c.PollIntervalMax},
	}
}

// probing reports whether the next request only has to show whether the API works.
func (s *schedule) probing() bool { return s.suspect != nil }

// unconfirmed returns the fault of a cursor in the form for Status until a request without
// a cursor has succeeded. Until then the cursor may be valid, and another one may not help.
func (s *schedule) unconfirmed(f *bridge.Fault) *bridge.Fault {
	shown := *f
	shown.Reason, shown.Hint, shown.HintCode = "", "", bridge.HintCursorSuspect
	if o := s.outage; o != nil {
		shown.Err = fmt.Errorf("%w; the request without a cursor fails too: %w", f.Err, o.Err)
		shown.Hint, shown.HintCode = o.Hint, o.HintCode
	}
	return &shown
}

// pace is the amount by which a stream shortens its long waits, in 4,096ths of a wait: at
// most a quarter. So streams that begin together, or wait for the same server, do not poll
// in step. pace depends only on the stream's name, so that a run can be repeated.
type pace uint32

func paceOf(stream string) pace {
	h := fnv.New32a()
	_, _ = h.Write([]byte(stream)) // never fails
	return pace(h.Sum32() % 1024)
}

// of returns the shortened wait, which is not below least.
func (p pace) of(wait, least time.Duration) time.Duration {
	return max(least, wait-wait/4096*time.Duration(p))
}

// slowFrom is the wait from which waits grow by a sixteenth. So they grow by a second in 16
// seconds without events, to a minute in about 12 minutes.
const slowFrom = 15 * time.Second

// polls decides the wait between requests when caught up: it grows while no events arrive, by
// half, then by a sixteenth. Owned by the commit loop.
type polls struct {
	pace        pace
	least, most time.Duration
	next        time.Duration
}

// wait returns how long to wait. events is set if the last request returned events.
func (p *polls) wait(events bool) time.Duration {
	if events || p.next == 0 {
		p.next = p.least
	}
	w, growth := p.next, p.next/2
	if w >= slowFrom {
		growth = w / 16
	}
	p.next = min(p.most, w+growth)
	return p.pace.of(w, p.least)
}

// alarm is a timer that is reused. It may fire when no wait needs it any more.
type alarm struct{ timer *time.Timer }

func (a *alarm) at(t time.Time) <-chan time.Time {
	if a.timer == nil {
		a.timer = time.NewTimer(time.Until(t))
	} else {
		a.timer.Reset(time.Until(t))
	}
	return a.timer.C
}
