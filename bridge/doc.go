// Package bridge follows the cursor of a paginated export API: it moves pages
// from a [Source] to a [Sink], commits the checkpoint with them, and reports
// progress. It contains the whole algorithm and no I/O library; everything
// outside is reached through the ports in ports.go.
//
// # Life of a page
//
//	Run       wires the loop, and stops it in two phases
//	own       acquires and releases ownership of the stream
//	follow    recovers, then takes one input after the other
//	fetch     asks at the cursor; the next request leaves as soon as the next
//	          cursor is known, within a budget of pages and bytes
//	decode    splits the body into events without copying
//	trim      drops the events already published from this page
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
// The loop's state has four lifetimes: a session of the sink (session.go), the
// stream's position (progress.go), an ownership (own.go), and the run (run.go).
//
// Fetching and decoding run on goroutines of their own. Everything from collect
// on runs on one goroutine, the commit loop, which owns the checkpoint; its
// only nondeterminism is what the ports return.
//
// # Promise
//
// Exactly once: the sink makes a batch and its checkpoint visible atomically.
// The sink's checkpoint is authoritative; the [Store] has a copy, the history,
// and the operator's requests. A session fences all earlier ones, reads that
// checkpoint and resumes from it (recover, merge). After an unknown outcome the
// in-memory state is discarded.
//
// At least once: the Store's checkpoint advances past a page only after the
// sink has acknowledged every event up to its end. Nothing is lost; after a
// crash the pages in flight are published again, in order, with the same record
// ids.
//
// In both modes an event that cannot be published stops the stream or becomes a
// dead letter, and is counted. Safety does not depend on the [Owner]: two
// processes on one stream fence each other. The Owner avoids that contention.
//
// # The end of the results
//
// An API marks the end of the results by an empty nextCursor, or by an empty
// page with an unchanged cursor. Both are a tail: the cursor stays, and the
// checkpoint records which items of the last page are published, since the page
// is read again and may have grown.
package bridge
