package engine_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/engine"
)

// former is a sink whose first answer of a session about its topics is that of a former leader,
// which lacks the newest records.
type former struct {
	bridge.Sink
	asked bool
}

func (s *former) Recover(ctx context.Context, owned func(context.Context) error) (bridge.Checkpoint, error) {
	s.asked = false
	return s.Sink.Recover(ctx, owned)
}

func (s *former) Topics(ctx context.Context) ([]bridge.TopicState, error) {
	found, err := s.Sink.Topics(ctx)
	if err == nil && !s.asked {
		s.asked, found = true, slices.Clone(found)
		found[0].End -= 3
		found[0].Ends = bridge.EncodeEnds([]int64{found[0].End})
	}
	return found, err
}

// TestTopicOfFormerLeader: a log that only a former leader shows as cut off has lost nothing.
func TestTopicOfFormerLeader(t *testing.T) {
	t.Parallel()
	inTopic(t, func(r *harness) {
		r.end()
		r.startWith(engine.Ports{Inbox: r.inbox, Sink: &former{Sink: r.topic.Open("events")}})
		r.grow(5, 5*time.Minute)
		r.wantState(bridge.StateIdle, "")
		r.wantObserved(bridge.ObserveTopic, bridge.TopicLost, 0)
		if lost := r.store.Checkpoint().Topics[0].Lost; lost != 0 {
			t.Errorf("the checkpoint records %d lost offsets", lost)
		}
	})
}
