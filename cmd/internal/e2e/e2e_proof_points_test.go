//go:build unix

package e2e_test

// The places where a build with the tag "proof" can be killed, by
// bridge/internal/failpoint. It refuses other names.
const (
	pointInit       = "init"
	pointBarrier    = "barrier"
	pointFetched    = "fetched"
	pointProduced   = "first-produce"
	pointAcked      = "acked"
	pointCheckpoint = "checkpoint-produced"
	pointEnding     = "endtxn-sent"
	pointEnded      = "endtxn-answered"
	pointMirroring  = "mirror-begins"
	pointMirrored   = "mirror-done"
)

var points = []string{
	pointInit, pointBarrier, pointFetched, pointProduced, pointAcked, pointCheckpoint,
	pointEnding, pointEnded, pointMirroring, pointMirrored,
}
