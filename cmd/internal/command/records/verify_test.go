package records

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/attest"
	"exportbridge/bridge/reconcile"
	"exportbridge/cmd/internal/cli"
)

// TestVerifyErrors: each refusal has an exit code and a hint. A stream that was
// just moved has no position yet: its hint must not be a time of 1970.
func TestVerifyErrors(t *testing.T) {
	t.Parallel()
	for why, code := range map[reconcile.Reason]int{
		reconcile.NeverRan: cli.ExitUsage, reconcile.PositionUnknown: cli.ExitUsage, reconcile.NotPassed: cli.ExitUsage,
		reconcile.OtherOrigin: cli.ExitUsage, reconcile.NotKept: cli.ExitUsage,
		reconcile.BackfillOpen: cli.ExitFailed, reconcile.StreamPaused: cli.ExitFailed,
		reconcile.NotRunning: cli.ExitFailed, reconcile.NotAtEnd: cli.ExitFailed,
		reconcile.Moved: cli.ExitFailed, reconcile.TopicMade: cli.ExitFailed, reconcile.UnknownMark: cli.ExitFailed,
		reconcile.CursorCycle: cli.ExitFailed, reconcile.Endless: cli.ExitFailed,
		reconcile.CutOff: cli.ExitFailed, reconcile.OtherRules: cli.ExitFailed,
	} {
		refused := &reconcile.RejectedError{Reason: why, Backfill: "k3xq7a"}
		exit, ok := errors.AsType[*cli.Error](verifyError(refused))
		if !ok || exit.Code != code || exit.Hint == "" || strings.Contains(exit.Hint, "1970-") ||
			strings.Contains(exit.Hint, "%") {
			t.Errorf("%s: %+v, want code %d and a hint", why, exit, code)
		}
	}
	noon := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC).UnixMilli()
	for _, want := range []struct {
		why  reconcile.Reason
		at   int64
		hint string
	}{
		{reconcile.NotPassed, noon, "--to 2026-11-01T12:00:00Z"},
		{reconcile.NotPassed, noon + 250, "--to 2026-11-01T12:00:00.25Z"},
		{reconcile.NotKept, noon, "--from 2026-11-01T12:00:00Z"},
		{reconcile.NotKept, noon + 1, "--from 2026-11-01T12:00:00.001Z"},
		{reconcile.Endless, 0, "try a smaller range; if it has as many empty pages, " + cli.EngineHints[bridge.HintEndless]},
	} {
		refused := &reconcile.RejectedError{Reason: want.why, Position: want.at}
		if exit, ok := errors.AsType[*cli.Error](verifyError(refused)); !ok || exit.Hint != want.hint {
			t.Errorf("%s at %d: %+v, want the hint %q", want.why, want.at, exit, want.hint)
		}
	}
	if exit, ok := errors.AsType[*cli.Error](verifyError(bridge.ErrFenced)); !ok || exit.Code != cli.ExitNotOwner {
		t.Errorf("fenced: %+v", exit)
	}
}

// TestVerifyNotes: equal numbers are no proof where nothing, or something else, was compared.
func TestVerifyNotes(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]reconcile.Report{
		"": {API: 1, AtEnd: true},
		"the API lists no event of the range: nothing was compared":       {AtEnd: true},
		"1,234 of 2,000 events have a time outside the requested range: ": {API: 2000, Outside: 1234, AtEnd: true},
	} {
		rows := verifyNotes(&r)
		if want == "" && len(rows) > 0 || want != "" && (len(rows) != 1 || !strings.HasPrefix(rows[0][1], want)) {
			t.Errorf("notes %q, want %q", rows, want)
		}
	}
}

// TestEventRows: a list that is cut says so.
func TestEventRows(t *testing.T) {
	t.Parallel()
	first := []reconcile.Event{{ID: "a"}, {ID: "b"}}
	for all, want := range map[int64][][2]string{
		2:    {{"extra", "a  without a time"}, {"extra", "b  without a time"}},
		1166: {{"extra", "a  without a time"}, {"extra", "b  without a time"}, {"", "and 1,164 more"}},
	} {
		if diff := cmp.Diff(want, eventRows("extra", first, all)); diff != "" {
			t.Errorf("%d events (-want +got):\n%s", all, diff)
		}
	}
}

// TestVerdictWithoutPosition: a stream that has read no page since its last move has no position: the
// hint is not about the earliest event.
func TestVerdictWithoutPosition(t *testing.T) {
	t.Parallel()
	r := &reconcile.Report{Topic: "export.events", Missing: 3, API: 3, From: 1_000, To: 2_000}
	err, ok := errors.AsType[*cli.Error]((&verifyOptions{}).verdict(&cli.App{}, r))
	if !ok || strings.Contains(err.Hint, "earliest event") {
		t.Errorf("the hint is %q", err.Hint)
	}
}

// TestUncompared: equal numbers are no success where no event of the range was compared, although it has some. A
// range that is empty on both sides is a quiet one, and a few events may be late.
func TestUncompared(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		report reconcile.Report
		code   int
	}{
		{reconcile.Report{}, cli.ExitOK},
		{reconcile.Report{Extra: 10}, cli.ExitEmptyEnd},
		{reconcile.Report{Extra: 9}, cli.ExitOK},
		{reconcile.Report{API: 10, Held: 10, Outside: 10}, cli.ExitEmptyEnd},
		{reconcile.Report{API: 9, Held: 9, Outside: 9}, cli.ExitOK},
		{reconcile.Report{API: 2, Held: 2, Outside: 1, Extra: 1}, cli.ExitOK},
		{reconcile.Report{API: 2, Held: 1, Outside: 2, Missing: 1}, cli.ExitCheck},
	} {
		r := &tc.report
		periods := []attest.Link{{Record: attest.Record{
			Seq: 1, Listed: r.API, Held: r.Held, Missing: r.Missing, Outside: r.Outside, Extra: r.Extra}}}
		for name, err := range map[string]error{
			"verify": (&verifyOptions{}).verdict(&cli.App{}, r), "attest": (&attestReport{Records: periods}).verdict(),
		} {
			code := cli.ExitOK
			if exit, ok := errors.AsType[*cli.Error](err); ok {
				code = exit.Code
			}
			if code != tc.code {
				t.Errorf("%s of %+v: %v (code %d), want code %d", name, *r, err, code, tc.code)
			}
		}
	}
	late := attest.Link{Record: attest.Record{Listed: 10, Held: 10, Outside: 10}} // than the period before
	if err := (&attestReport{Records: []attest.Link{late, late}}).verdict(); err != nil {
		t.Errorf("periods whose events are all ingested in the next one: %v", err)
	}
}
