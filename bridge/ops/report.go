package ops

import (
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
)

// shownReport is a report as it leaves the process.
type shownReport struct {
	control.Report
	Checkpoint *shownCheckpoint `json:"checkpoint,omitempty"`
}

// shownCheckpoint is a checkpoint without its cursor, with which anybody who
// has a key could read the export, and without the identities of its tail. The
// fields that it has itself hide those of the same name.
type shownCheckpoint struct {
	*bridge.Checkpoint
	Cursor     *struct{} `json:"cursor,omitempty"`
	CursorHash string    `json:"cursor_hash"`
	Tail       *struct{} `json:"tail,omitempty"`
	TailItems  int       `json:"tail_items,omitempty"`
}

func shown(all []control.Report) []shownReport {
	out := make([]shownReport, len(all))
	for i := range all {
		out[i].Report = all[i]
		if c := all[i].Checkpoint; c != nil {
			out[i].Checkpoint = &shownCheckpoint{Checkpoint: c, CursorHash: bridge.CursorHash(c.Cursor), TailItems: len(c.Tail)}
		}
	}
	return out
}

// liveReports reports what the process knows by itself: it asks nobody.
func liveReports(streams []Stream, now time.Time) []control.Report {
	all := make([]control.Report, len(streams))
	for i, s := range streams {
		status := s.Status()
		all[i] = control.NewReport(status.Stream, status.Mode)
		all[i].Live = &status
		all[i].Measure(now)
	}
	return all
}
