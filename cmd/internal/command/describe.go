package command

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/process"
)

// describeStreams describes all streams in one line.
func describeStreams(all []bridge.Status, now time.Time) string {
	parts := make([]string, len(all))
	for i := range all {
		parts[i] = describeStatus(&all[i], now)
		if len(all) > 1 {
			parts[i] = all[i].Stream + ": " + parts[i]
		}
	}
	return strings.Join(parts, "  |  ")
}

// placed returns a copy of live with the position that positionText shows.
func placed(live *bridge.Status, c *bridge.Checkpoint) *bridge.Status {
	s := *live
	s.Position = control.LatestPosition(c, live)
	return &s
}

// describeState describes the state of a stream in a few words.
func describeState(s *bridge.Status, now time.Time) string {
	state, retryIn := s.State.Text(), cli.RoundDuration(max(0, s.NextTry.Sub(now)))
	switch {
	case s.State == bridge.StateRunning && !s.Position.IsZero() && now.Sub(s.Position) > time.Minute:
		state = "behind " + cli.RoundDuration(now.Sub(s.Position))
	case s.State == bridge.StateBackoff && s.NextTry.IsZero():
		state += ": " + process.Cut(s.Error, 80)
	case s.State == bridge.StateBackoff:
		state = fmt.Sprintf("retry in %s: %s", retryIn, process.Cut(s.Error, 60))
	case s.State == bridge.StateStopped && s.Ended != "":
		state = "ended: " + s.Ended
	case s.State == bridge.StatePaused:
		state = pauseText(s.PausedUntil, now)
	case s.State == bridge.StateBlocked:
		return fmt.Sprintf("BLOCKED (%s), retry in %s: %s", s.Reason, retryIn, process.Cut(s.Error, 60))
	}
	if s.State == bridge.StateIdle && s.Events+s.Published+s.DeadLettered == 0 {
		state += ", no event so far"
	}
	if control.ManyDead(s) && (s.State == bridge.StateIdle || s.State == bridge.StateRunning) {
		state += ", " + percent(s.DeadShare()) + " dead letters"
	}
	if n := len(s.Warnings); n > 0 {
		state += ", " + cli.Counted(n, "warning")
	}
	return state
}

// percent formats a share. It never formats a share above 0 as 0 %.
func percent(share float64) string {
	if share > 0 && share < 0.01 {
		return "< 1 %"
	}
	return fmt.Sprintf("%.0f %%", math.Floor(100*share))
}

// positionText describes the position of a stream, from its checkpoint and its status;
// live may be nil.
func positionText(c *bridge.Checkpoint, live *bridge.Status, now time.Time) string {
	at := control.LatestPosition(c, live)
	caughtUp := live != nil && live.Version.Epoch >= c.Epoch && live.CaughtUp
	switch {
	case at.IsZero() && c.Cursor == "":
		return "the start of the export: " + bridge.BoundText(c.Origin.Start)
	case at.IsZero() && c.Kind == bridge.KindData:
		return "unknown until the end of the export: no event has had a time"
	case at.IsZero():
		return "unknown until the next page"
	}
	text, age := at.UTC().Format(cli.TimeLayout), cli.RoundDuration(max(0, now.Sub(at)))
	switch {
	case caughtUp && live.EndDoubtful():
		return text + ", at the end of what was read"
	case caughtUp:
		return text + ", at the end of the export"
	case live == nil && c.Drained:
		return fmt.Sprintf("%s, %s ago, at the end of what was read", text, age)
	}
	return fmt.Sprintf("%s, %s behind", text, age)
}

// moves reports whether a stream publishes events, or is expected to publish some.
func moves(s *bridge.Status) bool {
	return s.Rate > 0.5 || s.State == bridge.StateRunning && !s.CaughtUp // a rate up to 0.5 is shown as 0
}

// describeStatus returns describeState, the counts and the position.
func describeStatus(s *bridge.Status, now time.Time) string {
	text := describeState(s, now) + "   " + humanize.Comma(s.Events) + " events   " + humanize.Comma(s.Pages) + " pages"
	if moves(s) {
		text += fmt.Sprintf("   %.0f/s", s.Rate)
	}
	if !s.Position.IsZero() && s.State != bridge.StateBlocked {
		text += "   at " + s.Position.UTC().Format(cli.TimeLayout)
	}
	return text
}
