package engine

import (
	"crypto/rand"
	"time"

	"exportbridge/bridge"
)

// session is one session of the sink, and what is known only as long as it
// lasts: each recovery begins a new one. Owned by the commit loop.
type session struct {
	e  *Engine
	id string // empty before the first of an ownership
	// open is true while the sink has the session, ready between a successful
	// recovery and the first doubt.
	open, ready bool
	// restored is true when all was read that is committed, ready or not.
	restored bool
	// found are the topics of the session, topics the same once they are known
	// to hold what the checkpoint implies, nil before. Neither is changed in place.
	found, topics []bridge.TopicState
	// request is the fingerprint of the settings once it is known to be the
	// stream's, empty before. unproven are the parts of it that a page must prove.
	request  bridge.Fingerprint
	unproven []string
	// unasked is why the history, which may know the stream's request where the
	// checkpoint does not, was not asked: a page must prove all of the settings.
	unasked error
}

func newSession(e *Engine) session { return session{e: e, id: rand.Text()[:12]} }

// sessionError marks an error of the sink or the store: the outcome is unknown,
// so the session's state is discarded.
type sessionError struct{ err error }

func (e *sessionError) Error() string { return e.err.Error() }
func (e *sessionError) Unwrap() error { return e.err }

// stamp makes c the checkpoint that the session commits as a version.
func (s *session) stamp(c bridge.Checkpoint, kind bridge.Kind, at bridge.Version) bridge.Checkpoint {
	now := time.Now().UnixMilli()
	if routes := s.e.cfg.Routes; !s.e.applying && c.Routes != routes { // a command's machine has others
		if !c.Zero() { // something may be published
			c.RoutesChanged = max(now, c.LastEventTime, c.PositionTime)
		}
		c.Routes = routes
	}
	c.Format, c.Stream, c.Mode = c.Origin.Format(), s.e.cfg.Stream, s.e.cfg.Mode
	c.Version, c.Kind = at, kind
	if c.Topic == "" {
		c.Topic = s.e.cfg.Topic
	}
	if s.topics != nil {
		c.Topics = s.topics
	}
	if s.request.Known() {
		c.Origin.Request = s.request
	}
	c.Owner, c.Session = s.e.cfg.Owner, s.id
	c.WrittenAt = now
	return c
}

// carryOver is bridge.CarryOver, and reports added partitions.
func (s *session) carryOver(was, found []bridge.TopicState, at bridge.Version) []bridge.TopicState {
	next, grown := bridge.CarryOver(was, found)
	for _, t := range grown {
		s.e.log.Warn("partitions added to the topic: per-key order does not hold across this point",
			"topic", t.Name, "partitions", t.Partitions, "before", t.GrewFrom, "checkpoint", at.String())
		s.e.observe(bridge.Observation{What: bridge.ObserveTopic, Code: bridge.TopicGrew})
	}
	return next
}
