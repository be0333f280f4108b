// Package exportsim is a paginated export API in one http.Handler: events,
// sessions and users in the forms of three generations of the public schema,
// both end-of-results contracts, growth, latency, limits and real faults on
// demand.
//
// A Form makes it look like another service: where a page has its items and its
// cursor, how requests are written and who may ask. The content is the same.
//
// A form with Clocked is an audit list: what happened until now, newest first, some of
// it late. EventTime and VisibleAt say when an event happens and when it is listed.
//
// Everything it serves is a pure function of the Config and an index, so a
// stock of a million events needs no memory and two simulators with the same
// Config (Start set) serve the same bytes and understand each other's cursors.
//
// How a request becomes an answer: ServeHTTP counts it, waits the latency and
// draws a fault; answer checks path, method, key and limits; parseQuery reads
// the parameters and the cursor; append renders the page; send compresses,
// throttles and breaks what the fault wants broken.
package exportsim
