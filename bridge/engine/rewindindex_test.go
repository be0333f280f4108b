package engine

import (
	"context"
	"testing"

	"exportbridge/bridge"
)

// TestMarksAreReadBetweenBatches: the index would have events that were sent and are not
// committed, and mark the same as published again.
func TestMarksAreReadBetweenBatches(t *testing.T) {
	t.Parallel()
	h := &fixedTopic{holds: "a"}
	at := &progress{e: &Engine{ports: Ports{Published: h}}, head: bridge.Checkpoint{RewindEnd: &bridge.RewindEnd{CursorHash: "x"}}}
	for _, sent := range []int{1, 0} {
		p := &bridge.Page{At: bridge.Position{Cursor: "c"}, Next: "d", Events: []bridge.Event{{Raw: []byte("a"), Time: 5}}}
		at.batch.events = sent
		at.markRepublished(t.Context(), p)
		if marked := p.Events[0].Republished; marked != (sent == 0) || at.rewind.loaded != marked {
			t.Errorf("with %d events sent: marked %t, topic read %t", sent, marked, at.rewind.loaded)
		}
	}
}

// topicsOnly is a sink that is asked for its topics.
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
		f.at.cp.Topics = []bridge.TopicState{{Name: "events", ID: "a"}}
		f.at.rewind = rewind{loaded: true, index: &fixedTopic{holds: "a"}}
		r := recovery{f}
		if err := r.checkTopics(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f.at.rewind.loaded != kept {
			t.Errorf("topic %s: what topic a held is kept: %t", id, f.at.rewind.loaded)
		}
	}
}

// TestOverlapDropsWhatTheMarksKnow: but of equal events without an id the marks do not
// tell which the overlap has dropped before, and the next one may be real.
func TestOverlapDropsWhatTheMarksKnow(t *testing.T) {
	t.Parallel()
	at := &progress{e: &Engine{}, published: &fixedTopic{}, rewind: rewind{loaded: true, index: &fixedTopic{holds: "a"}}}
	at.head.Overlap = &bridge.Overlap{}
	p := &bridge.Page{Next: "d", Events: []bridge.Event{{ID: []byte("1"), Raw: []byte("a")}, {Raw: []byte("a")}, {ID: []byte("2"), Raw: []byte("b")}}}
	at.dropPublished(t.Context(), p)
	if len(p.Events) != 2 || p.Events[0].ID != nil || at.head.Overlap.Dropped != 1 {
		t.Errorf("left are %d events, %d dropped; want the known one with an id dropped", len(p.Events), at.head.Overlap.Dropped)
	}
}
