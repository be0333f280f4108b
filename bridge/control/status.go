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
	// StatusTimeout bounds Status.
	StatusTimeout = 5 * time.Second
	// changesShown is the number of operators' changes in a Report. Status searches the
	// newest changesSought entries for them.
	changesShown  = 5
	changesSought = 200
	// estimatedPace is the least Status.Pace with an estimate of when a stream catches up.
	estimatedPace = 1.01
)

// Report is the status of a stream, from its bridge, Redis and Kafka. Its JSON form
// is part of the interface.
type Report struct {
	Stream string `json:"stream"`
	// Live is the status that the stream's bridge reports. It is nil if no bridge runs the
	// stream or Redis is unreachable.
	Live *bridge.Status `json:"live,omitempty"`
	// Checkpoint is the committed checkpoint.
	Checkpoint *Masked `json:"checkpoint,omitempty"`
	// Members are the processes in the stream's group, standbys included.
	// MembersKnown is false if the lookup failed.
	Members      []bridge.Member `json:"members,omitempty"`
	MembersKnown bool            `json:"members_known"`
	// LagSeconds is the age of the position: 0 when caught up, -1 if unknown or if the stream
	// has ended. CaughtUpIn is the estimated time to catch up in seconds. It is -1 if it is
	// unknown, if the stream hardly catches up, or if no process runs the stream.
	LagSeconds float64 `json:"lag_seconds"`
	CaughtUpIn float64 `json:"caught_up_in_seconds"`
	Guarantee  string  `json:"guarantee"`
	// Changes are the last five changes by operators, newest first.
	Changes []bridge.Change `json:"changes,omitempty"`
	// Unreachable are the servers whose part of the report is missing:
	// bridge.DependencyStore, bridge.DependencySink. Notes say which part, and why.
	Unreachable []string `json:"unreachable,omitempty"`
	Notes       []string `json:"notes,omitempty"`
}

// NewReport returns a report with the guarantee only.
func NewReport(stream string, mode bridge.Mode) Report {
	return Report{Stream: stream, Guarantee: guarantee(mode), CaughtUpIn: -1}
}

// guarantee describes a delivery mode.
func guarantee(mode bridge.Mode) string {
	if mode == bridge.ExactlyOnce {
		return "exactly-once: events and checkpoint share one Kafka transaction; consumers must use read_committed"
	}
	return "at-least-once: the checkpoint follows the acknowledged events; " +
		"after a crash, events in flight are published again with the same ce_id"
}

// Measure derives LagSeconds and CaughtUpIn from Live and Checkpoint.
func (r *Report) Measure(now time.Time) {
	if r.Live != nil && r.Live.CaughtUp {
		r.CaughtUpIn = 0
		return
	}
	at := r.position()
	if at.IsZero() || r.Ended() != "" {
		r.LagSeconds = -1
		return
	}
	r.LagSeconds = max(0, now.Sub(at).Seconds())
	if r.Live != nil && r.Live.State == bridge.StateRunning && r.Live.Pace >= estimatedPace {
		r.CaughtUpIn = math.Ceil(r.LagSeconds / (r.Live.Pace - 1))
	}
}

// position returns the later position of Checkpoint and Live; zero if both are unknown.
func (r *Report) position() time.Time {
	if r.Checkpoint == nil {
		return LatestPosition(nil, r.Live)
	}
	return LatestPosition(r.Checkpoint.Checkpoint, r.Live)
}

// LatestPosition returns the later position of a stream: that of its checkpoint or of its
// status. Both may be nil.
func LatestPosition(c *bridge.Checkpoint, live *bridge.Status) time.Time {
	var at time.Time
	if c != nil {
		at = bridge.Instant(c.PositionTime)
	}
	if live != nil && (c == nil || live.Version.Epoch >= c.Epoch) && live.Position.After(at) {
		at = live.Position
	}
	return at
}

// Status reads the stream's status from Redis and Kafka concurrently. Errors become notes
// of the report.
func (c *Controller) Status(ctx context.Context) Report {
	r := NewReport(c.Stream(), c.cfg.Mode)
	var entries []bridge.Entry
	var notes [4]string // about status, checkpoint, members and topic
	var redisErr error
	note := func(n int, what string, err error) { notes[n] = what + ": " + cut(err.Error(), 160) }
	ctx, cancel := context.WithTimeout(ctx, StatusTimeout)
	defer cancel()
	var asking sync.WaitGroup
	asking.Go(func() {
		live, alive, err := c.Live(ctx)
		if redisErr = err; err != nil {
			note(0, "live status unknown", err)
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
		r.Checkpoint = Mask(&p.Checkpoint)
		if p.Note != "" {
			notes[1] = "checkpoint " + p.Note
		}
		notes[3] = otherTopic(&p.Checkpoint, &c.cfg)
	})
	asking.Go(func() {
		members, err := c.ports.Group.Members(ctx)
		if r.MembersKnown = err == nil; err != nil {
			note(2, "group members unknown", err)
		}
		r.Members = members
	})
	asking.Go(func() { // the notes have its error
		entries, _ = c.ports.Entries.History(ctx, bridge.HistoryQuery{Limit: changesSought, Brief: true})
	})
	asking.Wait()
	if redisErr != nil {
		r.Unreachable = append(r.Unreachable, bridge.DependencyStore)
	}
	if !r.MembersKnown {
		r.Unreachable = append(r.Unreachable, bridge.DependencySink)
	}
	r.Changes = changesOf(entries, r.Checkpoint)
	r.Notes = slices.DeleteFunc(notes[:], func(n string) bool { return n == "" })
	r.Measure(time.Now())
	return r
}

// changesOf returns the newest changes by operators.
func changesOf(entries []bridge.Entry, now *Masked) []bridge.Change {
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
