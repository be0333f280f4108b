// Package position has the position of a stream as a value, and how a page changes it:
// which items of earlier pages are published, which cursors were read, and what an empty
// page means. It uses no clock, context, log or I/O.
package position
