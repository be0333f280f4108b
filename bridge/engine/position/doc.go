// Package position is the position of a stream as a value, and how a page changes
// it: what was published of a page before, which cursors were read, and what an
// empty page says. It has no clock, no context, no log and no I/O.
package position
