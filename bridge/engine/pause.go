package engine

import (
	"time"

	"exportbridge/bridge"
)

// pauseLook is how often a paused stream reads the clock, which can be changed.
const pauseLook = time.Minute

// checkPaused returns why a stream is paused, or nil, and when to check again.
func (e *Engine) checkPaused(c *bridge.Checkpoint) (pause *bridge.Fault, again time.Time) {
	now := time.Now()
	if !c.Paused(now) {
		return nil, now
	}
	text, again := "the stream is paused", now.Add(pauseLook)
	if c.PausedUntil != bridge.Forever {
		text += " until " + bridge.InstantText(c.PausedUntil)
		if end := time.UnixMilli(c.PausedUntil); end.Before(again) {
			again = end
		}
	}
	return bridge.BlockHintf("paused", bridge.ReasonPaused, bridge.HintResume, "%s", text), again
}
