package setup

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
)

// Sections without an answer end at --timeout, which begins for each stream with its check. Few
// streams are checked at a time.
func TestCheckEndsAtTimeout(t *testing.T) {
	t.Parallel()
	for streams, rounds := range map[int]int{1: 1, control.AtOnce: 1, 2*control.AtOnce + 1: 3} {
		synctest.Test(t, func(t *testing.T) {
			s := &config.Settings{Streams: make([]config.Stream, streams)}
			silent := func(ctx context.Context) []finding {
				return eachStream(ctx, s, time.Minute, func(ctx context.Context, _ *config.Stream) []finding {
					<-ctx.Done()
					return []finding{fail(ctx.Err().Error())}
				})
			}
			var out strings.Builder
			a := &cli.App{Stdio: cli.Stdio{Stdout: &out}}
			began := time.Now()
			err := runCheck(t.Context(), a, []checkSection{{"api", silent}, {"kafka", silent}}, false)
			if took := time.Since(began); took != time.Duration(rounds)*time.Minute || err == nil {
				t.Errorf("%d streams: after %s: %v", streams, took, err)
			}
			if text := out.String(); strings.Count(text, context.DeadlineExceeded.Error()) != 2 {
				t.Errorf("the check printed\n%s", text)
			}
		})
	}
}

// TestSelects: a pointer of a rule selects what the rule does.
func TestSelects(t *testing.T) {
	t.Parallel()
	item := map[string]any{"a": map[string]any{"b/c": nil}, "list": []any{map[string]any{}, map[string]any{"x": 1}}}
	for pointer, want := range map[string]bool{
		"/a": true, "/a/b~1c": true, "/list/*": true, "/list/*/x": true,
		"/A": false, "/a/b": false, "/a/b~1c/d": false, "/a/*": false, "/list/*/y": false, "/list/1": false,
	} {
		if got := selects(item, strings.Split(pointer, "/")[1:]); got != want {
			t.Errorf("%s: %v, want %v", pointer, got, want)
		}
	}
}

// TestOwnerAhead: a state of an owner whose clock is ahead has no negative age.
func TestOwnerAhead(t *testing.T) {
	t.Parallel()
	now := time.Now()
	got := ownerOf(&bridge.Status{Owner: "one", State: bridge.StateRunning, Since: now.Add(time.Minute)}, now)
	if got.Text != "one, epoch 0, running for 0s" {
		t.Errorf("%q", got.Text)
	}
}
