package scan

const (
	// longValue is the size in bytes from which a value has an extent. A shorter one is read again.
	longValue = 48
	// NoExtent is what Begin returns if nothing is noted.
	NoExtent = -1
)

// Extents are where the long values of items begin and end, and long runs of members that a
// second pass does not look for, as one pass over them found. The second pass moves past those
// without a look at their bytes. One goroutine at a time may use them. The zero value has none.
type Extents struct {
	all   []extent // of an item after the other, by from
	items []int    // where in all the items begin, each with an extent without an end
}

// extent is a checked value, or run of members: Body[from:to].
type extent struct{ from, to int }

// Reset drops all items.
func (x *Extents) Reset() { x.all, x.items = x.all[:0], x.items[:0] }

// Item begins the next item, which is at i.
func (x *Extents) Item(i int) {
	x.items = append(x.items, len(x.all))
	x.all = append(x.all, extent{from: i})
}

// Of returns the extents of an item, by its index. They are valid until Reset, and none if the
// item with this index is another part of the body.
func (x *Extents) Of(body, item []byte, index int) Known {
	if x == nil || index >= len(x.items) || len(item) == 0 {
		return Known{}
	}
	all := x.all[x.items[index]:]
	if index+1 < len(x.items) {
		all = x.all[x.items[index]:x.items[index+1]]
	}
	if at := all[0].from; at >= len(body) || &body[at] != &item[0] {
		return Known{}
	}
	return Known{all[1:], all[0].from}
}

// Known are the extents of an item, which begins at base. The zero value is none.
type Known struct {
	extents []extent
	base    int
}

// Note makes the scanner note extents until the next Reset.
func (s *Scanner) Note(x *Extents) { s.notes, s.mode = x, noting }

// Begin notes, if the scanner notes extents, that a value at i is about to be read member by
// member. End takes what it returns.
func (s *Scanner) Begin(i int) (noted int) {
	if s.mode != noting {
		return NoExtent
	}
	s.notes.all = append(s.notes.all, extent{i, i})
	return len(s.notes.all) - 1
}

// End notes the end of the value of Begin. A short value has no extent, nor has what is in it:
// notes of a page take no more memory than a part of the page.
func (s *Scanner) End(noted, end int) {
	switch {
	case noted == NoExtent:
	case end-s.notes.all[noted].from < longValue:
		s.notes.all = s.notes.all[:noted]
	default:
		s.notes.all[noted].to = end
	}
}

// BeginRun is Begin for a run of members. What is in the run needs no extent of its own.
func (s *Scanner) BeginRun(i int) (noted int) {
	if noted = s.Begin(i); noted != NoExtent {
		s.mode = strict
	}
	return noted
}

// EndRun notes the end of the last member of a run.
func (s *Scanner) EndRun(noted, end int) {
	if s.End(noted, end); noted != NoExtent {
		s.mode = noting
	}
}

// SkipRun moves past the run of members at i, if one is known.
func (s *Scanner) SkipRun(i int) (end int, ok bool) { return s.known.end(i) }

// Know starts a document that has these extents. Reading skips their values without a check.
func (s *Scanner) Know(body []byte, known Known) {
	s.Reset(body)
	s.known, s.mode = known, knowing
}

// skipSpecial is Skip for a scanner that is not strict.
func (s *Scanner) skipSpecial(i int) (end int, ok bool) {
	switch s.mode {
	case loose:
		return s.skipLoose(i)
	case knowing:
		if end, ok = s.known.end(i); ok {
			return end, true
		}
		return s.skip(i)
	}
	if end, ok = s.skip(i); ok && end-i >= longValue {
		s.notes.all = append(s.notes.all, extent{i, end})
	}
	return end, ok
}

// end returns the end of the value at i. Positions never decrease.
func (k *Known) end(i int) (end int, ok bool) {
	for i += k.base; len(k.extents) > 0; k.extents = k.extents[1:] {
		if e := k.extents[0]; e.from >= i {
			return e.to - k.base, e.from == i
		}
	}
	return 0, false
}
