package cursorstore

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
)

// TestWritesAreForgotten: a rejected write counts for ten seconds, and only for its
// stream.
func TestWritesAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w writes
		rejected := &bridge.Fault{Code: "readonly", Err: fmt.Errorf("redis at x: %w", ErrWrites)}
		want := func(when, stream string, outcome error, rejects bool) {
			t.Helper()
			if got := w.health(stream, outcome); errors.Is(got, ErrWrites) != rejects || got == nil && outcome != nil {
				t.Errorf("%s, stream %s: health is %v", when, stream, got)
			}
		}
		want("at first", "a", nil, false)
		want("a rejected write", "a", rejected, true)
		want("a read", "a", nil, true)
		want("another stream's read", "b", nil, false)
		want("an outage", "a", errors.New("refused"), false)
		<-time.After(rejectedFor - time.Millisecond)
		want("a read before the ten seconds are over", "a", nil, true)
		<-time.After(time.Millisecond)
		want("a read after ten seconds", "a", nil, false)
		want("another rejected write", "a", rejected, true)
		if w.taken("b") || !w.taken("a") || w.taken("a") {
			t.Error("a write that was taken ends the rejections of its stream, once")
		}
		want("a read after it", "a", nil, false)
	})
}
