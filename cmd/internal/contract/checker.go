package contract

import (
	"slices"
	"strings"
	"sync"
	"unicode"

	"exportbridge/bridge"
)

const (
	// listed is how many differences a Checker lists.
	listed = 10
	// longestPointer bounds a listed pointer, in bytes: the names of an event can be long.
	longestPointer = 200
)

// Checker compares the events of a stream with the schemas of their topics. Its methods may be
// called concurrently. A nil Checker observes nothing.
type Checker struct {
	schemas   []*Schema // by Event.Route, nil for a topic without one
	unchecked []string
	found     func(bridge.Difference)

	mu         sync.Mutex // guards all below
	mismatches int64
	known      []bridge.Difference
	more       bool
}

// NewChecker returns a Checker of the events of topics, by Event.Route. It calls found, if
// that is not nil, with each difference that it lists. cfg is valid.
func NewChecker(cfg *Config, topics []string, found func(bridge.Difference)) (*Checker, error) {
	schemas, err := cfg.compileTopics(topics)
	if err != nil {
		return nil, err
	}
	c := &Checker{schemas: schemas, found: found, known: []bridge.Difference{}}
	for i, schema := range schemas {
		if schema == nil {
			c.unchecked = append(c.unchecked, topics[i])
		}
	}
	return c, nil
}

// Check sets Event.Mismatch of the events of a page. An event that has a defect, or that no topic
// gets, is not compared.
func (c *Checker) Check(p *bridge.Page) {
	for i := range p.Events {
		e := &p.Events[i]
		if e.Defect != bridge.DefectNone || int(e.Route) >= len(c.schemas) || c.schemas[e.Route] == nil {
			continue
		}
		differences := c.schemas[e.Route].Compare(e.Raw)
		for i := range differences {
			differences[i].Pointer = printable(differences[i].Pointer)
			c.list(differences[i])
		}
		if e.Mismatch = bridge.NewMismatch(differences); e.Mismatch != nil {
			p.Extra += int64(len(e.Mismatch.String())) + mismatchCost
		}
	}
}

// mismatchCost is the memory of a Mismatch beside its texts, in bytes.
const mismatchCost = 160

// list lists a difference, unless it is known.
func (c *Checker) list(d bridge.Difference) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains(c.known, d) {
		return
	}
	if c.more = c.more || len(c.known) == listed; c.more {
		return
	}
	c.known = append(c.known, d)
	if c.found != nil {
		c.found(d)
	}
}

// printable cuts a pointer, and replaces what a terminal must not get.
func printable(pointer string) string {
	cut := pointer[:min(len(pointer), longestPointer)]
	text := strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return unicode.ReplacementChar
	}, strings.ToValidUTF8(cut, ""))
	if len(cut) < len(pointer) {
		text += "…"
	}
	return text
}

// Observe implements bridge.Observer: it counts the committed events that differ.
func (c *Checker) Observe(o bridge.Observation) {
	if c != nil && o.Receipt.Mismatched > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mismatches += int64(o.Receipt.Mismatched)
	}
}

// Status returns what was found so far, nil for a nil Checker.
func (c *Checker) Status() *bridge.SchemaCheck {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known := slices.Clip(c.known)
	return &bridge.SchemaCheck{Mismatches: c.mismatches, Differences: known, More: c.more, Unchecked: c.unchecked}
}
