package records

import (
	"errors"
	"testing"

	"exportbridge/bridge/attest"
	"exportbridge/cmd/internal/cli"
)

// TestAttestVerdict: the exit code is that of the worst that the records say.
func TestAttestVerdict(t *testing.T) {
	complete := attest.Link{Record: attest.Record{Seq: 1}}
	cut := attest.Link{Record: attest.Record{Seq: 2, EndedEmpty: true}}
	missing := attest.Link{Record: attest.Record{Seq: 3, Missing: 2}}
	broken := []attest.Break{{Seq: 4, Text: "record 4 is missing"}}
	for _, tc := range []struct {
		report attestReport
		code   int
	}{
		{attestReport{Records: []attest.Link{complete}}, cli.ExitOK},
		{attestReport{Records: []attest.Link{complete, cut}}, cli.ExitEmptyEnd},
		{attestReport{Records: []attest.Link{complete, cut, missing}}, cli.ExitCheck},
		{attestReport{Records: []attest.Link{cut, missing}, Breaks: broken}, cli.ExitFailed},
	} {
		code := cli.ExitOK
		if exit, ok := errors.AsType[*cli.Error](tc.report.verdict()); ok {
			code = exit.Code
		}
		if code != tc.code {
			t.Errorf("%+v: code %d, want %d", tc.report, code, tc.code)
		}
	}
}
