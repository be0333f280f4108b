package ops

import (
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
)

// shownReport is a report without secrets.
type shownReport struct {
	control.Report
	Checkpoint *shownCheckpoint `json:"checkpoint,omitempty"`
}

// shownCheckpoint is a checkpoint without its cursor, which is a secret, and without
// the identities of its tail. Its own fields hide those of the same name.
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

// liveReports returns reports from this process's own state.
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
