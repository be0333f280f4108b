package engine

import (
	"errors"
	"time"

	"exportbridge/bridge"
)

// pauseLook is how often a paused stream looks at the clock, which may be set.
const pauseLook = time.Minute

// checkPaused holds the stream while it is paused, and reports whether it is. A
// bounded run has nothing to wait for.
func (f *follower) checkPaused() (bool, error) {
	now := time.Now()
	if !f.committed.Paused(now) {
		if f.committed.PausedUntil != 0 {
			f.at.PausedUntil = 0 // with the next commit
			if f.state == bridge.StatePaused {
				f.log.Info("pause expired", "was_until", describeInstant(f.committed.PausedUntil))
			}
		}
		return false, nil
	}
	text, how := "the stream is paused", []any{"checkpoint", f.committed.Version.String(), "hint", f.e.cfg.words(bridge.HintResume)}
	f.schedule.due = now.Add(pauseLook)
	if f.committed.PausedUntil != bridge.Forever {
		until := describeInstant(f.committed.PausedUntil)
		text, how = text+" until "+until, append(how, "until", until)
		if end := time.UnixMilli(f.committed.PausedUntil); end.Before(f.schedule.due) {
			f.schedule.due = end
		}
	}
	if f.e.cfg.bounded() {
		return true, f.e.blocked(&bridge.Fault{
			Class: bridge.Permanent, Code: "paused", Reason: bridge.ReasonPaused, HintCode: bridge.HintResume,
			Err: errors.New(text),
		})
	}
	if f.state != bridge.StatePaused {
		f.log.Info("stream paused", how...)
	}
	f.setState(bridge.StatePaused, nil)
	return true, nil
}

func describeInstant(ms int64) string {
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}
