package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/engine/position"
)

// checkRequest compares the request of the settings with the request that returned the
// checkpoint's cursor, before anything is requested.
func (s *session) checkRequest(ctx context.Context, c bridge.Checkpoint) error {
	want := s.e.cfg.Origin.Request
	if !want.Known() {
		return nil
	}
	if c.Accepts(want) {
		s.request = want
		return nil
	}
	if c.Origin.Request, s.unasked = s.e.knownRequest(ctx, c); !c.Origin.Request.Known() {
		stray := s.e.cfg.StrayCursor
		if stray == nil || c.Cursor == "" {
			return nil
		}
		if err := stray(c.Cursor); err != nil {
			return bridge.BlockHintf("source", bridge.ReasonSource, bridge.HintRequest,
				"%w (these settings are source %s)", err, want.Digest())
		}
		return nil
	}
	if fault := bridge.RequestFault(&c, want); fault != nil {
		return fault
	}
	if s.unproven = c.RequestChange(want).Unproven; len(s.unproven) == 0 {
		s.request = want
	}
	return nil
}

// knownRequest returns the fingerprint of the checkpoint, or else the newest one of the
// history, because an older version drops it. Without any, the result is empty. It is empty
// with an error if the history cannot be asked.
func (e *Engine) knownRequest(ctx context.Context, c bridge.Checkpoint) (bridge.Fingerprint, error) {
	if c.Origin.Request.Known() || e.ports.History == nil {
		return c.Origin.Request, nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	before, err := e.ports.History.Before(ctx, c, func(p *bridge.Checkpoint) bool { return p.Origin.Request.Known() })
	if errors.Is(err, bridge.ErrNoCheckpoint) {
		err = nil
	}
	return before.Origin.Request, err
}

// identify decides by a page, before it is trimmed, whether the request of the settings
// lists the stream's own export, if that is not known yet. A page with an item that was
// published before proves it. If no earlier request is known, any page that names a next
// one proves it too.
func (s *session) identify(p *bridge.Page, at *position.Position) error {
	want := s.e.cfg.Origin.Request
	if s.request == want || !want.Known() || at.Origin.Request == want {
		return nil
	}
	shows := at.Shows(p)
	switch {
	case shows && len(s.unproven) > 0:
		s.e.log.Warn("the settings request the export in another way: accepted, the page lists items published before",
			"changed", strings.Join(s.unproven, ", "), "source", want.Digest())
	case len(s.unproven) > 0:
		return bridge.BlockHintf("source", bridge.ReasonSource, bridge.HintRequest,
			"the settings changed the request (%s), and the page lists no item published before: "+
				"it may be another list (these settings are source %s)", strings.Join(s.unproven, ", "), want.Digest())
	case !shows && s.unasked != nil && (p.Items > 0 || !p.Tail()):
		return &sessionError{fmt.Errorf("the page lists no item published before, "+
			"and it is unknown whether the settings request the stream's list: %w", s.unasked)}
	case !shows && p.Tail():
		return nil
	}
	s.request, s.unproven = want, nil
	return nil
}

// validateSource returns why a reset leads to another list, or "". During Apply, the
// settings are those of the command's process, which decide nothing.
func (j *judge) validateSource(cmd bridge.Command) string {
	ours := j.e.cfg.Origin.Request
	if !j.e.applying && ours.Known() {
		change := j.committed.RequestChange(ours)
		switch {
		case cmd.AcceptSource != "" && cmd.AcceptSource != ours.Digest():
			return fmt.Sprintf("the settings of this bridge are source %s, not %s", ours.Digest(), cmd.AcceptSource)
		case cmd.AcceptSource == "" && (len(change.Other) > 0 || j.blockedOn == bridge.ReasonSource &&
			len(change.Unproven) > 0):
			return fmt.Sprintf("the settings request another list than the stream's (%s); "+
				"accept it with --accept-source %s, or restore the settings", change, ours.Digest())
		}
	}
	next, to := bridge.Reset(j.committed, j.e.cfg.Origin, cmd).Origin.Request, &cmd.Target
	if change := to.Request.Changed(next, to.Cursor); len(change.Other) > 0 && to.Request.Digest() != cmd.AcceptSource {
		return fmt.Sprintf("the target is a cursor of another request than the stream's (%s); its source is %s", change,
			to.Request.Digest())
	}
	return ""
}
