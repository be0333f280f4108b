package contract

import (
	"cmp"
	"slices"

	"exportbridge/bridge"
)

// maxRows is how many differences a Report lists at most.
const maxRows = 1000

// Report counts the differences of many events. The zero value has seen none.
type Report struct {
	Records   int   `json:"records"`   // compared
	Differing int   `json:"differing"` // records with a difference
	Rows      []Row `json:"differences"`
	// Unlisted is how many differences are in no row, because there are too many.
	Unlisted int `json:"unlisted"`

	rows map[bridge.Difference]int // index in Rows
}

// Row is a difference, with the number of records that have it.
type Row struct {
	bridge.Difference
	Records int    `json:"records"`
	First   string `json:"first"` // place of the first record: PARTITION@OFFSET
}

// Add adds the differences of the event at a place. It returns the ones that are new.
func (r *Report) Add(place string, found []bridge.Difference) (fresh []bridge.Difference) {
	r.Records++
	if len(found) == 0 {
		return nil
	}
	r.Differing++
	if r.rows == nil {
		r.rows = make(map[bridge.Difference]int)
	}
	for _, d := range found {
		i, known := r.rows[d]
		switch {
		case known:
			r.Rows[i].Records++
		case len(r.Rows) == maxRows:
			r.Unlisted++
		default:
			r.rows[d] = len(r.Rows)
			r.Rows = append(r.Rows, Row{d, 1, place})
			fresh = append(fresh, d)
		}
	}
	return fresh
}

// Sorted returns the rows, the most frequent first.
func (r *Report) Sorted() []Row {
	return slices.SortedFunc(slices.Values(r.Rows), func(a, b Row) int {
		return cmp.Or(b.Records-a.Records, cmp.Compare(a.Pointer, b.Pointer), cmp.Compare(a.Text, b.Text))
	})
}
