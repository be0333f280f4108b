// Package exportsim is a paginated export API in one http.Handler. It serves events,
// sessions and users in three generations of the public schema, with both
// end-of-results contracts, and on demand with growth, latency, limits and faults.
//
// A Form gives the API the shape of another service: where a page has its items and
// its cursor, what requests look like, and how they authenticate. The content is the
// same.
//
// A form with Clocked is an audit list: it lists what has happened until now, newest
// first, some of it late. EventTime is when an event happens, VisibleAt when it is
// listed.
//
// Everything served is a pure function of the Config and an index. So a million events
// need no memory, and two simulators with the same Config and a Start serve the same
// bytes and accept each other's cursors.
//
// The life of a request: ServeHTTP waits for the latency and draws a fault.
// answer checks path, method, key and limits. parseQuery reads the parameters and the
// cursor. append renders the page. send compresses, throttles, and breaks what the fault
// demands.
package exportsim
