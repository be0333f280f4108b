package engine_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"exportbridge/bridge"
)

// refuse makes the export refuse the cursor of the newest checkpoint for good.
func (w *world) refuse() {
	newest := w.newest()
	if newest.Cursor == "" {
		return
	}
	w.export.refused[newest.Cursor] = true
}

// path is from which cursor each one came.
type path map[string]string

// loop makes a page with items lead back, if the export loops. Where empty pages
// have given a place many names, the stream may not have come by this one.
func (p *process) loop(page *bridge.Page) {
	x := &p.w.export
	switch back := p.path[page.At.Cursor]; {
	case indexOf(page.At.Cursor) >= x.items, page.Next == "" || page.Next == page.At.Cursor: // nothing new, or the end
	case x.loops && back != "" && !x.refused[back] && (x.contract < 'C' || !strings.Contains(back, ".")):
		page.Next = back
		x.looks(page.At.Cursor)
	default:
		if p.path == nil {
			p.path = make(path)
		}
		p.path[page.Next] = page.At.Cursor
	}
}

// lostTrack forgets the path: the stream goes elsewhere, or something was lost.
func (w *world) lostTrack() {
	w.path = nil
	for _, p := range w.procs {
		if p != nil {
			p.path = nil
		}
	}
}

// Before implements bridge.History, as cursorstore.Store does: along the branch
// that leads to what is stored.
func (p *process) Before(ctx context.Context, c bridge.Checkpoint,
	matches func(*bridge.Checkpoint) bool) (bridge.Checkpoint, error) {
	var found bridge.Checkpoint
	err := p.ask(ctx, &call{op: opBefore, note: c.Cursor, run: func(f fate) error {
		if f != fateOK {
			return errExplored
		}
		if p.w.store.value.Epoch != c.Epoch {
			return errExplored
		}
		found = p.as(p.w.store.before(c, matches))
		if found.Zero() {
			return bridge.ErrNoCheckpoint
		}
		return nil
	}})
	return found, err
}

// before returns the newest entry of the current branch below c that matches.
func (s *copyStore) before(c bridge.Checkpoint, matches func(*bridge.Checkpoint) bool) bridge.Checkpoint {
	at := s.value
	for _, e := range slices.Backward(s.history) {
		switch {
		case e.Version.Compare(at.Version) > 0, e.Epoch != at.Epoch &&
			(at.Seq != 0 || e.Cursor != at.Cursor || len(e.Tail) != len(at.Tail)):
			continue // of another branch
		case e.Version.Compare(c.Version) < 0 && matches(&e):
			return e
		}
		at = e
	}
	return bridge.Checkpoint{}
}

// Index implements bridge.PublishedEvents. All items are recent.
func (p *process) Index(ctx context.Context, since bridge.Since,
	_ bridge.SourceIdentity) (bridge.PublishedIndex, error) {
	var found *publishedItems
	err := p.ask(ctx, &call{op: opHeld, run: func(f fate) error {
		if f != fateOK {
			return errExplored
		}
		p.held = maps.Clone(p.w.topic.holds)
		if p.w.plan.windows {
			p.held = p.w.topic.events.index(since)
		}
		found = &publishedItems{counts: maps.Clone(p.held), ids: p.w.plan.ids}
		return nil
	}})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// publishedItems implements bridge.PublishedIndex.
type publishedItems struct {
	counts map[int]int
	ids    bool
}

// Match implements bridge.PublishedIndex.
func (h *publishedItems) Match(e *bridge.Event) bool {
	n := itemOf(e.Raw)
	has := h.counts[n] > 0
	if has && !h.ids {
		h.counts[n]--
	}
	return has
}

// PartialIndex implements bridge.PublishedEvents.
func (p *process) PartialIndex(ctx context.Context, _ time.Time,
	_ bridge.SourceIdentity) (bridge.PublishedIndex, error) {
	held := publishedBytes{}
	err := p.ask(ctx, &call{op: opKnown, run: func(f fate) error {
		if f == fateFail {
			return errExplored
		}
		for n := range p.w.topic.ever {
			held[n] = true
		}
		return nil
	}})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// publishedBytes is a bridge.PublishedIndex of items.
type publishedBytes map[int]bool

func (h publishedBytes) Match(e *bridge.Event) bool { return h[itemOf(e.Raw)] }

// hold notes that the topic has items.
func (x *topicOf) hold(items []int) {
	for _, n := range items {
		x.holds[n]++
	}
}

// waive notes which items a reset, or the policy about lost data, left out.
func (w *world) waive(c bridge.Checkpoint) {
	x := &w.topic
	if w.plan.windows {
		return // rewound does
	}
	for n := range reached(c) {
		x.waived[n] = x.waived[n] || x.holds[n] == 0
	}
}

// detoured checks an epoch that begins because the export refused the cursor.
func (w *world) detoured(last, c bridge.Checkpoint) {
	switch {
	case w.plan.refused == "" || len(w.export.refused)+len(w.export.looped) == 0:
		w.fail(ruleDetour, "%s leaves cursor %q, and no cursor was refused", c.Version, last.Cursor)
	case w.lossy || w.switched || !w.exactly:
	case !w.export.refused[last.Cursor] && !w.export.looped[last.Cursor]:
		w.fail(ruleDetour, "%s leaves cursor %q, which is not refused", c.Version, last.Cursor)
	case c.Seq != 0 || c.Epoch != last.Epoch+1 || reached(c) > reached(last):
		w.fail(ruleDetour, "%s goes to item %d, %s was at item %d", c.Version, reached(c), last.Version, reached(last))
	}
}

// overlapped checks a commit of a stream that reads a part of the export again.
func (w *world) overlapped(c bridge.Checkpoint, items []int) {
	x := &w.topic
	for _, n := range items {
		if x.holds[n] > 0 {
			w.fail(ruleDetour, "%s publishes item %d, which the topic holds", c.Version, n)
		}
	}
	for n := range reached(c) {
		if x.holds[n] == 0 && !x.waived[n] && !x.taken[n] && !slices.Contains(items, n) {
			w.fail(ruleDetour, "%s passes item %d, which the topic does not hold", c.Version, n)
		}
	}
	x.next = reached(c)
}

// between lists the items that a commit must hold.
func (p *process) between(from, to bridge.Checkpoint) []int {
	want := between(from, to)
	if to.Overlap != nil && (from.Overlap == nil || !from.Overlap.Done) {
		want = slices.DeleteFunc(want, func(n int) bool { return p.held[n] > 0 })
	}
	return want
}
