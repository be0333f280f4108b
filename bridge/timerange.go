package bridge

import (
	"cmp"
	"slices"
)

// TimeRange is a range of event times, in milliseconds since the epoch. To is exclusive.
type TimeRange struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// mostEarlier bounds Checkpoint.Earlier: if an operator resets a stream more often, ranges with
// the smallest gaps between them become one.
const mostEarlier = 32

// published returns the ranges that the epoch of c and those before it have published, in order
// of time.
func (c *Checkpoint) published() []TimeRange {
	upTo := max(c.PositionTime, c.LastEventTime)
	if upTo == 0 {
		return c.Earlier
	}
	all := append(slices.Clone(c.Earlier), TimeRange{min(c.Origin.Start, upTo), upTo + 1})
	slices.SortFunc(all, func(a, b TimeRange) int { return cmp.Compare(a.From, b.From) })
	merged := all[:1]
	for _, r := range all[1:] {
		if last := &merged[len(merged)-1]; r.From <= last.To {
			last.To = max(last.To, r.To)
		} else {
			merged = append(merged, r)
		}
	}
	for len(merged) > mostEarlier {
		least := 1
		for i := range merged[1:] {
			if merged[i+1].From-merged[i].To < merged[least].From-merged[least-1].To {
				least = i + 1
			}
		}
		merged[least-1].To = merged[least].To
		merged = slices.Delete(merged, least, least+1)
	}
	return merged
}
