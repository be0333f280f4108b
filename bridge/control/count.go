package control

import (
	"encoding/json"
	"fmt"
)

// Count is a number of events or pages, or Unknown, which is null in JSON.
type Count int64

// Unknown is a Count that is not known.
const Unknown Count = -1

// MarshalJSON implements json.Marshaler.
func (n Count) MarshalJSON() ([]byte, error) {
	if n < 0 {
		return []byte("null"), nil
	}
	return json.Marshal(int64(n))
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *Count) UnmarshalJSON(b []byte) error {
	number := int64(Unknown)
	if err := json.Unmarshal(b, &number); err != nil {
		return fmt.Errorf("count: %w", err)
	}
	*n = Count(number)
	return nil
}

// Repeats counts the events that a move publishes again: the events after the target that
// the stream has published on any branch. The count does not depend on the stream's
// position: a move ahead also repeats the rest of an unfinished rewind. After a finished
// rewind, the stream has published no event after its position.
type Repeats struct {
	// Min and Max are the inclusive bounds of the number. Each may be Unknown.
	Min Count `json:"repeats_min"`
	Max Count `json:"repeats_max"`
	// Pages is the number of pages of these events.
	Pages Count `json:"repeats_pages"`
	// Why is the reason why neither bound is known.
	Why string `json:"repeats_unknown,omitempty"`
}

// unknown returns a number without bounds.
func unknown(why string) Repeats {
	return Repeats{Min: Unknown, Max: Unknown, Pages: Unknown, Why: why}
}

// atMost returns the number if some of the events may not be published again.
func (r Repeats) atMost() Repeats {
	if r.Why != "" {
		return r
	}
	return between(0, r.Max)
}

// plus returns the number with up to n more events.
func (r Repeats) plus(n int64) Repeats {
	if r.Max < 0 {
		return r
	}
	return between(r.Min, r.Max+Count(n))
}

// between returns a number with bounds. A lower bound of 0 without an upper one is no
// bound.
func between(least, most Count) Repeats {
	switch {
	case most == 0:
		return Repeats{}
	case most < 0 && least <= 0:
		return unknown("the history does not go back to it")
	}
	return Repeats{Min: max(least, 0), Max: most, Pages: Unknown}
}
