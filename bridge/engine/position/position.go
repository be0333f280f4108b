package position

import (
	"slices"
	"time"

	"exportbridge/bridge"
)

// Position is where a stream is, and what it remembers of the way there. It is a value:
// Take returns the next one and leaves this one as it was, so that going back is an
// assignment. Values made from one value share lookup tables, so all of them belong to
// one goroutine.
type Position struct {
	// Checkpoint is what a commit at the position writes. Fields that only a commit
	// sets, such as version and writer, are still those of the last commit.
	bridge.Checkpoint
	// Empty goes back with the checkpoint: pages that are read again must not count
	// twice.
	Empty EmptyRun
	// Trusted is FirstItems of a page that checkOlder suspected and that is not the first
	// page; 0 is none.
	Trusted uint64

	left         uint64 // Page.Digest of the last page with items before the cursor
	visited      Visited
	emptyCursors Visited // the empty pages since the last one with items
	forms        forms
	passed       bool // the page where the rewind began was read
	scratch      *scratch
}

// Rules are the engine's settings for Take.
type Rules struct {
	PageSize, EmptyPages    int
	TailLimit               int   // how many items a tail has at most
	End                     int64 // of a window, as Origin.End
	MarksEnd, EndExplicit   bool
	DivertAll, DivertShared bool // unreadable items, items whose id is taken
	Overlap                 time.Duration
	Listing                 bool          // the cursor is a bridge.Watermark
	LookBack                time.Duration // where Listing is set
}

func (r *Rules) window() bool { return r.End != 0 }

// Known is what the topic already holds. It is loaded before Take.
type Known struct {
	// Published has all events published since Overlap.From. It is required while
	// Overlaps.
	Published bridge.PublishedIndex
	// Marks has events published before a rewind, perhaps not all; nil if none is known.
	// It is required once MarksFrom returns ok.
	Marks bridge.PublishedIndex
}

// Findings is what Take found on a page.
type Findings struct {
	// Repeats counts what the page repeats of the page before. AtBorder items were
	// dropped because of that.
	Repeats
	AtBorder int
	Repeated int // dropped: the same bytes under the same id came earlier in the page
	Shared   int // left: other bytes under an id that an item before has
	Vanished int // in the tail, but the API does not list it any more
	Changed  int // in the tail, and came back with other bytes
	Keyless  int // events without a key
	// Widened is how many items of a page are kept from now on, if the page repeats all
	// that were kept: earlier ones may be published twice. Otherwise it is 0.
	Widened int
	// FullEnd is true if the page was full and named no next page. Unread is what it had
	// in place of one.
	FullEnd bool
	Unread  bridge.Unread
	// Mark is how the page marked the end of the results, ContractUnknown if it did not.
	Mark bridge.Contract
	// Suspect is FirstItems of a page that is refused with CodeOlder.
	Suspect uint64
}

// Begin returns the position at c with an empty memory. The zero Checkpoint is the
// beginning of a new stream.
func Begin(c bridge.Checkpoint) Position {
	return Position{
		Checkpoint: c, Empty: EmptyRun{Allowance: EmptyAllowance},
		visited: recentVisited(c.RecentCursors), scratch: &scratch{left: make(map[bridge.Identity]int)},
	}
}

// Rejoin returns the position at a checkpoint that may come from another process. In that
// case it forgets the cursors and items that this process has seen.
func (at Position) Rejoin(c bridge.Checkpoint) Position {
	if c.Version != at.Version || c.Cursor != at.Cursor || c.Session != at.Session {
		at.visited, at.emptyCursors = recentVisited(c.RecentCursors), Visited{}
		at.forms, at.left = forms{}, 0
	}
	at.passed = at.passed && c.Epoch == at.Epoch && c.ChangeID() == at.ChangeID()
	at.Checkpoint = c
	return at
}

// Recent returns the newest cursors, for a checkpoint.
func (at *Position) Recent() bridge.RecentCursors { return at.visited.Last() }

// KnowsEnd reports whether the API is known to mark the end of its results.
func (at *Position) KnowsEnd(rules *Rules) bool { return at.MarksEnd || rules.MarksEnd }

// Continues reports whether the export goes on after the position.
func (at *Position) Continues(rules *Rules) bool { return at.Empty.Continues(at.KnowsEnd(rules)) }

// Overlaps reports whether the stream is reading an overlap.
func (at *Position) Overlaps() bool { return at.Overlap != nil && !at.Overlap.Done }

// Shows reports whether a page lists an item that is published according to the
// checkpoint.
func (at *Position) Shows(p *bridge.Page) bool {
	return p.At.Cursor == at.Cursor && MarkBorder(p, &at.Border).Items > 0 || at.listsTail(p)
}

func (at *Position) listsTail(p *bridge.Page) bool {
	return len(at.Tail) > 0 && slices.ContainsFunc(p.Events,
		func(e bridge.Event) bool {
			was, ok := e.WasIdentity()
			return slices.Contains(at.Tail, e.Identity()) || ok && slices.Contains(at.Tail, was)
		})
}

// Take moves over one page: it checks that the page belongs to the stream, drops and
// marks its events, and returns the position after it. On an error the position is
// at, and the page is not to be published.
func (at Position) Take(p *bridge.Page, rules *Rules, known Known) (Position, Findings, error) {
	next, found := at, Findings{}
	if err := next.take(p, rules, known, &found); err != nil {
		return at, found, err
	}
	return next, found, nil
}

// take is Take on a copy.
func (at *Position) take(p *bridge.Page, rules *Rules, known Known, found *Findings) error {
	var digest uint64
	if !rules.Listing { // pages of windows do not overlap, and may be equal
		digest = p.Digest()
		found.Repeats = MarkBorder(p, &at.Border)
	}
	if found.Same || digest != 0 && digest == at.left {
		markInclusiveEnd(p, rules.PageSize, &found.Repeats)
	}
	if found.Whole && (digest != at.left || p.Tail()) {
		digest = 0 // the page counts as empty
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
		if e.Defect == bridge.DefectNone && e.Key == nil {
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

// noteTail notes a page that is the end of the results.
func (at *Position) noteTail(p *bridge.Page, rules *Rules, found *Findings) {
	at.MarksEnd = at.MarksEnd || p.Next == "" || at.Empty.AtTail
	at.Drained, at.EndedEmpty = rules.endIsFinal(p) && p.Unread.Where == "", 0
	at.PositionTime, at.PositionByAPI = bridge.Millis(p.AsOf()), !p.ServerTime.IsZero()
	if p.Unread.Where != "" { // items that are not published may follow
		at.PositionTime = min(at.LastEventTime, at.PositionTime)
	}
	at.Empty.Tail()
	if found.Mark = bridge.ContractEmptyItems; p.Next == "" {
		found.Mark = bridge.ContractEmptyCursor
	}
	found.Unread = p.Unread
	found.FullEnd = p.Unread.Where != "" || p.Items >= rules.PageSize && (p.Next != "" || !rules.EndExplicit)
}

// newest returns the millisecond after the latest item of a page, at most the time of
// the listing.
func newest(p *bridge.Page) (ms int64) {
	for i := range p.Events {
		if e := &p.Events[i]; e.Defect == bridge.DefectNone && e.Time != bridge.NoTime {
			ms = max(ms, e.Time+1)
		}
	}
	return min(ms, bridge.Millis(p.AsOf()))
}

// advance moves on to the cursor that a page names.
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
	// A client's clock may be years ahead; the export is not.
	at.PositionTime = max(at.PositionTime, min(at.LastEventTime, bridge.Millis(p.AsOf())))
	at.Empty.AtTail, at.Empty.Circles = false, false
	if p.Items > 0 && !found.Whole {
		at.visited, at.emptyCursors = at.visited.Add(p.At.Cursor), Visited{}
		at.Empty.filled(p, at.LastEventTime)
		at.left = digest
		return
	}
	at.noteEmpty(p, rules, found)
}

// noteEmpty notes an empty page with a new cursor. A cursor that leads back to an empty
// page is the end of the results, since nothing lies between: some APIs hand out two
// cursors in turn there. The stream follows the cursor all the same, because the next
// item may be listed under either.
func (at *Position) noteEmpty(p *bridge.Page, rules *Rules, found *Findings) {
	at.Empty.Circles = at.emptyCursors.Has(p.Next)
	at.emptyCursors = at.emptyCursors.Add(p.At.Cursor)
	at.Empty.Skipped(p, max(at.LastEventTime, at.Origin.Start))
	if !at.Continues(rules) {
		at.RewindEnd = nil
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

// endIsFinal reports whether nothing can follow the end of the results at p. A window
// that ends in the future is not over before its end has passed, by the server's clock if
// the page has its time.
func (r *Rules) endIsFinal(p *bridge.Page) bool {
	return !r.window() || !p.Time().Before(time.UnixMilli(r.End))
}
