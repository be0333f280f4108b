package engine

import (
	"context"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
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
