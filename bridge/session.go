package bridge

import (
	"crypto/rand"
	"slices"
	"time"
)

// session is one session of the sink, and what is known only as long as it
// lasts: each recovery begins a new one. Owned by the commit loop.
type session struct {
	b  *Bridge
	id string // empty before the first of an ownership
	// open is true while the sink has the session, ready between a successful
	// recovery and the first doubt.
	open, ready bool
	// restored is true when all was read that is committed, ready or not.
	restored bool
	// found are the topics of the session, topics the same once they are known
	// to hold what the checkpoint implies, nil before. Neither is changed in place.
	found, topics []TopicState
}

func newSession(b *Bridge) session { return session{b: b, id: rand.Text()[:12]} }

// sessionError marks an error of the sink or the store: the outcome is unknown,
// so the session's state is discarded.
type sessionError struct{ err error }

func (e *sessionError) Error() string { return e.err.Error() }
func (e *sessionError) Unwrap() error { return e.err }

// stamp makes c the checkpoint that the session commits as a version.
func (s *session) stamp(c Checkpoint, kind Kind, at Version) Checkpoint {
	c.Format, c.Stream, c.Mode = CheckpointFormat, s.b.cfg.Stream, s.b.cfg.Mode
	c.Version, c.Kind = at, kind
	if c.Topic == "" {
		c.Topic = s.b.cfg.Topic
	}
	if s.topics != nil {
		c.Topics = s.topics
	}
	c.Owner, c.Session = s.b.cfg.Owner, s.id
	c.WrittenAt = time.Now().UnixMilli()
	return c
}

// carryOver returns the topics found, merged with their earlier state, and
// reports added partitions.
func (s *session) carryOver(was, found []TopicState, at Version) []TopicState {
	next := slices.Clone(found)
	for i := range next {
		t := &next[i]
		old := stateOf(was, t.Name)
		if old == nil || old.ID != t.ID {
			continue
		}
		t.End = max(t.End, old.End)
		if t.GrewFrom, t.GrewAt = old.GrewFrom, old.GrewAt; t.Partitions <= old.Partitions {
			t.Partitions = old.Partitions // a broker that lags behind may know fewer
			continue
		}
		if t.DeadLetters {
			continue // nobody counts on their order
		}
		t.GrewFrom, t.GrewAt = old.Partitions, time.Now().UnixMilli()
		s.b.log.Warn("partitions added to the topic: per-key order does not hold across this point",
			"topic", t.Name, "partitions", t.Partitions, "before", old.Partitions, "checkpoint", at.String())
		s.b.observe(Observation{What: ObserveTopic, Code: TopicGrew})
	}
	return next
}
