package bridge

import (
	"fmt"
	"time"
)

// Paused reports whether the stream is paused at now.
func (c *Checkpoint) Paused(now time.Time) bool {
	return c.PausedUntil == Forever || c.PausedUntil > now.UnixMilli()
}

// derivePause derives the checkpoint that a pause of the stream at from, or the end of
// one, leads to: a new epoch at the same position. Within an epoch every
// checkpoint comes from the same request, which is how a process notices that
// another one moved the stream.
func derivePause(from Checkpoint, cmd Command) Checkpoint {
	c := from
	c.Version, c.Kind = Version{Epoch: from.Epoch + 1}, cmd.Kind
	c.PausedUntil = 0
	if cmd.Kind == KindPause {
		c.PausedUntil = cmd.PausedUntil
	}
	c.Change = changeOf(cmd, from)
	return c
}

// pauseLook is how often a paused stream looks at the clock, which may be set.
const pauseLook = time.Minute

// checkPaused holds the stream while it is paused, and reports whether it is. A
// bounded run has nothing to wait for.
func (f *follower) checkPaused() (bool, error) {
	now := time.Now()
	if !f.at.cp.Paused(now) {
		if f.at.cp.PausedUntil != 0 {
			f.at.head.PausedUntil = 0 // with the next commit
			if f.state == StatePaused {
				f.log.Info("pause expired", "was_until", describeInstant(f.at.cp.PausedUntil))
			}
		}
		return false, nil
	}
	until := f.b.cfg.words(HintResume)
	f.schedule.due = now.Add(pauseLook)
	if f.at.cp.PausedUntil != Forever {
		until = describeInstant(f.at.cp.PausedUntil)
		if end := time.UnixMilli(f.at.cp.PausedUntil); end.Before(f.schedule.due) {
			f.schedule.due = end
		}
	}
	if f.b.cfg.bounded() {
		return true, f.b.blocked(&Fault{
			Class: Permanent, Code: "paused", Reason: ReasonPaused, Advice: HintResume,
			Err: fmt.Errorf("the stream is paused until %s", until),
		})
	}
	if f.state != StatePaused {
		f.log.Info("stream paused", "until", until, "checkpoint", f.at.cp.Version.String())
	}
	f.setState(StatePaused, nil)
	return true, nil
}

func describeInstant(ms int64) string {
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}
