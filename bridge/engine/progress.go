package engine

import (
	"context"
	"fmt"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/engine/position"
	"exportbridge/bridge/internal/failpoint"
)

// progress is where the stream is, and what is remembered of the way there. It
// begins anew when the stream is moved, or another process has had it. Owned
// by the commit loop.
//
// Half of it is committed. The other half goes ahead by the pages that are taken
// and not committed yet: adopt makes it part of the first, rollback drops it.
type progress struct {
	e *Engine

	// cp is the committed checkpoint, head what it becomes with the next commit.
	cp, head bridge.Checkpoint
	// empty goes with head, kept with cp: a restart reads pages once more, and
	// must not count them twice.
	empty, committedEmpty position.EmptyRun
	left, committedLeft   uint64 // of the last page with items that was left behind
	visited               position.Visited
	emptyCursors          position.Visited // the empty pages since the last one with items
	committedVisited      [2]position.Visited
	trimmer               *position.Trimmer
	batch                 batch
	repeats               position.Repeats // of the page taken last
	older                 older
	full                  bool                  // it was full, and named no other page
	unread                bridge.Unread         // what it had in place of a next page
	found                 bridge.Observation    // what trim found since the last commit
	published             bridge.PublishedIndex // what the topic holds, during an overlap
	rewind                rewind                // or a part of it, during a rewind

	// stale is true while cp is known to be behind what the store holds.
	stale bool
	// rival is what the store holds in place of cp, while the two contradict
	// each other and an operator must decide.
	rival bridge.Checkpoint
}

// newProgress goes on from c with nothing else remembered: the zero Checkpoint
// is a stream of which nothing is known.
func newProgress(e *Engine, c bridge.Checkpoint) progress {
	at := progress{
		e: e, cp: c, head: c, empty: position.EmptyRun{Allowance: position.EmptyAllowance}, committedEmpty: position.EmptyRun{Allowance: position.EmptyAllowance},
		visited: position.RecentVisited(c.RecentCursors), trimmer: position.NewTrimmer(e.cfg.divertsShared()),
	}
	at.committedVisited[0] = at.visited
	return at
}

// adopt makes a durable checkpoint, and what was remembered on the way to it,
// the state that everything goes on from.
func (at *progress) adopt(c bridge.Checkpoint) {
	at.cp, at.head, at.committedEmpty, at.committedLeft = c, c, at.empty, at.left
	at.head.MarksEnd = c.MarksEnd || at.e.cfg.MarksEnd
	at.stale, at.rival = false, bridge.Checkpoint{}
	at.committedVisited = [2]position.Visited{at.visited, at.emptyCursors}
	at.trimmer.Commit()
	if c.RewindEnd == nil {
		at.rewind = rewind{}
	}
}

// rejoin is called before the adoption of a checkpoint that may come from
// another process: where it is not the one that this process was at, the way to
// it is another's too, and so are the items that were seen there.
func (at *progress) rejoin(c bridge.Checkpoint) {
	if c.Version != at.cp.Version || c.Cursor != at.cp.Cursor || c.Session != at.cp.Session {
		at.visited, at.emptyCursors = position.RecentVisited(c.RecentCursors), position.Visited{}
		at.trimmer.Forget()
		at.left = 0
	}
	if c.Epoch != at.cp.Epoch || c.ChangeID() != at.cp.ChangeID() { // who began it may have accepted another topic
		at.rewind = rewind{}
	}
}

// rollback goes back to the last commit.
func (at *progress) rollback() {
	at.head, at.empty, at.left = at.cp, at.committedEmpty, at.committedLeft
	at.head.MarksEnd = at.cp.MarksEnd || at.e.cfg.MarksEnd
	at.batch, at.found, at.published = batch{}, bridge.Observation{}, nil
	at.visited, at.emptyCursors = at.committedVisited[0], at.committedVisited[1]
	at.trimmer.BackTo(0)
}

// mark is where the stream stands between two pages.
type mark struct {
	head         bridge.Checkpoint
	empty        position.EmptyRun
	left         uint64
	found        bridge.Observation
	visited      position.Visited
	emptyCursors position.Visited
	forms        int
}

func (at *progress) mark() mark {
	return mark{head: at.head, empty: at.empty, left: at.left, found: at.found, visited: at.visited, emptyCursors: at.emptyCursors, forms: at.trimmer.Pending()}
}

func (at *progress) backTo(m mark) {
	at.head, at.empty, at.left, at.found = m.head, m.empty, m.left, m.found
	at.visited, at.emptyCursors = m.visited, m.emptyCursors
	at.trimmer.BackTo(m.forms)
}

// take moves head over one page: it checks that the page belongs to the
// stream, trims it, and derives the position after it.
func (at *progress) take(ctx context.Context, p *bridge.Page) error {
	digest := p.Digest()
	at.repeats = position.MarkBorder(p, &at.head.Border)
	if at.repeats.Same || digest != 0 && digest == at.left {
		position.MarkInclusiveEnd(p, at.e.cfg.PageSize, &at.repeats)
	}
	if at.repeats.Whole && (digest != at.left || p.Tail()) {
		digest = 0 // as an empty page
	}
	if at.e.cfg.window() && p.Unread.Where != "" {
		return p.Unread.Fault()
	}
	if err := at.checkOlder(p); err != nil {
		return err
	}
	if err := at.checkPage(p, digest); err != nil {
		return err
	}
	border := at.nextBorder(p)
	if err := at.trim(p); err != nil {
		return err
	}
	at.head.Border = border
	at.found.AtBorder += position.DropBorder(p)
	at.dropPublished(ctx, p)
	if err := at.checkReadable(p); err != nil {
		return err
	}
	at.count(p)
	at.markRepublished(ctx, p)
	at.noteTimes(p)
	if p.Tail() {
		at.noteTail(p)
	} else {
		at.advance(p, digest)
	}
	return nil
}

// trim drops from a page what is published of it already.
func (at *progress) trim(p *bridge.Page) error {
	h := &at.head
	limit := at.e.cfg.tailLimit()
	t := at.trimmer.Trim(p, h.Tail, h.Carried, limit)
	if len(t.Tail) > limit {
		return &bridge.Fault{
			Class: bridge.Permanent, Code: "tail", Reason: bridge.ReasonTail,
			Advice: bridge.HintTail,
			Err:    fmt.Errorf("the last page has %d items, the limit is %d", len(t.Tail), limit),
		}
	}
	at.found.Repeated += t.Repeated
	at.found.Shared += t.Shared
	at.found.Vanished += t.Vanished
	at.found.Changed += t.Changed
	h.Tail, h.Carried = t.Tail, t.Carried
	if failpoint.Broken(failpoint.BreakTail) {
		h.Tail = nil
	}
	return nil
}

// nextBorder returns the border after a page, of which nothing is dropped yet. While
// the cursor stays, and over a page without other items, that of the page before stays.
func (at *progress) nextBorder(p *bridge.Page) bridge.Border {
	b, r := at.head.Border, at.repeats
	if p.Tail() {
		b.TailFrom = position.TailFrom(p, b.TailFrom, len(at.head.Tail) == 0)
		return b
	}
	b.TailFrom = 0
	hold := position.Hold(b.Hold, r, max(at.e.cfg.PageSize, len(p.Events)))
	if r.Full && hold > max(b.Hold, position.LeastHold) { // said once: then as much is kept
		at.e.log.Warn("pages overlap by all items kept of the page before: earlier ones may be published twice", "items", r.Items, "kept_next", hold)
		at.e.observe(bridge.Observation{What: bridge.ObserveStuck, Code: bridge.StuckBorder})
	}
	if b.Hold = hold; hold == position.LeastHold {
		b.Hold = 0
	}
	if len(p.Events) > 0 && !r.Whole {
		position.KeepItems(&b, p, hold)
	}
	if p.At.Cursor == "" && p.Items > 0 {
		b.FirstNext = bridge.DigestCursor(p.Next)
	}
	return b
}

// noteTail notes a page that is the end of the results.
func (at *progress) noteTail(p *bridge.Page) {
	h := &at.head
	h.MarksEnd = h.MarksEnd || p.Next == "" || at.empty.AtTail
	at.unread = p.Unread
	h.Drained, h.EndedEmpty = at.endIsFinal(p) && p.Unread.Where == "", 0
	h.PositionTime, h.PositionByAPI = bridge.Millis(p.AsOf()), !p.ServerTime.IsZero()
	if p.Unread.Where != "" { // what is missing is not known to be published
		h.PositionTime = min(h.LastEventTime, h.PositionTime)
	}
	at.empty.Tail()
	at.full = p.Unread.Where != "" || p.Items >= at.e.cfg.PageSize && (p.Next != "" || !at.e.cfg.EndExplicit)
	switch {
	case at.full && p.Next == "":
		at.e.observe(bridge.Observation{What: bridge.ObserveStuck, Code: bridge.StuckFullPage})
	case at.full && len(p.Events) == 0:
		at.e.observe(bridge.Observation{What: bridge.ObserveStuck, Code: "full-tail"})
	}
}

// advance moves on to the cursor that a page names.
func (at *progress) advance(p *bridge.Page, digest uint64) {
	h := &at.head
	h.Cursor, h.Drained = p.Next, false
	at.full, at.unread, at.older = false, bridge.Unread{}, older{}
	h.Pages++
	h.AdvanceTime = bridge.Millis(p.Time())
	// A client's clock may be years ahead; the export is not.
	h.PositionTime = max(h.PositionTime, min(h.LastEventTime, bridge.Millis(p.AsOf())))
	at.empty.AtTail, at.empty.Circles = false, false
	if p.Items > 0 && !at.repeats.Whole {
		at.visited, at.emptyCursors = at.visited.Add(p.At.Cursor), position.Visited{}
		at.empty.Filled(p, h.LastEventTime)
		at.left = digest
		return
	}
	at.noteEmpty(p)
}

// endMark is how the page that was taken last marked the end of the results, or
// ContractUnknown if it did not.
func (at *progress) endMark(p *bridge.Page) bridge.Contract {
	switch {
	case p.Tail() && p.Next == "":
		return bridge.ContractEmptyCursor
	case p.Tail(), at.empty.Circles && !at.e.cfg.window():
		return bridge.ContractEmptyItems
	}
	return bridge.ContractUnknown
}

// noteEmpty notes an empty page that leads on. One that leads back to an empty page
// is the end of the results, since nothing lies between: some APIs hand out two
// cursors in turn there. The stream follows it all the same, because what comes
// next may be listed under either.
func (at *progress) noteEmpty(p *bridge.Page) {
	h := &at.head
	at.empty.Circles = at.emptyCursors.Has(p.Next)
	at.emptyCursors = at.emptyCursors.Add(p.At.Cursor)
	at.empty.Skipped(p, max(h.LastEventTime, h.Origin.Start))
	if !at.empty.Continues(h.MarksEnd) {
		h.RewindEnd = nil
	}
	switch {
	case at.e.cfg.window() && (at.empty.Circles || !h.MarksEnd) && at.empty.Empties >= at.e.cfg.EmptyPages && at.endIsFinal(p):
		if h.Drained = true; !at.empty.Circles {
			h.EndedEmpty = at.empty.Empties
		}
	case at.empty.Circles && !at.e.cfg.window():
		h.Drained, h.MarksEnd = true, true
		h.PositionTime, h.PositionByAPI = bridge.Millis(p.AsOf()), !p.ServerTime.IsZero()
	}
}

// endIsFinal reports whether the end of the results at p is final for what the
// stream exports. A window that lies partly in the future is not over before
// its end has passed, by the server's clock if it tells.
func (at *progress) endIsFinal(p *bridge.Page) bool {
	return !at.e.cfg.window() || !p.Time().Before(time.UnixMilli(at.e.cfg.Origin.End))
}

// checkPage refuses pages that must not be published.
func (at *progress) checkPage(p *bridge.Page, digest uint64) error {
	switch {
	case len(p.Next) > bridge.MaxCursor:
		return &bridge.Fault{
			Class: bridge.Permanent, Code: "cursor", Reason: bridge.ReasonCursor,
			Advice: bridge.HintCursorTooLong,
			Err:    fmt.Errorf("the next cursor has %d bytes, the limit is %d", len(p.Next), bridge.MaxCursor),
		}
	case position.IsFirstPage(p, at.head.Border.FirstNext) && !at.repeats.Whole:
		return &bridge.Fault{
			Class: bridge.BadCursor, Code: "first-page", Reason: bridge.ReasonCursor, Advice: bridge.HintCursorRefused,
			Err: fmt.Errorf("the API answered cursor %s with the first page: it leads to cursor %s again", bridge.CursorHash(p.At.Cursor), bridge.CursorHash(p.Next)),
		}
	case !p.Tail() && at.visited.Has(p.Next):
		return at.stuck(bridge.HintCycle, fmt.Errorf("page at cursor %s leads back to cursor %s", bridge.CursorHash(p.At.Cursor), bridge.CursorHash(p.Next)))
	case digest != 0 && digest == at.left && p.Items > 1, at.repeats.Same:
		return at.stuck(bridge.HintCursorIgnored, fmt.Errorf("page at cursor %s has the same %d items as the page before", bridge.CursorHash(p.At.Cursor), p.Items))
	}
	if len(p.Next) > warnCursor && len(at.head.Cursor) <= warnCursor {
		at.e.log.Warn("long cursor", "bytes", len(p.Next), "limit", bridge.MaxCursor)
	}
	return at.checkSource(p.Source)
}

func (at *progress) stuck(advice bridge.Hint, err error) error {
	at.e.observe(bridge.Observation{What: bridge.ObserveStuck, Code: "cycle"})
	return &bridge.Fault{Class: bridge.Malformed, Code: "cycle", Reason: bridge.ReasonCycle, Advice: advice, Err: err}
}

// checkSource keeps two tenants from mixing in one topic.
func (at *progress) checkSource(got bridge.SourceIdentity) error {
	have := &at.head.Source
	if got == (bridge.SourceIdentity{}) || got == *have {
		return nil
	}
	if *have == (bridge.SourceIdentity{}) {
		if news := at.head.RewindEnd; news != nil && news.Source != (bridge.SourceIdentity{}) && news.Source != got {
			at.head.RewindEnd = nil
		}
		*have = got
		return nil
	}
	return have.Conflict(got)
}

// count adds the page's events to head.
func (at *progress) count(p *bridge.Page) {
	h := &at.head
	h.Events += int64(len(p.Events))
	for i := range p.Events {
		e := &p.Events[i]
		if e.Defect == bridge.DefectNone && e.Time > h.LastEventTime {
			h.LastEventTime = min(e.Time, bridge.MaxNumber)
		}
		if e.Defect == bridge.DefectNone && e.Key == nil {
			at.found.Keyless++
		}
	}
}

// timesOfPage is how many times of events are noted of a page, for their way to
// be measured. It is not worth more: the times of a page are close together.
const timesOfPage = 8

// noteTimes notes the times of some of the page's events. Those that a rewind
// publishes once more are no news to anybody.
func (at *progress) noteTimes(p *bridge.Page) {
	step := max(1, len(p.Events)/timesOfPage)
	for i := step - 1; i < len(p.Events); i += step {
		if e := &p.Events[i]; e.Defect == bridge.DefectNone && e.Time != bridge.NoTime && !e.Republished {
			at.found.Times = append(at.found.Times, e.Time)
			at.batch.position = e.Time
		}
	}
}

// worthCommit reports whether head is worth a commit: it has events, ended a
// window or an overlap, saw for the first time how the API marks its end, or moved
// over empty pages long after the last commit.
func (at *progress) worthCommit(b batch, last time.Time) bool {
	switch {
	case b.events > 0, b.due:
		return true
	case at.e.cfg.window() && at.head.Drained && !at.cp.Drained:
		return true
	case at.head.MarksEnd && !at.cp.MarksEnd && !at.e.cfg.MarksEnd:
		return true
	case at.head.Overlap != nil && at.head.Overlap.Done && (at.cp.Overlap == nil || !at.cp.Overlap.Done):
		return true
	case at.empty.Continues(at.head.MarksEnd):
		return at.head.Cursor != at.cp.Cursor && time.Since(last) >= emptyCommit
	}
	return at.head.Cursor != at.cp.Cursor && time.Since(last) >= heartbeatInterval // each poll may bring another
}
