// Package failpoint names the places where a crash matters and the rules of the
// protocol that can be taken away. Only a build with the tag "proof" does either.
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

// Points lists all of them.
var Points = []Point{
	Init, Barrier, Fetched, Produced, Acked, Checkpoint,
	Ending, Ended, Mirroring, Mirrored,
}

// Break names a rule of the protocol that can be taken away, in a build with
// the tag "proof" and PROOF_BREAK=NAME, to show that the tests notice.
type Break string

// The rules that can be broken.
const (
	BreakSplit   Break = "save-before-commit"   // the checkpoint is committed before its events
	BreakGrow    Break = "forget-grown"         // a batch is committed without the pages that it grew by
	BreakPromise Break = "ignore-promise"       // a record that failed does not stop the commit
	BreakAbort   Break = "heal-with-tryabort"   // an unknown outcome is taken for an abort
	BreakBarrier Break = "skip-barrier"         // the checkpoint is read up to the last stable offset, without a barrier
	BreakRead    Break = "read-before-init"     // the checkpoint is read before the producer id is taken
	BreakMirror  Break = "trust-redis"          // Redis is believed whenever it has a checkpoint
	BreakAnswer  Break = "answer-before-commit" // a command is acknowledged before it is committed
	BreakMemory  Break = "go-on-from-memory"    // a session goes on from what it remembers
	BreakAdopt   Break = "adopt-before-publish" // a checkpoint counts before its batch is published
	BreakTail    Break = "skip-tail"            // the identities at the end of the results are not kept
	BreakClaim   Break = "claim-outlives"       // a command is applied by whoever finds it claimed, past its deadline too
	BreakTopic   Break = "any-topic"            // the topics are not compared with what the checkpoint says
	BreakEpoch   Break = "mix-epochs"           // the stream goes on in the epoch of which Kafka lost a part

	BreakBorder    Break = "any-border"     // what ended the page before is published again
	BreakFirstPage Break = "trust-any-page" // the first page is taken at any cursor
	BreakRequest   Break = "any-request"    // the settings are not compared with the request that the cursor came from
)

// Breaks lists all of them.
var Breaks = []Break{BreakSplit, BreakGrow, BreakPromise, BreakAbort, BreakBarrier, BreakRead, BreakMirror, BreakAnswer, BreakMemory, BreakAdopt,
	BreakTail, BreakClaim, BreakTopic, BreakEpoch, BreakBorder, BreakFirstPage, BreakRequest}
