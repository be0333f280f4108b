package engine

import (
	"context"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/engine/position"
)

// TestMarksAreReadBetweenBatches: the index would have events that were sent and are not
// committed, and mark the same as published again.
func TestMarksAreReadBetweenBatches(t *testing.T) {
	t.Parallel()
	h := &fixedTopic{holds: "a"}
	f := newFollower(&Engine{ports: Ports{Published: h}}, nil)
	for _, sent := range []int{1, 0} {
		p := &bridge.Page{At: bridge.Position{Cursor: "c"}, Next: "d", Events: []bridge.Event{{Raw: []byte("a"), Time: 5}}}
		f.progress = newProgress(bridge.Checkpoint{RewindEnd: &bridge.RewindEnd{CursorHash: "x"}})
		f.batch.events = sent
		must.Do(t, f.take(t.Context(), p))
		if marked := p.Events[0].Republished; marked != (sent == 0) || f.marksLoaded != marked {
			t.Errorf("with %d events sent: marked %t, topic read %t", sent, marked, f.marksLoaded)
		}
	}
}

// topicsOnly is a sink that has only topics.
type topicsOnly struct {
	bridge.Sink
	id string
}

func (s topicsOnly) Topics(context.Context) ([]bridge.TopicState, error) {
	return []bridge.TopicState{{Name: "events", ID: s.id}}, nil
}

// TestForgetsTheMarksOfAnotherTopic: what the topic before held is not in this one.
func TestForgetsTheMarksOfAnotherTopic(t *testing.T) {
	t.Parallel()
	for id, kept := range map[string]bool{"a": true, "b": false} {
		f := newFollower(&Engine{ports: Ports{Sink: topicsOnly{id: id}}}, nil)
		f.session = newSession(f.e)
		f.committed.Topics = []bridge.TopicState{{Name: "events", ID: "a"}}
		f.known.Marks, f.marksLoaded = &fixedTopic{holds: "a"}, true
		must.Do(t, f.checkTopics(t.Context()))
		if f.marksLoaded != kept {
			t.Errorf("topic %s: what topic a held is kept: %t", id, f.marksLoaded)
		}
	}
}

// TestOverlapDropsWhatTheMarksKnow: but of equal events without an id the marks do not
// tell which the overlap has dropped before, and the next one may be real.
func TestOverlapDropsWhatTheMarksKnow(t *testing.T) {
	t.Parallel()
	f := newFollower(&Engine{}, nil)
	f.known, f.marksLoaded = position.Known{Published: &fixedTopic{}, Marks: &fixedTopic{holds: "a"}}, true
	f.at.Overlap = &bridge.Overlap{}
	p := &bridge.Page{Next: "d", Events: []bridge.Event{{ID: []byte("1"), Raw: []byte("a")}, {Raw: []byte("a")},
		{ID: []byte("2"), Raw: []byte("b")}}}
	must.Do(t, f.take(t.Context(), p))
	if len(p.Events) != 2 || p.Events[0].ID != nil || f.at.Overlap.Dropped != 1 {
		t.Errorf("left are %d events, %d dropped; want the known one with an id dropped", len(p.Events), f.at.Overlap.Dropped)
	}
}
