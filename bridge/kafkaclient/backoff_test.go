package kafkaclient

import (
	"testing"
	"time"
)

// TestRetryBackoff: the waits double up to 5 seconds, with a jitter of a fifth.
func TestRetryBackoff(t *testing.T) {
	t.Parallel()
	for fails, want := range map[int]time.Duration{
		0: 250 * time.Millisecond, 1: 250 * time.Millisecond, 3: time.Second, 5: 4 * time.Second, 100: 5 * time.Second,
	} {
		for range 100 {
			if got := retryBackoff(fails); got < want*4/5 || got > min(want*6/5, 5*time.Second) {
				t.Fatalf("after %d failures %s, want about %s", fails, got, want)
			}
		}
	}
}
