package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"exportbridge/bridge"
)

// TestSayChanges: a server that refuses is not one that is away.
func TestSayChanges(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"away":    {errors.New("connection refused"), `msg="server does not answer, waiting for it" server=kafka error="connection refused"`},
		"lost":    {&bridge.Fault{Err: errors.New("reset"), Hint: "wait"}, `msg="server does not answer, waiting for it" server=kafka error=reset hint=wait`},
		"refuses": {&bridge.Fault{Class: bridge.Permanent, Err: errors.New("no topic"), Hint: "create it"}, `msg="server is not ready for us, waiting for it" server=kafka error="no topic" hint="create it"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			said := sayChanges(slog.New(slog.NewTextHandler(&out, nil)), "kafka")
			said(tc.err)
			said(tc.err)
			if got := out.String(); !strings.Contains(got, tc.want) || strings.Count(got, "\n") != 1 {
				t.Errorf("said %q, want once %q", got, tc.want)
			}
			said(nil)
			if !strings.Contains(out.String(), `msg="server answers again"`) {
				t.Errorf("said %q, want that it is back", out.String())
			}
		})
	}
}
