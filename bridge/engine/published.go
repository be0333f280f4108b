package engine

import (
	"context"
	"time"

	"exportbridge/bridge"
)

// rewindIndexTimeout bounds the wait for marks, which are only a hint.
const rewindIndexTimeout = 10 * time.Second

// loadMarks reads the topic back once, before the first page with events that a rewind may
// publish again.
func (s *progress) loadMarks(ctx context.Context, e *Engine, p *bridge.Page) {
	if s.at.RewindEnd == nil || s.marksLoaded || s.batch.events > 0 || e.ports.Published == nil {
		return
	}
	from, source, ok := s.at.MarksFrom(p)
	if !ok {
		return
	}
	defer e.watchdog.wait()()
	ctx, cancel := context.WithTimeout(ctx, rewindIndexTimeout)
	defer cancel()
	marks, err := e.ports.Published.PartialIndex(ctx, from.Add(-e.cfg.Overlap), source)
	if err != nil {
		e.log.Warn("republished events not marked: reading the topic failed", "error", err.Error())
	}
	s.known.Marks, s.marksLoaded = marks, true
}
