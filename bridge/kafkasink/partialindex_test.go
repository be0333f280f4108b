package kafkasink_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// PartialIndex is what is committed of one source. Without headers there are no marks.
func TestKnown(t *testing.T) {
	t.Parallel()
	theirs := bridge.SourceIdentity{Organization: "globex", Application: "web"}
	for headers, want := range map[string]struct{ marks, sources bool }{
		"cloudevents": {true, true}, "minimal": {true, false}, "none": {false, false},
	} {
		t.Run(headers, func(t *testing.T) {
			t.Parallel()
			cfg, s := ready(t, exactly, withHeaders(headers))
			b := batch(cfg, 0)
			event3, ours := b.Pages[0].Events[3], b.Pages[0].Source
			mustCommit(t, s, b)
			known := must.Get(s.PartialIndex(t.Context(), time.Now().Add(-time.Hour), ours))(t)
			if (known != nil) != want.marks {
				t.Fatalf("known %v, want marks %t", known, want.marks)
			}
			if !want.marks {
				return
			}
			early := must.Get(s.PartialIndex(t.Context(), time.UnixMilli(5), ours))(t)
			if never := event("never", "u"); !known.Match(&event3) || !early.Match(&event3) || known.Match(&never) {
				t.Error("it does not know what was committed, or knows what was not")
			}
			if changed := event3; true {
				changed.Raw = append(slices.Clone(event3.Raw), ' ')
				if known.Match(&changed) {
					t.Error("it knows bytes that were never published, by their id")
				}
			}
			known = must.Get(s.PartialIndex(t.Context(), time.Now().Add(-time.Hour), theirs))(t)
			if got := known.Match(&event3); got == want.sources {
				t.Errorf("an event of another source is known: %t", got)
			}
		})
	}
}

// When the time is up, PartialIndex returns what it has found, or that it found nothing.
func TestKnownWithoutTime(t *testing.T) {
	t.Parallel()
	cfg := config(t, []string{"127.0.0.1:1"}, exactly)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if known, err := open(t, cfg).PartialIndex(ctx, time.Now(), bridge.SourceIdentity{}); err == nil || known != nil {
		t.Errorf("known %v, %v from a broker that is away", known, err)
	}
}
