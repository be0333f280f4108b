// Package redact removes private data from items: it drops, hashes and masks values, and
// leaves all other bytes as they are.
package redact

import (
	"errors"
	"slices"
	"strings"

	"exportbridge/bridge/exportapi/internal/scan"
	"exportbridge/bridge/exportapi/jsonpointer"
)

// Rules are compiled rules. They never change.
type Rules struct {
	// Label names the rules and the key of hashes, empty without rules.
	Label string
	// IdentityKeyID names the key of identities.
	IdentityKeyID string

	root                 *node
	subject              *node // on the way to the subject; nil without encryption
	all                  []Rule
	hashKey, identityKey []byte
}

// action is what a rule does to a value.
type action uint8

const (
	descend action = iota // nothing, there are rules on members of the value
	drop
	hashed
	masked
	encrypted
	named // the subject: nothing
)

// Rule is a rule as it was set.
type Rule struct {
	Variable, Pointer string

	names  []string
	action action
}

// Hashes reports whether the rule hashes the value at a pointer, and not a part of it.
func (r *Rule) Hashes(pointer string) bool { return r.action == hashed && r.Pointer == pointer }

// Encrypts reports whether the rule encrypts a value.
func (r *Rule) Encrypts() bool { return r.action == encrypted }

// node is a member, or each element of an array, on the way of a rule.
type node struct {
	name     string
	action   action
	each     *node   // the rules on each element of an array
	children []*node // the rules on members of an object
	keep     int     // the number of characters that a mask keeps
	pointer  string  // of the rule
}

// anyElement is the name that stands for each element of an array.
const anyElement = "*"

// add adds a rule. No two rules apply to one value, or to a value and a part of it: their
// order would matter.
func (r *Rules) add(text, variable string, do action) error {
	keep := 0
	switch pointer, last4 := strings.CutSuffix(text, ":"+maskLast4); {
	case last4 && do != masked: // it would be a part of the name, and select nothing
		return errors.New("only EVENT_MASK takes :last4; leave it out")
	case last4:
		text, keep = pointer, 4
	case do == masked && strings.Contains(text, ":"):
		return errors.New("only :last4 can follow a pointer")
	}
	names, err := jsonpointer.Parse(text)
	switch {
	case err != nil:
		return err
	case len(names) == 0:
		return errors.New("a rule cannot select the whole item")
	case names[0] == anyElement:
		return errors.New("an item is an object, and * stands for the elements of an array")
	case do == drop && names[len(names)-1] == anyElement:
		return errors.New("drop the array itself")
	}
	for _, other := range r.all {
		if related(other.names, names) {
			return errors.New("it overlaps with " + other.Pointer + " of " + other.Variable)
		}
	}
	at := r.root
	for _, name := range names {
		if at, err = at.child(name); err != nil {
			return err
		}
	}
	at.action, at.keep, at.pointer = do, keep, text
	r.all = append(r.all, Rule{variable, text, names, do})
	return nil
}

func (n *node) child(name string) (*node, error) {
	switch {
	case name == anyElement && len(n.children) > 0, name != anyElement && n.each != nil:
		return nil, errors.New("another rule takes the same value for an array, or for an object")
	case name == anyElement:
		if n.each == nil {
			n.each = new(node)
		}
		return n.each, nil
	}
	if i := slices.IndexFunc(n.children, func(c *node) bool { return c.name == name }); i >= 0 {
		return n.children[i], nil
	}
	c := &node{name: name}
	n.children = append(n.children, c)
	return c, nil
}

// find returns the index of the child with a name, or -1. ok is false if the name does not
// decode exactly: a consumer may take it for the name of a rule.
func (n *node) find(name scan.Value) (index int, ok bool) {
	text := name.Raw
	if name.Kind == scan.Escaped {
		if text, ok = scan.AppendUnescaped(nil, name.Raw); !ok {
			return -1, false
		}
	}
	for i, c := range n.children {
		if c.name == string(text) {
			return i, true
		}
	}
	return -1, true
}

// related reports whether two pointers select the same value, or a value and a part of it.
func related(a, b []string) bool {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] && a[i] != anyElement && b[i] != anyElement {
			return false
		}
	}
	return true
}

// Touching returns a rule on the value at a pointer, on a part of it or on a value around it;
// nil if there is none.
func (r *Rules) Touching(pointer string) *Rule {
	names, err := jsonpointer.Parse(pointer)
	if err != nil {
		return nil
	}
	for i := range r.all {
		if related(r.all[i].names, names) {
			return &r.all[i]
		}
	}
	return nil
}
