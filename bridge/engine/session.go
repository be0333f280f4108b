package engine

import (
	"crypto/rand"
	"time"

	"exportbridge/bridge"
)

// session is one session of the sink, with the state that lasts as long: each recovery
// begins a new one. Owned by the commit loop.
type session struct {
	e  *Engine
	id string // empty before the first session of an ownership
	// open is set while the sink has the session, ready from a successful recovery until
	// the first doubt.
	open, ready bool
	// restored is set when all committed checkpoints were read, even if the session is not
	// ready.
	restored bool
	// found are the topics of the session. topics are the same topics once they are known
	// to hold the events that the checkpoint implies; nil before that. Neither slice is
	// changed in place.
	found, topics []bridge.TopicState
	// request is the fingerprint of the settings once it is known to be that of the stream;
	// empty before that. unproven are the parts that a page must prove.
	request  bridge.Fingerprint
	unproven []string
	// unasked is why the history was not asked for the stream's request, which the
	// checkpoint may lack. Then a page must prove all of the settings.
	unasked error
}

func newSession(e *Engine) session { return session{e: e, id: rand.Text()[:12]} }

// sessionError marks an error of the sink or the store: the outcome is unknown, so the
// state of the session is discarded.
type sessionError struct{ err error }

func (e *sessionError) Error() string { return e.err.Error() }
func (e *sessionError) Unwrap() error { return e.err }

// stamp returns c as the checkpoint that the session commits, with a kind and a version.
func (s *session) stamp(c bridge.Checkpoint, kind bridge.Kind, at bridge.Version) bridge.Checkpoint {
	now := time.Now().UnixMilli()
	if routes := s.e.cfg.Routes; !s.e.applying && c.Routes != routes { // the process of a command has other routes
		if !c.Zero() { // events may have been published
			c.RoutesChanged = max(now, c.LastEventTime, c.PositionTime)
		}
		c.Routes = routes
	}
	c.Format, c.Stream, c.Mode = c.Origin.Format(), s.e.cfg.Stream, s.e.cfg.Mode
	c.Version, c.Kind = at, kind
	if c.Topic == "" && !s.e.applying {
		c.Topic = s.e.cfg.Topic
	}
	if s.topics != nil {
		c.Topics = s.topicsNow(c.Topics, s.topics)
	}
	if s.request.Known() && !s.e.applying { // its rules for private data may be others
		c.Origin.Request = s.request
	}
	c.Owner, c.Session = s.e.cfg.Owner, s.id
	c.WrittenAt = now
	return c
}

// topicsNow returns the topics that a checkpoint records. The process of a command may lack
// topics of the stream, and have others.
func (s *session) topicsNow(was, now []bridge.TopicState) []bridge.TopicState {
	if s.e.applying && len(was) > 0 {
		return bridge.Refound(was, now)
	}
	return now
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
