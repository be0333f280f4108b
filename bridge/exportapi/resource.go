package exportapi

import (
	"strconv"

	"exportbridge/bridge/exportapi/internal/jsonpointer"
)

// resource is the preset of a resource of the export API: its path and the
// members of an item. It has no ids where an item may be listed again after a
// change: then its bytes are its identity, and a change is a new event.
type resource struct {
	path string
	pointers
}

var presets = map[string]resource{
	"events": {path: "/events", pointers: pointers{
		ids:      []string{"/eventId", "/id"},
		times:    []string{"/timestamp"},
		ingested: ingested,
		types:    []string{"/payload/type", "/payload/@type"},
		subjects: subjects,
	}},
	"sessions": {path: "/session", pointers: pointers{timeOptional: true, times: []string{"/closeTime"}, ingested: ingested, subjects: subjects}},
	"users":    {path: "/user", pointers: pointers{timeOptional: true, times: []string{"/lastModifiedTime"}, ingested: ingested, subjects: subjects}},
}

var ingested, subjects = []string{"/systemTimestamp"}, []string{"/userId"}

// slot numbers a selected value of an object.
type slot int

// selector is a tree of member names that selects values of an object.
type selector struct {
	name string
	// index is name as an array index, or -1.
	index int
	// slots receive the value at this place.
	slots []slot
	// below are all slots of this subtree: a duplicate member replaces them.
	below    []slot
	children []*selector
}

// add selects the value at the pointer into the slot. An empty pointer selects
// nothing.
func (s *selector) add(pointer string, to slot) {
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

// member finds the child by name. Exact and case-sensitive.
func (s *selector) member(name []byte) *selector {
	for _, c := range s.children {
		if len(c.name) == len(name) && (len(name) == 0 || c.name[0] == name[0]) && c.name == string(name) {
			return c
		}
	}
	return nil
}

// element finds the child by array index.
func (s *selector) element(i int) *selector {
	for _, c := range s.children {
		if c.index == i {
			return c
		}
	}
	return nil
}
