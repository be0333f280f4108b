package ops

import (
	"time"

	"exportbridge/bridge/control"
)

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
