// Package failpoint names the places where a crash matters. Only a build with the tag
// "proof" crashes there.
package failpoint

// Point names a place on the path of a commit where a crash matters. In a
// build with the tag "proof", the environment variable PROOF_CRASH=NAME:N
// kills the process with SIGKILL when it reaches the point for the Nth time,
// NAME:N:stop stops it with SIGSTOP; without the tag Reach does nothing.
type Point string

// The points, in the order of a session and a commit.
const (
	Init       Point = "init"          // InitProducerID is answered
	Barrier    Point = "barrier"       // the barrier is committed
	Fetched    Point = "fetched"       // a page is in memory
	Produced   Point = "first-produce" // the first record is handed to the client
	Acked      Point = "acked"         // every record of the batch is acknowledged
	Checkpoint Point = "checkpoint-produced"
	Ending     Point = "endtxn-sent"     // about to end the transaction
	Ended      Point = "endtxn-answered" // the transaction is committed
	Mirroring  Point = "mirror-begins"   // about to store the checkpoint in the mirror
	Mirrored   Point = "mirror-done"     // the mirror has it
)

// Points lists all points.
var Points = []Point{
	Init, Barrier, Fetched, Produced, Acked, Checkpoint,
	Ending, Ended, Mirroring, Mirrored,
}
