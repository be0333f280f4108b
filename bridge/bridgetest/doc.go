// Package bridgetest has a fake for every port of the engine. It is built on the standard
// library alone, so that a test of the engine compiles in seconds.
//
// The fakes are [Source], [Topic] (whose [Topic.Open] returns a Sink), [Store], [Inbox] and
// [Group] (whose [Group.Open] returns an Owner). A fake fails the test if the engine breaks
// a contract. A test can make its calls fail in the forms of [Failure]. The fakes know time
// only through the standard library, so they work in a synctest bubble.
//
// Package conformance has the suites that every adapter must pass, package servers the
// servers to run them against, and package faultproxy the proxies that inject faults.
// Package model checks the models of the protocols. Package rules removes the rules of the
// protocols, one at a time.
package bridgetest
