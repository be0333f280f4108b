package cursorstore_test

import (
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// TestLargeReplies: a value that somebody else wrote, far larger than any of ours, is not
// read, and the memory that it announces is not taken. The next command works.
func TestLargeReplies(t *testing.T) {
	t.Parallel()
	sp := embedded(t).space(t)
	cfg := sp.config()
	cfg.Timeout = time.Minute
	store := open(t, cfg).Stream(stream)
	mustAdvance(t, store, bridge.Checkpoint{}, at(0, 0))
	ctx, large := t.Context(), strings.Repeat("x", 9<<20)
	for name, c := range map[string]struct {
		put  func() error
		read func() error
	}{
		"status": {
			func() error { return sp.raw.Set(ctx, sp.key("status"), large, 0).Err() },
			func() error { _, _, err := store.Status(ctx); return err },
		},
		"history": {
			func() error { return sp.raw.HSet(ctx, sp.key("history"), "0.0", large).Err() },
			func() error { _, err := store.Entry(ctx, bridge.Version{}); return err },
		},
	} {
		must.Do(t, c.put())
		must.Be(t, c.read(), bridge.ErrForeign, "larger than any")
		if _, err := store.Load(ctx); err != nil {
			t.Errorf("%s: the command after it: %v", name, err)
		}
	}
}
