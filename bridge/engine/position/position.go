package position

import (
	"slices"
	"time"

	"exportbridge/bridge"
)

// Position is where a stream is, and what it remembers of the pages before. It is a value:
// Take returns the next position and does not change this one, so that an assignment undoes
// a page. Values made from one value share lookup tables, so all of them must stay on one
// goroutine.
type Position struct {
	// Checkpoint is the checkpoint of a commit at this position. Fields that only a commit
	// sets, such as version and writer, are still those of the last commit.
	bridge.Checkpoint
	// Empty is undone with the checkpoint, so that pages that are read again do not count
	// twice.
	Empty EmptyRun
	// Trusted is the FirstItems of a page that checkOlder suspected and that is not the
	// first page; 0 is none.
	Trusted uint64

	left         uint64 // Page.Digest of the last page with items before the cursor
	visited      Visited
	emptyCursors Visited // cursors of the empty pages since the last page with items
	forms        forms
	passed       bool  // the page where the rewind began was read
	relisted     int64 // newest event time on the pages of the overlap
	scratch      *scratch
}

// Rules are the engine's settings for Take.
type Rules struct {
	PageSize, EmptyPages    int
	TailLimit               int   // maximum number of items in a tail
	End                     int64 // Origin.End of a window
	MarksEnd, EndExplicit   bool
	CursorHeeded            bool // see Heeded
	DivertAll, DivertShared bool // to the dead letters: unreadable items, items that share an id
	Overlap                 time.Duration
	Listing                 bool          // the cursor is a bridge.Watermark
	LookBack                time.Duration // only with Listing
}

func (r *Rules) window() bool { return r.End != 0 }

// Known is what the topic already has. It is loaded before Take.
type Known struct {
	// Published has all events published since Overlap.From. It is required while Overlaps
	// returns true.
	Published bridge.PublishedIndex
	// Marks has events that were published before a rewind, perhaps not all; nil if none is
	// known. It is required once MarksFrom returns ok.
	Marks bridge.PublishedIndex
}

// Findings is what Take found on a page.
type Findings struct {
	// Repeats counts the items of the page before. AtBorder of them were dropped.
	Repeats
	AtBorder int
	Repeated int // dropped items: an earlier item of the page has the same id and bytes
	Shared   int // kept items: an earlier item has the same id and other bytes
	Vanished int // items of the tail that the API no longer lists
	Changed  int // items of the tail that the API listed with other bytes
	Keyless  int // events without a key that no route drops
	// Widened is the new number of items to keep of a page, if the page repeats all kept
	// items: earlier ones may be published twice. Otherwise it is 0.
	Widened int
	// FullEnd is true if the page was full and named no next page. Unread is what the page
	// had instead.
	FullEnd bool
	Unread  bridge.Unread
	// FirstAgain is true if the cursor of the first page led to the first page, which names that cursor: it
	// has all items, or the API ignores the cursor.
	FirstAgain bool
	// Mark is how the page marked the end of the results; ContractUnknown if it did not.
	Mark bridge.Contract
	// Suspect is the FirstItems of a page that is rejected with CodeOlder.
	Suspect uint64
}

// Begin returns the position at c without memory of earlier pages. The zero Checkpoint is
// the beginning of a new stream.
func Begin(c bridge.Checkpoint) Position {
	return Position{
		Checkpoint: c, Empty: EmptyRun{Allowance: EmptyAllowance},
		visited: recentVisited(c.RecentCursors), scratch: &scratch{left: make(map[bridge.Identity]int)},
	}
}

// Rejoin returns the position at a checkpoint that may come from another process. If it
// does, Rejoin drops the cursors and items that this process has seen.
func (at Position) Rejoin(c bridge.Checkpoint) Position {
	if c.Version != at.Version || c.Cursor != at.Cursor || c.Session != at.Session {
		at.visited, at.emptyCursors = recentVisited(c.RecentCursors), Visited{}
		at.forms, at.left, at.relisted = forms{}, 0, 0
	}
	at.passed = at.passed && c.Epoch == at.Epoch && c.ChangeID() == at.ChangeID()
	at.Checkpoint = c
	return at
}

// Recent returns the newest cursors, for a checkpoint.
func (at *Position) Recent() bridge.RecentCursors { return at.visited.Last() }

// KnowsEnd reports whether the API is known to mark the end of its results.
func (at *Position) KnowsEnd(rules *Rules) bool { return at.MarksEnd || rules.MarksEnd }

// Continues reports whether the export continues after the position.
func (at *Position) Continues(rules *Rules) bool { return at.Empty.Continues(at.KnowsEnd(rules)) }

// Overlaps reports whether the stream is reading an overlap.
func (at *Position) Overlaps() bool { return at.Overlap != nil && !at.Overlap.Done }

// Shows reports whether a page lists an item that the checkpoint has as published.
func (at *Position) Shows(p *bridge.Page) bool {
	return p.Known || p.At.Cursor == at.Cursor && MarkBorder(p, &at.Border).Items > 0 || at.listsTail(p)
}

func (at *Position) listsTail(p *bridge.Page) bool {
	return len(at.Tail) > 0 && slices.ContainsFunc(p.Events,
		func(e bridge.Event) bool {
			was, ok := e.WasIdentity()
			return slices.Contains(at.Tail, e.Identity()) || ok && slices.Contains(at.Tail, was)
		})
}

// Take moves past one page. It checks that the page belongs to the stream, drops and marks
// its events, and returns the position after the page. On an error, it returns the position
// at, and the page must not be published.
func (at Position) Take(p *bridge.Page, rules *Rules, known Known) (Position, Findings, error) {
	next, found := at, Findings{}
	if err := next.take(p, rules, known, &found); err != nil {
		return at, found, err
	}
	return next, found, nil
}

// take is Take on a copy of the position.
func (at *Position) take(p *bridge.Page, rules *Rules, known Known, found *Findings) error {
	var digest uint64
	if !rules.Listing { // pages of windows do not overlap, but may be equal
		digest = p.Digest()
		found.Repeats = MarkBorder(p, &at.Border)
	}
	if again := digest != 0 && digest == at.left; found.Same || again {
		// Before the tail and in a new process, only the border tells the page from another one.
		markInclusiveEnd(p, rules.PageSize, again || at.left == 0 && len(at.Tail) == 0, &found.Repeats)
	}
	if found.Whole && (digest != at.left || p.Tail()) {
		digest = 0 // the page counts as an empty page, which has no digest
	}
	if rules.window() && p.Unread.Where != "" {
		return p.Unread.Fault()
	}
	if err := at.checkOlder(p, rules, found); err != nil {
		return err
	}
	if err := at.checkPage(p, digest, found); err != nil {
		return err
	}
	found.FirstAgain = p.Next == p.At.Cursor && !rules.CursorHeeded && len(p.Events) > 1 &&
		found.Items == len(p.Events) && found.Items == at.Border.Of &&
		at.Border.FirstNext == bridge.DigestCursor(p.At.Cursor)
	if found.FirstAgain && rules.window() && rules.endIsFinal(p) {
		return bridge.BlockHintf("first-page-again", bridge.ReasonConfig, bridge.HintFirstAgain, FirstAgainText)
	}
	border := at.nextBorder(p, rules, found)
	if err := at.trim(p, rules, found); err != nil {
		return err
	}
	at.Border = border
	found.AtBorder = dropBorder(p)
	at.dropPublished(p, known)
	if err := at.checkReadable(p, rules); err != nil {
		return err
	}
	at.count(p, found)
	at.markRepublished(p, known)
	if p.Tail() {
		at.noteTail(p, rules, found)
	} else {
		at.advance(p, digest, rules, found)
	}
	return nil
}

// count adds the page's events to the checkpoint.
func (at *Position) count(p *bridge.Page, found *Findings) {
	at.Events += int64(len(p.Events))
	for i := range p.Events {
		e := &p.Events[i]
		if e.Defect == bridge.DefectNone && e.Time > at.LastEventTime {
			at.LastEventTime = min(e.Time, bridge.MaxNumber)
		}
		if e.Defect == bridge.DefectNone && e.Key == nil && e.Route != bridge.RouteDrop {
			found.Keyless++
		}
		if at.Origin.Outside(e) {
			at.Outside++
		}
		if e.Route == bridge.RouteDrop {
			at.Dropped++
		}
	}
}

// noteTail records a page that is the end of the results.
func (at *Position) noteTail(p *bridge.Page, rules *Rules, found *Findings) {
	at.MarksEnd = at.MarksEnd || p.Next == "" || at.Empty.AtTail
	doubtful := p.Unread.Where != "" || found.FirstAgain
	at.Drained, at.EndedEmpty = rules.endIsFinal(p) && !doubtful, 0
	at.PositionTime, at.PositionByAPI = bridge.Millis(p.AsOf()), !p.ServerTime.IsZero()
	if doubtful { // unpublished items may follow
		at.PositionTime = min(at.LastEventTime, at.PositionTime)
	}
	at.Empty.Tail()
	if found.Mark = bridge.ContractEmptyItems; p.Next == "" {
		found.Mark = bridge.ContractEmptyCursor
	}
	found.Unread = p.Unread
	found.FullEnd = p.Unread.Where != "" || p.Items >= rules.PageSize && (p.Next != "" || !rules.EndExplicit)
}

// newestRead returns the newest event time that the stream has read. In an overlap,
// LastEventTime is not: the first empty page would look like the end of the results.
func (at *Position) newestRead() int64 {
	if at.Overlaps() {
		return at.relisted
	}
	return max(at.LastEventTime, at.Origin.Start)
}

// newest returns the millisecond after the latest item of a page. It is at most the time of
// the listing.
func newest(p *bridge.Page) (ms int64) {
	for i := range p.Events {
		if e := &p.Events[i]; e.Defect == bridge.DefectNone && e.Time != bridge.NoTime {
			ms = max(ms, e.Time+1)
		}
	}
	return min(ms, bridge.Millis(p.AsOf()))
}

// advance moves to the cursor that a page names.
func (at *Position) advance(p *bridge.Page, digest uint64, rules *Rules, found *Findings) {
	if p.Gap {
		from, _ := p.At.Watermark()
		at.Listing = at.Listing.WithGap(from.At)
	}
	if rules.Listing {
		from, _ := p.At.Watermark()
		to, _ := bridge.ParseWatermark(p.Next)
		at.Listing = at.Listing.Moved(from, to, newest(p), at.Topics, rules.LookBack)
	}
	at.Cursor, at.Drained = p.Next, false
	at.Trusted = 0
	at.Pages++
	at.AdvanceTime = bridge.Millis(p.Time())
	// The clock of a client may be years ahead, but the export is not.
	at.PositionTime = max(at.PositionTime, min(at.LastEventTime, bridge.Millis(p.AsOf())))
	at.Empty.AtTail, at.Empty.Circles = false, false
	if p.Items > 0 && !found.Whole {
		at.visited, at.emptyCursors = at.visited.Add(p.At.Cursor), Visited{}
		at.Empty.filled(p, at.newestRead())
		at.left = digest
		return
	}
	at.noteEmpty(p, rules, found)
}

// noteEmpty records an empty page with a new cursor. A cursor that leads back to an empty
// page is the end of the results, since nothing lies between: some APIs alternate between
// two cursors there. The stream still follows the cursor, because the next item may be
// listed at either.
func (at *Position) noteEmpty(p *bridge.Page, rules *Rules, found *Findings) {
	at.Empty.Circles = at.emptyCursors.Has(p.Next)
	at.emptyCursors = at.emptyCursors.Add(p.At.Cursor)
	at.Empty.Skipped(p, at.newestRead())
	if !at.Continues(rules) {
		at.RewindEnd = nil
		at.endOverlap()
	}
	switch {
	case rules.window() && (at.Empty.Circles || !at.KnowsEnd(rules)) && at.Empty.Empties >= rules.EmptyPages &&
		rules.endIsFinal(p):
		if at.Drained = true; !at.Empty.Circles {
			at.EndedEmpty = at.Empty.Empties
		}
	case at.Empty.Circles && !rules.window():
		at.Drained, at.MarksEnd, found.Mark = true, true, bridge.ContractEmptyItems
		at.PositionTime, at.PositionByAPI = bridge.Millis(p.AsOf()), !p.ServerTime.IsZero()
	}
}

// endIsFinal reports whether nothing can follow the end of the results at p. A window that
// ends in the future is not over before that time. The time is that of the server, if the
// page has it.
func (r *Rules) endIsFinal(p *bridge.Page) bool {
	return !r.window() || !p.Time().Before(time.UnixMilli(r.End))
}
