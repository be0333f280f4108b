// Package pick reads selected values of a JSON object in one pass.
package pick

import "exportbridge/bridge/exportapi/internal/scan"

// Slot numbers a selected value.
type Slot int

// Reader reads the values that Want selected. Of duplicate members the last counts, as in
// most parsers. One goroutine at a time may use it. The zero value selects nothing.
type Reader struct {
	root selector
	// Values are those of the last object, by slot. They refer to its bytes.
	Values []scan.Value
	// arrays counts the arrays around the position, in the object.
	arrays int
}

// Want selects the values at valid pointers and returns their slots. An empty pointer
// selects nothing.
func (r *Reader) Want(pointers ...string) (slots []Slot) {
	for _, pointer := range pointers {
		s := Slot(len(r.Values))
		r.Values = append(r.Values, scan.Value{})
		r.root.add(pointer, s)
		slots = append(slots, s)
	}
	return slots
}

// Reread tells that a second pass looks for the values at valid pointers, and for nothing else.
// If the scanner notes extents, the reader notes runs of members that are not on the way there.
func (r *Reader) Reread(pointers ...string) {
	for _, pointer := range pointers {
		r.root.reread(pointer)
	}
}

// Forget drops the values of the last object.
func (r *Reader) Forget() { clear(r.Values) }

// Read reads the object at i, and returns the position after it.
func (r *Reader) Read(s *scan.Scanner, i int) (end int, ok bool) {
	r.Forget()
	r.arrays = 0
	return r.object(s, i, &r.root)
}

func (r *Reader) object(s *scan.Scanner, i int, at *selector) (int, bool) {
	i, step := s.Open(i)
	runs := at.again && r.arrays == 0 // the second pass may name elements otherwise than by their index
	run, last := scan.NoExtent, i     // the end of the member before
	for step == scan.More {
		name, end, ok := s.Name(i)
		if !ok {
			return end, false
		}
		to := at.named(name)
		switch {
		case !runs:
		case to != nil && to.again || name.Kind == scan.Escaped: // a name may not decode exactly
			s.EndRun(run, last)
			run = scan.NoExtent
		case run == scan.NoExtent:
			run = s.BeginRun(i)
		}
		if i, ok = scan.SkipColon(s.Body, end); !ok {
			return i, false
		}
		if i, ok = r.member(s, i, to); !ok {
			return i, false
		}
		last = i
		i, step = s.Next(i, '}')
	}
	s.EndRun(run, last)
	return i, step == scan.Ended
}

func (r *Reader) array(s *scan.Scanner, i int, at *selector) (int, bool) {
	r.arrays++
	i, step := s.Open(i)
	for n := 0; step == scan.More; n++ {
		var ok bool
		if i, ok = r.member(s, i, at.element(n)); !ok {
			return i, false
		}
		i, step = s.Next(i, ']')
	}
	r.arrays--
	return i, step == scan.Ended
}

// member reads one value. The longest pointer limits the depth of the recursion.
func (r *Reader) member(s *scan.Scanner, i int, at *selector) (end int, ok bool) {
	if at == nil {
		return s.Skip(i)
	}
	if len(at.children) > 0 {
		for _, slot := range at.below {
			r.Values[slot] = scan.Value{}
		}
		if kind := s.KindAt(i); kind == scan.Object || kind == scan.Array {
			noted := s.Begin(i)
			if kind == scan.Object {
				end, ok = r.object(s, i, at)
			} else {
				end, ok = r.array(s, i, at)
			}
			s.End(noted, end)
			return end, ok
		}
	}
	v, end, ok := s.Read(i)
	for _, slot := range at.slots {
		r.Values[slot] = v
	}
	return end, ok
}
