// Package bridge follows the cursor of a paginated export API and turns it
// into a stream: it moves pages from a [Source] to a [Sink] and the checkpoint
// with them, and says how far it is. It holds the whole algorithm and no I/O
// library: what it needs of the world are the ports of ports.go.
//
// # Life of a page
//
//	Run       wires the loop, and stops it in two phases
//	own       waits until the stream is this process's, and lets it go
//	follow    recovers, then takes one input after the other
//	fetch     asks at the cursor; the next request leaves as soon as the next
//	          cursor is known, within a budget of pages and bytes
//	decode    splits the body into events, without copying
//	trim      drops what the checkpoint says was published from this page
//	collect   takes what is ready into one batch
//	commit    derives the next checkpoint and publishes both
//	mirror    copies the checkpoint to the store, beside the loop
//
// Beside it:
//
//	handleError          on any doubt: forget, wait, and start over by recover
//	applyCommand         applies an operator's command between two batches: a
//	                     reset, a pause or its end, each a checkpoint of a new
//	                     epoch
//	recoverInvalidCursor leaves a cursor that the API refuses for good, if
//	                     configured, and drops from then on what the sink holds
//
// The loop's state has four lifetimes: a session of the sink (session.go), the
// position that the stream is at (progress.go), an ownership (own.go),
// and the run (run.go).
//
// Asking and splitting are goroutines of their own. Everything from collect on
// runs on one goroutine, the commit loop, which owns the checkpoint; all that
// it does not decide itself is what its ports return.
//
// # Promise
//
// Exactly once: the sink makes a batch and the checkpoint behind it visible in
// one step or not at all. The checkpoint that the sink holds is the truth; the
// [Store] has a copy, the history, and the operator's requests. A session
// first ends all earlier ones, then reads that checkpoint, and goes on from
// it (recover, merge): after any doubt nothing in memory is believed.
//
// At least once: the checkpoint, kept by the Store, moves over a page only
// after the sink has acknowledged every event of it and of all pages before
// it. Nothing is lost; after a crash the pages in flight come again, in order,
// with the same record ids.
//
// In both, no event is skipped in silence: one that cannot be published stops
// the stream or goes to the dead letters, and is counted. Safety does not
// depend on the [Owner]: two processes that run one stream fence each other.
// It keeps them from trying.
//
// # The end of the results
//
// An API may say "nothing more" by an empty nextCursor or by an empty page
// whose cursor stays. Both are a tail: the cursor stays, and the checkpoint
// remembers which items of that last page are published, since the same page
// will be read again and may have grown.
package bridge
