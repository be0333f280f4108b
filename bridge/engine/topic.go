package engine

import (
	"context"
	"fmt"
	"slices"

	"exportbridge/bridge"
)

// checkTopics compares the topics with the checkpoint before events are published to them.
// An operator's reset accepts the topics as they are. A loss counts if the session finds it
// twice: the first answer may be that of a former leader.
func (s *stream) checkTopics(ctx context.Context) error {
	found, err := s.session.findTopics(ctx)
	if err == nil && bridge.TopicsLost(s.committed.Checkpoint, found) != nil {
		found, err = s.session.findTopics(ctx)
	}
	if err != nil {
		return err
	}
	for i := range found {
		t := &found[i]
		if id := s.e.cfg.TopicIDs[t.Name]; id != "" && id != t.ID {
			return bridge.TopicFault("topic %s was deleted and recreated since the job began (id %s, previously %s)", t.Name,
				t.ID, id)
		}
	}
	if err := s.recordCut(ctx, found); err != nil {
		return err
	}
	if fault := bridge.TopicsLost(s.committed.Checkpoint, found); fault != nil {
		return fault
	}
	for i := range found {
		if was := bridge.FindTopic(s.committed.Topics, found[i].Name); was == nil || was.ID != found[i].ID {
			s.forgetMarks() // the marks are those of another topic
		}
	}
	s.session.topics = s.session.carryOver(s.committed.Topics, found, s.committed.Version)
	return s.recordRules(ctx)
}

// recordRules commits changed routes, and changed rules for private data, before events are
// published by them, because jobs and repairs need the same rules. The position depends on
// neither: events published by the former rules count as published.
func (s *stream) recordRules(ctx context.Context) error {
	was, now := s.committed.Checkpoint, s.e.cfg.Routes
	switch {
	case s.e.applying:
		return nil
	case was.Routes == now && was.Origin.Request.Changed(s.session.request, "").Rules:
		return s.record(ctx, s.session.stamp(was, bridge.KindHeartbeat, s.committed.Version.Next()))
	case was.Routes == now:
		return nil
	}
	s.log.Info("routes changed", "from", was.Routes, "to", now)
	return s.record(ctx, s.session.stamp(was, bridge.KindRoutes, s.committed.Version.Next()))
}

// recordCut commits the loss of a topic whose end was cut off while the session published.
func (s *stream) recordCut(ctx context.Context, found []bridge.TopicState) error {
	cut := s.incidents.cut
	if cut == nil {
		return nil
	}
	topics := slices.Clone(s.committed.Topics)
	was, now := bridge.FindTopic(topics, cut.Topic), bridge.FindTopic(found, cut.Topic)
	reset := s.committed.Change
	accepted := reset != nil && reset.Moves() && reset.At > bridge.Millis(s.incidents.cutAt)
	if was != nil && now != nil && was.Same(now) && !accepted {
		was.Lost = max(was.Lost, cut.Offsets)
		if err := s.recordTopics(ctx, topics); err != nil {
			return err
		}
	}
	s.incidents.cut = nil
	return nil
}

// keepLoss commits a loss that is about to block the stream. The records of other writers, and
// those of aborted sessions, would hide the loss from later sessions.
func (f *follower) keepLoss(ctx context.Context, err error) error {
	fault := bridge.FaultOf(err)
	if fault.Code != bridge.CodeTopicLost || !f.schedule.sessions.blocks(fault) {
		return err
	}
	topics := bridge.WithLoss(f.committed.Topics, f.session.found)
	if topics == nil {
		return err
	}
	if failed := f.recordTopics(ctx, topics); failed != nil {
		return failed
	}
	return bridge.TopicsLost(f.committed.Checkpoint, f.session.found)
}

// recordTopics commits topics that lost records. The position stays.
func (s *stream) recordTopics(ctx context.Context, topics []bridge.TopicState) error {
	next := s.session.stamp(s.committed.Checkpoint, bridge.KindHeartbeat, s.committed.Version.Next())
	next.Topics = topics
	return s.record(ctx, next)
}

// findTopics returns the topics of the session.
func (s *session) findTopics(ctx context.Context) ([]bridge.TopicState, error) {
	found, err := s.e.ports.Sink.Topics(ctx)
	if err != nil {
		s.open = false
		return nil, fmt.Errorf("describe the topics: %w", err)
	}
	s.found = found
	return found, nil
}
