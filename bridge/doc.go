// Package bridge declares the contract between the engine and its adapters: the
// ports ([Source], [Sink], [Store], [Owner], [Inbox], [Observer]) and the values
// that pass through them ([Page], [Batch], [Checkpoint], [Command], [Fault],
// [Status]). Package engine calls the ports, and its package position says how a
// page moves the stream; exportapi, kafkasink, kafkagroup and cursorstore
// implement the ports. This package imports the standard library
// only, and none of those.
//
// # Promise
//
// Exactly once: the sink makes a batch and its checkpoint visible atomically.
// The sink's checkpoint is authoritative; the [Store] has a copy, the history,
// and the operator's requests. A session fences all earlier ones, reads that
// checkpoint and resumes from it. After an unknown outcome the in-memory state
// is discarded.
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
