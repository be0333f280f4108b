package engine

import (
	"context"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/engine/position"
)

// TestEventWithoutTimeIsMarked where the topic holds it, and never says from
// when on the topic is read.
func TestEventWithoutTimeIsMarked(t *testing.T) {
	t.Parallel()
	h := &fixedTopic{holds: "ab"}
	f := newFollower(&Engine{ports: Ports{Published: h}}, nil)
	f.at.RewindEnd = &bridge.RewindEnd{CursorHash: "x"}
	p := &bridge.Page{At: bridge.Position{Cursor: "c"}, Next: "d",
		Events: []bridge.Event{{Raw: []byte("a"), Time: bridge.NoTime}, {Raw: []byte("b"), Time: 5},
			{Raw: []byte("c"), Time: bridge.NoTime}}}
	must.Do(t, f.take(t.Context(), p))
	if !p.Events[0].Republished || !p.Events[1].Republished || p.Events[2].Republished {
		t.Errorf("marked are %v, %v and %v, want the first two", p.Events[0].Republished, p.Events[1].Republished,
			p.Events[2].Republished)
	}
	if h.from.UnixMilli() != 5 {
		t.Errorf("the topic is read from %v on, want the only time there is", h.from)
	}
}

// fixedTopic is a topic of events of one byte each.
type fixedTopic struct {
	bridge.PublishedEvents
	holds string
	from  time.Time
}

func (h *fixedTopic) PartialIndex(_ context.Context, from time.Time,
	_ bridge.SourceIdentity) (bridge.PublishedIndex, error) {
	h.from = from
	return h, nil
}

func (h *fixedTopic) Match(e *bridge.Event) bool { return strings.Contains(h.holds, string(e.Raw)) }

// TestForgetsWhatATopicHeld: while another process runs the stream, the topic may be
// recreated, and a cycle of cursors may end.
func TestForgetsWhatATopicHeld(t *testing.T) {
	t.Parallel()
	f := newFollower(&Engine{}, nil)
	f.known.Marks, f.marksLoaded = &fixedTopic{holds: "a"}, true
	leads := func(from, to string) (circles bool) {
		must.Do(t, f.take(t.Context(), &bridge.Page{At: bridge.Position{Cursor: from}, Next: to}))
		return f.at.Empty.Circles
	}
	if leads("b", "c") || !leads("c", "b") {
		t.Error("two empty pages that lead to each other are no circle")
	}
	(&ownerLoop{follower: f}).forget()
	if f.marksLoaded || f.known.Marks != nil || leads("c", "b") {
		t.Error("the next ownership goes by what the topic held in the last one, or by its empty pages")
	}
}

// TestRollbackForgetsWhatAPageTaught: what a page says of the tail is found again when it
// is read once more, since the first time was not counted.
func TestRollbackForgetsWhatAPageTaught(t *testing.T) {
	t.Parallel()
	e := &Engine{}
	e.rules.TailLimit = 10
	f := newFollower(e, nil)
	take := func(items ...string) {
		p := &bridge.Page{At: bridge.Position{Cursor: "c"}, Items: len(items)}
		for _, id := range items {
			p.Events = append(p.Events, bridge.Event{ID: []byte(id[:1]), Raw: []byte(id)})
		}
		must.Do(t, f.take(t.Context(), p))
	}
	take("a", "b")
	f.adopt(f.at.Checkpoint)
	f.found = bridge.Observation{}
	for range 2 {
		if take("a2"); f.found.Changed != 1 || f.found.Vanished != 1 {
			t.Errorf("%d items changed, %d vanished; want one each", f.found.Changed, f.found.Vanished)
		}
		f.rollback()
	}
}

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
