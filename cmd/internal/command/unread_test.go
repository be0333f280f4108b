package command

import (
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/cmd/internal/cli"
)

// TestUnreadCursor: a first page names no next page, but has a member that looks like a
// cursor. No command then reports that it has read all results. The page need not be full: an
// API may list fewer items than requested.
func TestUnreadCursor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["EXPORT_URL"], w.env["EXPORT_PATH"], w.env["EXPORT_PAGE_SIZE"], w.env["HTTP_ADDR"] = pagedExport(t),
		"/capped", "500", "off"
	w.env["EXPORT_CURSOR_FIELD"] = "/paging/next"
	from := time.UnixMilli(1790000000000).UTC()
	span := []string{"--from", from.Format(time.RFC3339), "--to", from.Add(time.Hour).Format(time.RFC3339)}
	for _, tc := range []struct {
		code int
		want string
		args []string
	}{
		{cli.ExitEmptyEnd, "done as far as read: the page names no next page, but has /nextCursor",
			[]string{"run", "--once"}},
		{cli.ExitFailed, "has /nextCursor, which looks like a next cursor", append([]string{"verify"}, span...)},
		{cli.ExitRefused, "has /nextCursor, which looks like a next cursor",
			append([]string{"backfill", "--allow-overlap", "--execute"}, span...)},
	} {
		if got := runProgram(t, w.env, tc.args...); got.code != tc.code || !strings.Contains(got.stdout+got.stderr, tc.want) {
			t.Errorf("%s: %+v, want exit code %d and %q", tc.args, got, tc.code, tc.want)
		}
	}
}

// TestWarningsInStatus: the text of a state mentions its warnings. If the end is in doubt, no
// line mentions the end of the export.
func TestWarningsInStatus(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := streamStatus{}
	s.Live = &bridge.Status{State: bridge.StateIdle, Events: 1, CaughtUp: true, Position: now,
		Warnings: []bridge.Warning{{Code: bridge.WarningUnread, Text: "no next page", Hint: "set it"}}}
	s.Checkpoint = control.Mask(&bridge.Checkpoint{PositionTime: now.UnixMilli(), Kind: bridge.KindData})
	var text strings.Builder
	for _, row := range s.rows(now) {
		text.WriteString(row[0] + ": " + row[1] + "\n")
	}
	for _, want := range []string{"state: caught up, 1 warning", "at the end of what was read",
		"warning: no next page\ntry: set it"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}
