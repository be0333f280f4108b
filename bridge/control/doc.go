// Package control is what the command line and HTTP both call to see and steer
// a stream: where it is, what moving it would do, moving, pausing and resuming
// it, and its history.
//
// A change is a request to the bridge that runs the stream, with a deadline and
// an acknowledgement. Where none runs it, the [Controller] takes the stream
// itself, by the same steps; it never joins the stream's group, and takes it
// only where Kafka's coordinator shows no member. While Redis is away Kafka
// alone decides.
//
// The package knows no transport: its errors say what is in the way, and each
// caller says it in its own terms.
package control
