package exportapi

import (
	"errors"
	"strconv"
	"strings"
)

// resource is what differs between the resources of the export API: where it
// is and which members of an item are read. Where there are several pointers,
// the first that finds a value wins.
type resource struct {
	path string
	// ids stays empty where the same item may come again, changed: then the
	// bytes are the identity, and the change is news.
	ids  []string
	time string
	// timeOptional is set where an item may have no time yet.
	timeOptional bool
	types        []string
	subject      string
}

var presets = map[string]resource{
	"events": {
		path:    "/events",
		ids:     []string{"/eventId", "/id"},
		time:    "/timestamp",
		types:   []string{"/payload/type", "/payload/@type"},
		subject: "/userId",
	},
	"sessions": {path: "/session", time: "/closeTime", timeOptional: true, subject: "/userId"},
	"users":    {path: "/user", time: "/lastModifiedTime", timeOptional: true, subject: "/userId"},
}

// slot numbers a value that is read from an object.
type slot int

// selector is a tree of member names: which values to read from an object.
type selector struct {
	name string
	// index is name as an array index, or -1.
	index int
	// slots take the value at this place.
	slots []slot
	// below are all slots of this place and of those under it: a member that
	// comes twice replaces all of them.
	below    []slot
	children []*selector
}

// add makes the value at the pointer go into the slot. An empty pointer is
// nowhere.
func (s *selector) add(pointer string, to slot) error {
	names, err := parsePointer(pointer)
	if err != nil || len(names) == 0 {
		return err
	}
	at := s
	for _, name := range names {
		at = at.child(name)
		at.below = append(at.below, to)
	}
	at.slots = append(at.slots, to)
	return nil
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

// parsePointer splits a JSON pointer (RFC 6901) into its names.
func parsePointer(pointer string) ([]string, error) {
	if pointer == "" {
		return nil, nil
	}
	names := strings.Split(pointer, "/")
	if names[0] != "" {
		return nil, errors.New("a JSON pointer must begin with /")
	}
	names = names[1:]
	for i, name := range names {
		for rest := name; rest != ""; {
			_, after, found := strings.Cut(rest, "~")
			if found && !strings.HasPrefix(after, "0") && !strings.HasPrefix(after, "1") {
				return nil, errors.New("a JSON pointer must escape ~ as ~0 and / as ~1")
			}
			rest = after
		}
		names[i] = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
	}
	return names, nil
}
