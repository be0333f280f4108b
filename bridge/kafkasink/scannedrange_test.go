package kafkasink

import (
	"math/rand/v2"
	"testing"
)

// TestScannedRange reads logs backwards in steps, as newest does, that are cut
// short at random: no offset may be passed over that was never read.
func TestScannedRange(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 20_000 {
		var known scannedRange
		read := make(map[int64]bool)
		var end int64
		for range 1 + r.IntN(4) { // starts
			end += r.Int64N(40)
			low := max(0, end-r.Int64N(10))
			for o := low; o < end; o++ {
				read[o] = true
			}
			for step := int64(1); low > 0 && r.IntN(5) > 0; step *= 2 {
				high := known.skip(low)
				next := known.stop(max(0, high-step), high)
				if next > high || high > low || next == low {
					t.Fatalf("seed %d: reads [%d, %d) below %d with %+v", seed, next, high, low, known)
				}
				for o := next; o < high; o++ {
					read[o] = true
				}
				low = next
			}
			for o := low; o < end; o++ {
				if !read[o] {
					t.Fatalf("seed %d: offset %d of [%d, %d) was never read", seed, o, low, end)
				}
			}
			known.join(low, end)
		}
	}
}
