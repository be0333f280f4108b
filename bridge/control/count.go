package control

import (
	"encoding/json"
	"fmt"
)

// Count is a number of events or pages, Unknown if it is not known. In JSON
// Unknown is null.
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

// Repeats is how many events a move publishes again: those that the stream has published
// on any branch, and that lie behind the target. Where the stream is does not count: a
// move ahead, or to where it is, repeats what an unfinished rewind has left to repeat. A
// stream whose last rewind is over has published nothing behind its position.
type Repeats struct {
	// Min and Max bound the number; equal bounds are exact. Each is Unknown if the
	// history does not tell.
	Min Count `json:"repeats_min"`
	Max Count `json:"repeats_max"`
	// Pages is the number of their pages.
	Pages Count `json:"repeats_pages"`
	// Why says why neither bound is known; else it is empty.
	Why string `json:"repeats_unknown,omitempty"`
}

// unknown is a number of which nothing is known.
func unknown(why string) Repeats {
	return Repeats{Min: Unknown, Max: Unknown, Pages: Unknown, Why: why}
}

// underOther is the number under other settings, which may exclude some of the events.
func (r Repeats) underOther() Repeats {
	if r.Why != "" {
		return r
	}
	return between(0, r.Max)
}

// between is a number with bounds. A lower bound of 0 alone says nothing.
func between(least, most Count) Repeats {
	switch {
	case most == 0:
		return Repeats{}
	case most < 0 && least <= 0:
		return unknown("the history does not go back to it")
	}
	return Repeats{Min: max(least, 0), Max: most, Pages: Unknown}
}
