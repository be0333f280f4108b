package bridge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Difference is what an event and its schema differ in. It contains no value of the event.
type Difference struct {
	// Pointer is a JSON pointer, with * for the items of an array and for names that the
	// schema does not list.
	Pointer string `json:"pointer"`
	Text    string `json:"difference"`
}

// Place is the pointer, or words for the whole event.
func (d *Difference) Place() string { return cmp.Or(d.Pointer, "the event") }

// keptDifferences is how many differences a Mismatch has at most.
const keptDifferences = 3

// Mismatch is how an event differs from its schema: the first differences, and how many more
// there are.
type Mismatch struct {
	Differences []Difference
	More        int
}

// NewMismatch returns the Mismatch of an event, nil without differences.
func NewMismatch(all []Difference) *Mismatch {
	if len(all) == 0 {
		return nil
	}
	kept := all[:min(len(all), keptDifferences)]
	return &Mismatch{slices.Clone(kept), len(all) - len(kept)}
}

// String lists the differences.
func (m *Mismatch) String() string {
	var texts []string
	for i := range m.Differences {
		texts = append(texts, m.Differences[i].Place()+" "+m.Differences[i].Text)
	}
	if m.More > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", m.More))
	}
	return strings.Join(texts, "; ")
}

// SchemaCheck is what a process found when it compared a stream's events with their schemas.
type SchemaCheck struct {
	// Mismatches counts the events that differ, published or dead letters.
	Mismatches int64 `json:"mismatches"`
	// Differences are the first ones that were found, each once. More is set if others
	// were found later.
	Differences []Difference `json:"differences"`
	More        bool         `json:"more_differences,omitempty"`
	// Unchecked are the topics without a schema.
	Unchecked []string `json:"unchecked_topics,omitempty"`
}
