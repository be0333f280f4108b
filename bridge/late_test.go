package bridge_test

import (
	"testing"
	"time"

	"exportbridge/bridge"
)

func TestLate(t *testing.T) {
	late := make(bridge.Late)
	if text := late.Text(); text != "" {
		t.Errorf("without late events: %q", text)
	}
	for _, by := range []time.Duration{time.Second, time.Minute, 61 * time.Second, 5 * time.Hour, 25 * time.Hour,
		1000 * time.Hour} {
		late.Add(by)
	}
	if text, want := late.Text(), "2 up to 1m, 1 up to 5m, 1 up to 6h, 2 later"; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
}
