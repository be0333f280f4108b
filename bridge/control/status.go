package control

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"exportbridge/bridge"
)

const (
	// StatusTimeout bounds what Status waits for, whoever does not answer.
	StatusTimeout = 5 * time.Second
	// changesShown is how many of an operator's changes are shown, of those
	// among the newest changesSought entries of the history.
	changesShown  = 5
	changesSought = 200
)

// Report is what is known of a stream: from the bridge that runs it, or
// straight from Redis and Kafka. Its JSON form is what status --json prints.
type Report struct {
	Stream string `json:"stream"`
	// Live is what the bridge that runs the stream says of it; nil where none
	// does, or Redis does not answer.
	Live *bridge.Status `json:"live,omitempty"`
	// Checkpoint is what is committed. It holds the cursor itself, which
	// nothing should show to others.
	Checkpoint *bridge.Checkpoint `json:"checkpoint,omitempty"`
	// Members are the processes that run the stream or stand by for it.
	// MembersKnown is false where Kafka does not say who they are.
	Members      []Member `json:"members,omitempty"`
	MembersKnown bool     `json:"members_known"`
	// LagSeconds is the age of the position, 0 when caught up, -1 where it is
	// not known; CaughtUpIn how many seconds it takes until it is, at the pace
	// of now, -1 where it does not catch up or that is not known.
	LagSeconds float64 `json:"lag_seconds"`
	CaughtUpIn float64 `json:"caught_up_in_seconds"`
	Guarantee  string  `json:"guarantee"`
	// Changes are the last ones by operators, newest first.
	Changes []bridge.Change `json:"changes,omitempty"`
	// Notes say what could not be found out.
	Notes []string `json:"notes,omitempty"`
}

// NewReport returns a report that says what is promised, and nothing else yet.
func NewReport(stream string, mode bridge.Mode) Report {
	return Report{Stream: stream, Guarantee: guarantee(mode), CaughtUpIn: -1}
}

// guarantee says what a delivery mode promises, and why.
func guarantee(mode bridge.Mode) string {
	if mode == bridge.ExactlyOnce {
		return "exactly-once: events and checkpoint are one Kafka transaction; consumers must read_committed"
	}
	return "at-least-once: the checkpoint follows the acknowledged events; after a crash those in flight come again, with the same ce_id"
}

// Measure derives from Live and Checkpoint how far behind the stream is, and
// for how long.
func (r *Report) Measure(now time.Time) {
	var at time.Time
	switch {
	case r.Live != nil && r.Live.CaughtUp:
		r.CaughtUpIn = 0
		return
	case r.Live != nil:
		at = r.Live.Position
	case r.Checkpoint != nil && r.Checkpoint.PositionTime > 0:
		at = time.UnixMilli(r.Checkpoint.PositionTime)
	}
	if at.IsZero() {
		r.LagSeconds = -1
		return
	}
	r.LagSeconds = max(0, now.Sub(at).Seconds())
	if r.Live != nil && r.Live.Pace > 1 {
		r.CaughtUpIn = math.Ceil(r.LagSeconds / (r.Live.Pace - 1))
	}
}

// Status asks everybody who may know, all at once, and says who does not
// answer. It disturbs nobody.
func (c *Controller) Status(ctx context.Context) Report {
	r := NewReport(c.Stream(), c.cfg.Mode)
	var entries []bridge.Entry
	var notes [3]string // in the order of what they are about
	note := func(n int, what string, err error) { notes[n] = what + ": " + cut(err.Error(), 160) }
	ctx, cancel := context.WithTimeout(ctx, StatusTimeout)
	defer cancel()
	var asking sync.WaitGroup
	asking.Go(func() {
		live, alive, err := c.Live(ctx)
		if err != nil {
			note(0, "what the bridge says is not known", err)
		} else if alive {
			r.Live = &live
		}
	})
	asking.Go(func() {
		p, err := c.Position(ctx)
		if err != nil {
			note(1, "no checkpoint", err)
			return
		}
		r.Checkpoint = &p.Checkpoint
		if p.Note != "" {
			notes[1] = "checkpoint " + p.Note
		}
	})
	asking.Go(func() {
		members, err := c.ports.Group.Members(ctx)
		if r.MembersKnown = err == nil; err != nil {
			note(2, "who runs the stream is not known", err)
		}
		r.Members = members
	})
	asking.Go(func() { entries, _ = c.ports.Entries.History(ctx, bridge.HistoryQuery{Limit: changesSought}) }) // the notes say it
	asking.Wait()
	r.Changes = changesOf(entries, r.Checkpoint)
	r.Notes = slices.DeleteFunc(notes[:], func(n string) bool { return n == "" })
	r.Measure(time.Now())
	return r
}

// changesOf returns the newest changes by operators.
func changesOf(entries []bridge.Entry, now *bridge.Checkpoint) []bridge.Change {
	var all []bridge.Change
	add := func(ch *bridge.Change) {
		if ch != nil && len(all) < changesShown && (len(all) == 0 || all[len(all)-1].ID != ch.ID) {
			all = append(all, *ch)
		}
	}
	if now != nil {
		add(now.Change)
	}
	for i := range entries {
		add(entries[i].Change)
	}
	return all
}
