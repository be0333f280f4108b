// Package conformance has the suite that every adapter of a port must pass: [TestSource],
// [TestSink], [TestStore], [TestInbox] and [TestOwner]. Each takes a function that makes a
// fixture. A fixture is an adapter on an empty server of its own, with the operations that
// only its author can write, such as reading a topic back. A suite has one subtest per
// sentence of the port's comment.
package conformance
