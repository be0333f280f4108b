// Package cursorstore keeps a stream's checkpoint, commit history, operator
// requests and live status in Redis. Every change is one compare-and-set
// script.
//
// With at-least-once delivery it is the source of truth. The checkpoint is as
// durable as the server's persistence and replication; Client.Check assesses
// them.
//
// The history is a tree of positions. Within an epoch each entry follows the
// previous one; the parent of an epoch's first entry is the entry that the
// epoch was reset to. The current branch is the path from the checkpoint back.
package cursorstore
