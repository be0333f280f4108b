package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"exportbridge/bridge"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	plain := errors.New("plain")
	away := &bridge.Fault{Class: bridge.Transient, Hint: "check", Err: errors.New("i/o timeout")}
	refused := bridge.Blockf("denied", bridge.ReasonAuth, "log in", "denied")
	for _, test := range []struct {
		name    string
		ctx     context.Context
		started bool
		err     error
		want    int
	}{
		{"before the command", t.Context(), false, plain, ExitUsage},
		{"in the command", t.Context(), true, plain, ExitFailed},
		{"typed", t.Context(), true, fmt.Errorf("wrapped: %w", &Error{Code: ExitRefused, Err: plain}), ExitRefused},
		{"interrupted", cancelled, true, fmt.Errorf("wait: %w", context.Canceled), ExitInterrupted},
		{"interrupted in an adapter", cancelled, true,
			Explain(&bridge.Fault{Class: bridge.Transient, Hint: "check", Err: fmt.Errorf("read: %w", context.Canceled)}), ExitInterrupted},
		{"interrupted while a server is away", cancelled, true, Explain(away), ExitInterrupted},
		{"interrupted, unlike the cause", cancelled, true, Explain(refused), ExitRefused},
		{"interrupted, and may have changed something", cancelled, true, &Error{Code: ExitFailed, Err: away, Unsure: true}, ExitFailed},
		{"a server is away", t.Context(), true, Explain(away), ExitFailed},
		{"failed while interrupted", cancelled, true, plain, ExitFailed},
		{"cancelled by itself", t.Context(), true, context.Canceled, ExitFailed},
	} {
		a := &App{started: test.started}
		err := a.classify(test.ctx, test.err)
		if got := exitCode(err); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
		if errors.Is(test.err, away) && !errors.Is(err, away) {
			t.Errorf("%s: %v hides the cause", test.name, err)
		}
	}
	if exitCode(nil) != ExitOK || exitCode(plain) != ExitFailed {
		t.Errorf("exitCode(nil) = %d, of a plain error %d", exitCode(nil), exitCode(plain))
	}
}

func TestPrintError(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	printError(&b, errors.New("broken\n"), "mend it")
	if b.String() != "error: broken\nTry: mend it\n" {
		t.Errorf("printed %q", b.String())
	}
}
