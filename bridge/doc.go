// Package bridge declares the contract between the engine and its adapters: the
// ports ([Source], [Sink], [Store], [Owner], [Inbox], [Observer]) and the values
// that pass through them ([Page], [Batch], [Checkpoint], [Command], [Fault],
// [Status]). Package engine calls the ports; package position computes how a page
// moves the stream. exportapi, windows, kafkasink, kafkagroup and cursorstore
// implement the ports. This package imports only the standard library.
//
// # Promise
//
// In exactly-once mode, the sink makes a batch and its checkpoint visible
// atomically. The sink's checkpoint is authoritative. The [Store] has a copy, the
// history and the operator's commands. A session fences all earlier sessions, reads
// the sink's checkpoint and resumes there. After an unknown outcome the engine
// discards its state.
//
// In at-least-once mode, the Store's checkpoint advances past a page only after the
// sink has acknowledged every event up to the end of that page. Nothing is lost.
// After a crash the pages in flight are published again, in order, with the same
// record ids.
//
// In both modes an event that cannot be published stops the stream or becomes a
// dead letter, and is counted. Safety does not depend on the [Owner]: two processes
// on one stream fence each other. The Owner avoids that contention.
//
// # The end of the results
//
// An API marks the end of the results by an empty nextCursor, or by an empty page
// with an unchanged cursor. Both are a tail: the cursor stays. The page may grow
// before it is read again, so the checkpoint records which of its items are
// published.
package bridge
