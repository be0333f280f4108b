// Package windows follows a list without a lasting cursor: it comes newest first, or its
// cursor belongs to one query. A [Lister] is a bridge.Source over the Source of such a
// list. Its cursor is a bridge.Watermark.
//
// # Life of a window
//
//	Fetch   returns the next page of the listed window, or lists the next window
//	window  chooses [from, to): to is at most the API's clock less Settle
//	list    reads all pages of the window, beginning LookBack before from
//	collect keeps the items that the topic does not hold
//	pages   sorts the items by time, and cuts them into pages; the last page leads to the
//	        watermark at to
//
// If the API takes no end, the listing goes on to the newest item. If it takes no start,
// the listing goes from the newest item back to known ones (walk.go).
//
// Whatever a listing with a start returns is published: bounds steer requests, not items.
// The Lister knows what the topic holds from Position.Held, which the engine reads back at
// the start of a session, and from the items that it returned since. After a crash in the
// middle of a window, the window is listed again.
//
// A [Range] reads past ranges of such a list in the same way, for jobs and comparisons.
// Its cursor says which items were returned: the topic may hold more of them, or none.
package windows
