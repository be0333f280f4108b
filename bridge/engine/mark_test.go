package engine

import (
	"context"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
)

// TestEventWithoutTimeIsMarked where the topic holds it, and never says from
// when on the topic is read.
func TestEventWithoutTimeIsMarked(t *testing.T) {
	t.Parallel()
	h := &fixedTopic{holds: "ab"}
	at := &progress{e: &Engine{ports: Ports{Published: h}}, head: bridge.Checkpoint{RewindEnd: &bridge.RewindEnd{CursorHash: "x"}}}
	p := &bridge.Page{At: bridge.Position{Cursor: "c"}, Next: "d", Events: []bridge.Event{{Raw: []byte("a"), Time: bridge.NoTime}, {Raw: []byte("b"), Time: 5}, {Raw: []byte("c"), Time: bridge.NoTime}}}
	at.markRepublished(t.Context(), p)
	if !p.Events[0].Republished || !p.Events[1].Republished || p.Events[2].Republished {
		t.Errorf("marked are %v, %v and %v, want the first two", p.Events[0].Republished, p.Events[1].Republished, p.Events[2].Republished)
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

func (h *fixedTopic) PartialIndex(_ context.Context, from time.Time, _ bridge.SourceIdentity) (bridge.PublishedIndex, error) {
	h.from = from
	return h, nil
}

func (h *fixedTopic) Match(e *bridge.Event) bool { return strings.Contains(h.holds, string(e.Raw)) }

// TestForgetsWhatATopicHeld: what another process does to the stream meanwhile
// may include a topic that was made anew, and a circle that is none any more.
func TestForgetsWhatATopicHeld(t *testing.T) {
	t.Parallel()
	f := newFollower(&Engine{}, nil)
	f.at.rewind = rewind{loaded: true, index: &fixedTopic{holds: "a"}}
	f.at.emptyCursors = f.at.emptyCursors.Add("c")
	f.forget()
	if f.at.rewind.loaded || f.at.rewind.index != nil || f.at.emptyCursors.Has("c") {
		t.Error("the next ownership goes by what the topic held in the last one, or by its empty pages")
	}
}
