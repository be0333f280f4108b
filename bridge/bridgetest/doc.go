// Package bridgetest has a fake for every port of the engine. It is built on the
// standard library alone, so that a test of the engine compiles in seconds.
//
// The fakes are [Source], [Topic] (whose [Topic.Open] gives a Sink), [Store],
// [Inbox] and [Group] (whose [Group.Open] gives an Owner). They fail the test
// themselves when the engine breaks a contract, they fail in the forms of
// [Failure] when told to, and they know time only through the standard library,
// so they work in a synctest bubble.
//
// The suites that every adapter must pass are in bridgetest/conformance, servers
// to run them against in bridgetest/servers, proxies that inject faults in
// bridgetest/faultproxy. bridgetest/model checks the protocols' models, and
// bridgetest/rules takes their rules away, one at a time.
package bridgetest
