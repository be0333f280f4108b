// Package engine follows the cursor of a paginated export API: it moves pages
// from a [bridge.Source] to a [bridge.Sink], commits the checkpoint with them,
// and reports progress. It contains the whole algorithm and no I/O library;
// everything outside is reached through the ports of package bridge, which also
// says what is promised.
//
// # Life of a page
//
//	Run       wires the loop, and stops it in two phases
//	own       acquires and releases ownership of the stream
//	follow    recovers, then takes one input after the other
//	fetch     asks at the cursor; the next request leaves as soon as the next
//	          cursor is known, within a budget of pages and bytes
//	decode    splits the body into events without copying
//	take      checks the page, drops the events already published, and moves the
//	          position over it
//	collect   gathers ready pages into one batch
//	commit    derives the next checkpoint and publishes both
//	mirror    copies the checkpoint to the store concurrently
//
// Beside it:
//
//	handleError          discards the state after an error, waits, and recovers
//	applyCommand         applies an operator's command between two batches: a
//	                     reset, a pause or its end, each a checkpoint of a new
//	                     epoch
//	recoverInvalidCursor moves away from a cursor that the API rejects, if
//	                     configured, and drops events already in the sink
//
// Package position is the algorithm as values: Position.Take gives the position after
// a page, and what was found on it. progress.go holds the committed position and the
// one ahead of it.
//
// The loop's state has four lifetimes: a session of the sink (session.go), the
// stream's position (progress.go), an ownership (own.go), and the run (run.go).
// stream.go changes the stream's by a commit; the recovery of a session does so too,
// and nothing else of the loop.
//
// Fetching and decoding run on goroutines of their own. Everything from collect
// on runs on one goroutine, the commit loop, which owns the checkpoint; its
// only nondeterminism is what the ports return.
package engine
