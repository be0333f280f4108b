// Package scan checks JSON documents in one pass, without allocating, and hands
// out their values as slices of them.
package scan
