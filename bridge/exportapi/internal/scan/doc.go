// Package scan checks JSON documents in one pass, without allocating. Values are slices
// of their document.
package scan
