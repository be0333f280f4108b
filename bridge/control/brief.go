package control

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"exportbridge/bridge"
)

// Conditions of a stream that are not states of a bridge.
const (
	// StateDegraded is a healthy state with a reason to doubt it.
	StateDegraded bridge.State = "degraded"
	// StateBehind is a running stream that is more than a minute behind.
	StateBehind bridge.State = "behind"
	// StateNone means that no process runs the stream. StateUnknown means that nobody knows
	// whether a process does.
	StateNone    bridge.State = "not running"
	StateUnknown bridge.State = "unknown"
	// StateEnded is a bounded run or a window that is done.
	StateEnded bridge.State = "ended"
)

// Conditions lists the conditions of a stream, worst first.
var Conditions = []bridge.State{
	bridge.StateBlocked, bridge.StateStopped, StateNone, bridge.StateBackoff, StateUnknown, StateDegraded, StateBehind,
	bridge.StatePaused, bridge.StateStarting, bridge.StateRunning, bridge.StateStandby, bridge.StateIdle, StateEnded,
}

// Brief is a stream in one line. Briefs are comparable. In JSON, Position stands for Lag,
// which changes all the time.
type Brief struct {
	Stream string `json:"stream"`
	// Condition is one of Conditions. Reason is why a stream is blocked, Why explains the
	// condition.
	Condition bridge.State  `json:"condition"`
	Reason    bridge.Reason `json:"reason,omitempty"`
	Why       string        `json:"why,omitempty"`
	// State is the state of a stream whose Condition is StateDegraded or StateBehind;
	// otherwise it equals Condition.
	State bridge.State `json:"state"`
	// Lag is the age of the position: 0 when caught up, negative if unknown.
	Lag time.Duration `json:"-"`
	// Position is the position, truncated to seconds; zero if CaughtUp, ended or unknown.
	Position time.Time `json:"position,omitzero"`
	CaughtUp bool      `json:"caught_up,omitempty"`
	// Rate is the number of events per second, rounded to one decimal.
	Rate float64 `json:"rate"`
	// Owner is the process that reports the status; empty if none does.
	Owner string `json:"owner,omitempty"`
}

// Compare orders briefs, the worst first: by condition, then by lag, then by name.
func (b Brief) Compare(other Brief) int {
	return cmp.Or(cmp.Compare(slices.Index(Conditions, b.Condition), slices.Index(Conditions, other.Condition)),
		cmp.Compare(other.Lag, b.Lag), strings.Compare(b.Stream, other.Stream))
}

// Glance is a Status for one line of a list. It reads no changes. It asks Kafka for members
// only if no process reports a status.
func (c *Controller) Glance(ctx context.Context) Report {
	ctx, cancel := context.WithTimeout(ctx, StatusTimeout)
	defer cancel()
	r := NewReport(c.Stream(), c.cfg.Mode)
	live, alive, err := c.Live(ctx)
	if err != nil {
		r.Unreachable = append(r.Unreachable, bridge.DependencyStore)
		r.Notes = append(r.Notes, "live status unknown: "+cut(err.Error(), 160))
	}
	if alive {
		r.Live = &live
	}
	if p, err := c.Position(ctx); err == nil {
		r.Checkpoint = Mask(&p.Checkpoint)
	} else if !alive {
		r.Notes = append(r.Notes, "no checkpoint: "+cut(err.Error(), 160))
	}
	if !alive {
		r.Members, err = c.ports.Group.Members(ctx)
		if r.MembersKnown = err == nil; err != nil {
			r.Unreachable = append(r.Unreachable, bridge.DependencySink)
		}
	}
	r.Measure(time.Now())
	return r
}

// Brief returns the report as one line of a list.
func (r *Report) Brief(now time.Time) Brief {
	b := Brief{Stream: r.Stream, Lag: time.Duration(r.LagSeconds * float64(time.Second))}
	if b.CaughtUp = r.Live != nil && r.Live.CaughtUp; !b.CaughtUp && r.Ended() == "" {
		b.Position = r.position().Truncate(time.Second).UTC()
	}
	paused := r.Checkpoint != nil && r.Checkpoint.Paused(now)
	l := r.Live
	switch {
	case l == nil && paused:
		b.Condition = bridge.StatePaused
		if r.MembersKnown && len(r.Members) == 0 {
			b.Why = "not running"
		}
	case l == nil && r.Ended() != "":
		b.Condition, b.Why = StateEnded, r.Ended()
	case l == nil && r.MembersKnown && len(r.Members) == 0:
		b.Condition, b.Why = StateNone, strings.Join(r.Notes, "; ")
	case l == nil:
		b.Condition, b.Why = StateUnknown, strings.Join(r.Notes, "; ")
		if len(r.Members) > 0 && b.Why == "" {
			b.Why = r.Members[0].String() + " runs it, this Redis has no status of it"
		}
	default:
		b.Rate, b.Owner = math.Round(10*l.Rate)/10, l.Owner
		b.Condition, b.Why = conditionOf(l, b.Lag)
		if paused && l.Version.Compare(r.Checkpoint.Version) < 0 { // the next report of the bridge shows the pause
			b.Condition, b.Why = bridge.StatePaused, ""
		}
		if b.Condition == bridge.StateBlocked {
			b.Reason = l.Reason
		}
	}
	if b.State = b.Condition; b.State == StateDegraded || b.State == StateBehind {
		if b.State = bridge.StateRunning; l.CaughtUp || l.State == bridge.StateIdle {
			b.State = bridge.StateIdle
		}
	}
	return b
}

// Ended says why a stream is done: its process says so, or no process runs it and its newest
// checkpoint is at its end, Origin.End. It returns "" for any other stream.
func (r *Report) Ended() string {
	c := r.Checkpoint
	switch {
	case r.Live != nil && r.Live.State == bridge.StateStopped:
		return r.Live.Ended
	case r.Live != nil || !r.MembersKnown || len(r.Members) > 0:
	case c == nil || c.Origin.End == 0 || !c.Drained:
	case c.EndedEmpty > 0:
		return fmt.Sprintf("the window ended after %d empty pages in a row: more events may follow", c.EndedEmpty)
	default:
		return "the window ended"
	}
	return ""
}

// conditionOf returns the condition of a stream that a process reports, and why.
func conditionOf(s *bridge.Status, lag time.Duration) (condition bridge.State, why string) {
	healthy := s.State == bridge.StateIdle || s.State == bridge.StateRunning
	doubts := doubtsOf(s)
	switch {
	case s.State == bridge.StateStopped && s.Ended != "":
		return StateEnded, s.Ended
	case healthy && len(doubts) > 0:
		return StateDegraded, strings.Join(doubts, "; ")
	case !healthy:
		return s.State, s.Error
	case s.CaughtUp:
		return bridge.StateIdle, ""
	case s.State == bridge.StateRunning && lag > time.Minute:
		return StateBehind, ""
	}
	return s.State, ""
}

// ManyDead reports whether the share of dead letters is a reason to doubt a healthy state.
func ManyDead(s *bridge.Status) bool { return s.DeadShare() >= 0.01 }

// doubtsOf returns the reasons to doubt a healthy state: servers that are not up, many dead
// letters, and warnings.
func doubtsOf(s *bridge.Status) []string {
	var all []string
	for _, name := range s.Down() {
		all = append(all, name+" "+cmp.Or(s.Dependencies[name].Trouble, "is down"))
	}
	if ManyDead(s) {
		all = append(all, "many dead letters")
	}
	for _, w := range s.Warnings {
		all = append(all, w.Text)
	}
	return all
}
