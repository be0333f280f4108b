// Package bridgetest has a fake for every port of the engine and the
// conformance suite that every adapter must pass. It is built on the standard
// library and go-cmp alone, so that a test of the engine compiles in seconds.
//
// The suites are [TestSource], [TestSink], [TestStore], [TestInbox] and
// [TestOwner]. Each takes a function that makes a fixture: an adapter on an
// empty server of its own, and the few things that only the fixture's author
// can do, such as reading a topic back. A suite has one subtest per sentence of
// the port's comment.
//
// The fakes are [Source], [Topic] (whose [Topic.Open] gives a Sink), [Store],
// [Inbox] and [Group] (whose [Group.Open] gives an Owner). They fail the test
// themselves when the engine breaks a contract, they fail in the forms of
// [Failure] when told to, and they know time only through the standard library,
// so they work in a synctest bubble.
//
// Servers to run the suites against are in bridgetest/servers, proxies that
// inject faults in bridgetest/faultproxy.
package bridgetest
