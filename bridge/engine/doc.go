// Package engine follows the cursor of a paginated export API: it moves pages from a
// [bridge.Source] to a [bridge.Sink], commits the checkpoint with them, and reports
// progress. It contains the whole algorithm and no I/O library. It reaches everything else
// through the ports of package bridge, which also states the guarantees.
//
// # Life of a page
//
//	Run           wires the loop, and stops it in two phases
//	own           acquires and releases ownership of the stream
//	follow        recovers, then takes one input after the other
//	next          waits for the next input
//	step          begins a session, or begins to fetch at the position
//	fetch         requests the next page while earlier pages are decoded and published
//	handleFetched adds the page to a batch, and commits a full one
//	add           takes the page, and sends its events
//	Take          checks the page, drops events already published, returns the next position
//	commit        derives the next checkpoint, and publishes it with the batch
//	adopt         makes the position the committed one
//	mirror        copies the checkpoint to the store concurrently
//
// Besides:
//
//	handleError          discards the state after an error, waits, and recovers
//	applyCommand         applies an operator's command between two batches: a
//	                     reset, a pause or its end, each a checkpoint of a new
//	                     epoch
//	recoverInvalidCursor moves away from a cursor that the API rejects, if
//	                     configured, and drops events already in the sink
//
// Package position has the algorithm as values: Position.Take returns the position after a
// page, and its findings. The loop holds two positions: the committed one, and the one
// after the open batch (progress.go).
//
// The loop's state has four lifetimes: a session of the sink (session.go), the stream's
// position (progress.go), an ownership (own.go), and the run (run.go). Only stream.go and
// the recovery of a session move the committed position.
//
// Fetching and decoding run on goroutines of their own. Everything from handleFetched on
// runs on one goroutine, the commit loop, which owns the checkpoint. Only the results of
// the ports make the loop nondeterministic.
package engine
