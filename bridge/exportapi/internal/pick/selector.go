package pick

import (
	"strconv"

	"exportbridge/bridge/exportapi/internal/scan"
	"exportbridge/bridge/exportapi/jsonpointer"
)

// selector is a tree of member names. It selects values of an object.
type selector struct {
	name string
	// index is name as an array index, or -1.
	index int
	// slots receive the value at this place.
	slots []Slot
	// below are all slots of this subtree: a duplicate member replaces them.
	below    []Slot
	children []*selector
	// again is set on the way to a value that a second pass looks for.
	again bool
}

// add selects the value at the pointer into the slot.
func (s *selector) add(pointer string, to Slot) {
	names, _ := jsonpointer.Parse(pointer) // validated
	if len(names) == 0 {
		return
	}
	at := s
	for _, name := range names {
		at = at.child(name)
		at.below = append(at.below, to)
	}
	at.slots = append(at.slots, to)
}

// reread marks the way to the value at the pointer.
func (s *selector) reread(pointer string) {
	names, _ := jsonpointer.Parse(pointer) // validated
	for _, name := range names {
		to := s.child(name)
		s.again, to.again = true, true
		s = to
	}
}

func (s *selector) child(name string) *selector {
	for _, c := range s.children {
		if c.name == name {
			return c
		}
	}
	index, err := strconv.Atoi(name)
	if err != nil || strconv.Itoa(index) != name {
		index = -1
	}
	c := &selector{name: name, index: index}
	s.children = append(s.children, c)
	return c
}

// named returns the child with a name, or nil. A name with an unpaired surrogate has none.
func (s *selector) named(name scan.Value) *selector {
	if name.Kind != scan.Escaped {
		return s.member(name.Raw)
	}
	if text, exact := scan.AppendUnescaped(nil, name.Raw); exact {
		return s.member(text)
	}
	return nil
}

// member returns the child with exactly this name, or nil.
func (s *selector) member(name []byte) *selector {
	for _, c := range s.children {
		if len(c.name) == len(name) && (len(name) == 0 || c.name[0] == name[0]) && c.name == string(name) {
			return c
		}
	}
	return nil
}

// element returns the child with this array index, or nil.
func (s *selector) element(i int) *selector {
	for _, c := range s.children {
		if c.index == i {
			return c
		}
	}
	return nil
}
