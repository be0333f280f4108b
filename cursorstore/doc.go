// Package cursorstore keeps what a stream must not forget in Redis: its
// checkpoint, the history of its commits, the operator's requests and the live
// status. Each change is compared and set in one script.
//
// In at-least-once delivery this is the truth. The checkpoint is as durable as
// the server's persistence and replication make it; Client.Check says what
// they are worth.
//
// The history is a tree of whole positions. Within an epoch each entry follows
// the one before it; before an epoch's first entry comes the entry that the
// epoch was reset to. The current branch is the path from the checkpoint back.
package cursorstore
