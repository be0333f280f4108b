// Package bridgetest proves that a bridge works: fakes for every port, the
// conformance suites that every adapter must pass, and servers to run them
// against.
//
// The suites are [TestSource], [TestSink], [TestStore], [TestInbox] and
// [TestOwner]. Each
// takes a function that makes a fixture: an adapter on an empty server of its
// own, and the few things that only the fixture's author can do, such as
// reading a topic back. They have one subtest per sentence of the port's
// comment.
//
// The fakes are [Source], [Topic] (whose [Topic.Open] gives a Sink), [Store],
// [Inbox] and [Group] (whose [Group.Open] gives an Owner). They fail the test by themselves when the engine breaks a
// contract, they can be told to fail in the forms of [Failure], and they know
// time only through the standard library, so they work in a synctest bubble.
//
// The servers are [EmbeddedKafka] and [EmbeddedRedis], which live in the test
// process, and [StartKafka] and [StartRedis], which start Apache Kafka and
// redis-server. [LaunchKafka] and [LaunchRedis] do the same outside a test.
//
// [StartKafkaProxy] and [StartTCPProxy] stand between a client and a server
// and cut, delay or lose chosen requests and replies. [Strict] makes the
// embedded Kafka refuse what Apache Kafka refuses.
package bridgetest
