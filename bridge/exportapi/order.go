package exportapi

import (
	"errors"

	"exportbridge/bridge"
)

// minOrdered is how many items must have a time before their order counts.
const minOrdered = 10

// newestFirst reports whether the items of a first page are listed backwards:
// the next cursor of such an API leads into the past, and no new event ever
// follows.
func newestFirst(events []bridge.Event) bool {
	dated, newest, last := 0, int64(0), int64(0)
	for i := range events {
		e := &events[i]
		if e.Defect != bridge.DefectNone || e.Time == bridge.NoTime {
			continue
		}
		if dated == 0 {
			newest, last = e.Time, e.Time
		}
		if e.Time > last {
			return false
		}
		last = e.Time
		dated++
	}
	return dated >= minOrdered && last < newest
}

// orderFault is the fault of an API that lists newest first.
func orderFault() *bridge.Fault {
	return &bridge.Fault{
		Class: bridge.Permanent, Code: codeSchema, Reason: bridge.ReasonConfig,
		Err:  errors.New("the items are listed newest first, so their cursor leads away from new events"),
		Hint: "ask the API for ascending order, for example EXPORT_PARAMS=order=asc; one that has none cannot be followed",
	}
}
