package engine_test

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/engine"
	"exportbridge/bridge/windows"
)

// listStart is where a stream begins that follows windows, in milliseconds since the
// epoch: a minute before the schedule.
const listStart = 946_684_740_000

// listedItem is an item of a list that is no cursor: when it was, and from when on the list
// shows it, in milliseconds since the epoch.
type listedItem struct{ at, shown int64 }

// movingList is a list that is no cursor, and what the topic must have of it.
type movingList struct {
	items              []listedItem
	lookBack, lateness time.Duration // of new processes, and of the items at most
	from               int64         // where the stream has begun at the earliest
	leftOut            int64         // a reset left out what is before, and what is added there
	before             map[int]int   // copies of items that count no more since a reset
	most               int64         // the highest leftOut
}

// begin makes the first items.
func (w *world) begin() {
	back := map[byte]time.Duration{'A': 20 * time.Second, 'C': time.Minute, 'D': 5 * time.Second}[w.plan.contract]
	w.list = movingList{lookBack: back, lateness: back, from: listStart, before: make(map[int]int)}
	if w.plan.contract == 'D' {
		w.list.lateness = time.Minute
	}
	if w.add(5); w.plan.windows {
		w.add(2)
	}
}

// listSettings are the settings of how the list is followed.
func (w *world) listSettings(who int) windows.Config {
	c := windows.DefaultConfig()
	c.Follow, c.LookBack, c.Settle = bridge.FollowWindows, w.list.lookBack, 2*time.Second
	c.PageSize, c.MaxBytes, c.Timeout = 3, 1<<20, 5*time.Minute
	if w.plan.contract == 'C' { // a window has more parts
		c.PageSize, c.EndExplicit = 2, true
	}
	if w.plan.contract == 'B' || w.plan.contract == 'C' { // the instances differ in how long a window is
		c.MaxWindow = time.Duration(50-25*who) * time.Second
	}
	if w.plan.contract == 'D' { // and has room for two new items
		c.Late, c.MaxBytes = "1m/1m", 2000
	}
	return c
}

// follow makes the settings of an engine those of a stream that follows windows.
func (w *world) follow(cfg *engine.Config) {
	if w.plan.windows {
		lister := w.listSettings(0)
		cfg.LookBack, cfg.MarksEnd = lister.Reach(), true
		cfg.Origin.Follow, cfg.Origin.Start = bridge.FollowWindows, listStart
	}
}

// source is where a process requests pages.
func (p *process) source() bridge.Source {
	if p.w.plan.windows {
		return windows.New(p, p.w.listSettings(p.who%2))
	}
	return p
}

// add makes the export have n more items. A list shows some of them late, within the
// look-back and EXPORT_LATE of its first settings, less what rounding to seconds takes.
func (w *world) add(n int) {
	w.export.items += n
	for n := len(w.list.items); w.plan.windows && n < w.export.items; n++ {
		e := listedItem{at: time.Now().UnixMilli() - int64(n%3)*700}
		if w.step == 0 {
			e.at = listStart - 5000 + int64(n*8007) // item 0 is before the start
		}
		late := w.list.lateness.Milliseconds()
		e.shown = e.at + []int64{0, late + 900, 0, late / 2, 0, 0, late + 1900}[n%7]
		w.topic.waived[n] = e.at < w.list.leftOut
		w.list.items = append(w.list.items, e)
	}
}

// page is a page of the list: newest first, below the item that the cursor names. Bounds
// may be inclusive or exclusive.
func (w *world) page(at bridge.Position) *bridge.Page {
	now := time.Now()
	p := &bridge.Page{At: at, RequestedAt: now, ArrivedAt: now, ServerTime: now.Truncate(time.Second), Recycle: spoil}
	last, _ := strconv.Atoi(at.Cursor)
	var shown []int
	for n, e := range w.list.items {
		from := e.at > at.Start || e.at == at.Start && w.plan.order%2 == 0
		to := e.at < at.End || e.at == at.End && w.plan.order%3 == 0
		below := at.Cursor == "" || w.newer(last, n) < 0
		if from && to && below && e.shown <= now.UnixMilli() {
			shown = append(shown, n)
		}
	}
	slices.SortFunc(shown, w.newer)
	if len(shown) >= w.export.size { // a full page without a next one were a cut
		shown = shown[:w.export.size]
		p.Next = strconv.Itoa(shown[len(shown)-1])
	}
	for _, n := range shown {
		p.Body = append(strconv.AppendInt(append(strconv.AppendInt(p.Body, int64(n), 10), ' '), w.list.items[n].at, 10), '\n')
	}
	return p
}

func (w *world) newer(a, b int) int {
	return cmp.Or(cmp.Compare(w.list.items[b].at, w.list.items[a].at), b-a)
}

// splitTime takes the time off an item of the list.
func splitTime(line []byte) (item []byte, at int64) {
	item, text, _ := bytes.Cut(line, []byte(" "))
	at, _ = strconv.ParseInt(string(text), 10, 64)
	return item, at
}

// markOf is the watermark of a checkpoint, and whether it is one between two windows.
func markOf(c bridge.Checkpoint) (at int64, whole bool) {
	position := c.Position()
	mark, _ := position.Watermark()
	return mark.At, mark.Part == 0
}

// index is bridge.PublishedEvents of a stream that follows windows: what is behind the
// ends that its mark has, and nothing else.
func (e *events) index(since bridge.Since) map[int]int {
	from := int64(0)
	if t := bridge.FindTopic(since.Topics, "events"); t != nil && t.ID == e.id() && len(t.Ends.Offsets()) > 0 {
		from = t.Ends.Offsets()[0] - e.start
	}
	counts := make(map[int]int)
	for _, n := range e.log[max(0, min(from, int64(len(e.log)))):] {
		counts[n]++
	}
	return counts
}

// extents adds to the state of a topic what a mark needs.
func (w *world) extents(t []bridge.TopicState) []bridge.TopicState {
	if w.plan.windows {
		t[0].Ends = bridge.EncodeEnds([]int64{t[0].End})
	}
	return t
}

// target is an operator's reset to the beginning, to an item, or to an earlier watermark.
func (w *world) target(item int) bridge.Target {
	switch {
	case !w.plan.windows && item == 0:
		return bridge.Target{}
	case !w.plan.windows:
		return bridge.Target{Cursor: w.export.cursor(item)}
	case item == 0:
		return bridge.Target{Start: listStart - 10_000}
	case w.step%3 == 0 && len(w.store.history) > 0: // within a window, if there is one
		for _, c := range slices.Backward(w.store.history) {
			if _, whole := markOf(c); !whole {
				return stay(c)
			}
		}
		return stay(w.store.value)
	case w.step%3 == 1:
		item = len(w.list.items) - 4
	}
	at := w.list.items[item].at
	return bridge.Target{Start: at - at%1000}
}

// rewound notes what a reset makes the stream publish once more, or leave out.
func (w *world) rewound(last, c bridge.Checkpoint) {
	to, _ := markOf(c)
	was, _ := markOf(last)
	w.list.from = min(w.list.from, to)
	if to > was || w.repeats() {
		w.list.leftOut = to
	}
	stays := last.Cursor != "" && last.Cursor == c.Cursor && c.Listing != nil // what is published counts on
	for n, e := range w.list.items {
		switch {
		case stays && e.at >= to:
		case e.at >= to:
			w.list.before[n] = w.topic.holds[n]
			w.topic.waived[n] = false
		case w.copies(n) == 0 && (to > was || last.Zero() || w.repeats() &&
			(w.contested() || w.lossy)): // who applies it may be behind
			w.topic.waived[n] = true
		}
	}
	w.list.most = max(w.list.most, w.list.leftOut)
}

// unwound notes that the store may have lost resets: those before them count again, and what
// they left out is not published.
func (w *world) unwound() {
	if !w.plan.windows || !w.repeats() {
		return
	}
	w.list.leftOut = w.list.most
	for n, e := range w.list.items {
		if e.at < w.list.leftOut && w.copies(n) == 0 {
			w.topic.waived[n] = true
		}
	}
}

// copies is how often the topic holds an item, of what counts since the last reset.
func (w *world) copies(n int) int {
	if w.repeats() {
		return w.topic.holds[n]
	}
	return w.topic.holds[n] - w.list.before[n]
}

// repeats reports whether the topic may hold an item twice.
func (w *world) repeats() bool { return !w.exactly || w.switched }

// listing checks an entry of the log of a stream that follows windows.
func (w *world) listing(c bridge.Checkpoint, items []int) {
	for _, n := range items {
		switch {
		case w.repeats():
		case w.copies(n) > 0:
			w.fail(ruleOnce, "%s publishes item %d, which the topic holds", c.Version, n)
		case w.list.items[n].at < w.list.from:
			w.fail(ruleFloor, "%s publishes item %d, which is before the start", c.Version, n)
		}
	}
	w.covers(c, items)
	w.topic.next = reached(c)
}

// covers checks that a watermark passes no item that the list showed in time: what was
// shown when the window was listed is published with it, or was before.
func (w *world) covers(c bridge.Checkpoint, items []int) {
	mark, whole := markOf(c)
	if !whole {
		return
	}
	for n, e := range w.list.items {
		if w.plan.contract == 'D' && e.at < mark-5000 {
			continue // listed again once a minute
		}
		if e.at < mark && e.shown <= mark+2000 && w.owes(n) && !slices.Contains(items, n) {
			w.fail(ruleCovers, "%s moves the watermark to %d past item %d of %d, shown at %d", c.Version, mark, n, e.at, e.shown)
		}
	}
}

// owes reports whether the topic lacks an item that it must have. Where a reset may be
// lost, what is before the start is not among them.
func (w *world) owes(n int) bool {
	from := w.list.from
	if w.repeats() {
		from = listStart
	}
	return w.list.items[n].at >= from && !w.topic.waived[n] && w.copies(n) == 0
}

// missing is an item that is not published yet, or "".
func (w *world) missing() string {
	for n := range w.list.items {
		if w.owes(n) {
			return fmt.Sprintf("item %d is not published", n)
		}
	}
	return ""
}

// raise doubles the look-back of the processes that begin from now on.
func (w *world) raise(who int) {
	w.list.lookBack = max(10*time.Second, 2*w.list.lookBack)
	w.crash(who, false)
}

// behind says what the stream lacks at a checkpoint, "" if it has all.
func (w *world) behind(at bridge.Checkpoint) string {
	switch {
	case w.plan.windows:
		return w.missing()
	case reached(at) != w.export.items:
		return fmt.Sprintf("the stream is at item %d of %d", reached(at), w.export.items)
	}
	return ""
}
