// Package windows follows a list that is no cursor: one that comes newest first, or whose
// cursor belongs to one query. A [Lister] is a bridge.Source over the Source of such a
// list. Its cursor is a bridge.Watermark.
//
// # Life of a window
//
//	Fetch   gives the next page of the window that is listed, or lists the next one
//	window  chooses [from, to): to is at most the API's clock less Settle
//	list    reads all pages of it, from LookBack before from on
//	collect keeps the items that the topic does not hold
//	pages   sorts them by time, and cuts them into pages; the last one leads to the
//	        watermark at to
//
// A list that takes no end is listed from there on, one that takes no start from its
// newest item back to known ones (walk.go).
//
// Whatever a listing with a start returns is published: bounds steer requests, not items. What the
// topic holds is known from Position.Held, which the engine reads back at the start of
// a session, and from what the Lister gave out since. A crash in the middle of a window
// lists it again.
//
// A [Range] reads past ranges of such a list in the same way, for jobs and comparisons.
// Its cursor says what was given out, since the topic may hold more, or nothing, of them.
package windows
