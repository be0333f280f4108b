// Package control shows and changes one stream: position, history and status;
// plan and execute a move, pause, resume. The command line and HTTP both call it.
//
// A change is a request to the bridge that runs the stream, with a deadline and
// an acknowledgement. If no bridge runs it, the [Controller] applies the change
// itself, in the same steps. It never joins the stream's consumer group, and acts
// only if the group coordinator reports no member. If Redis is unreachable, it
// relies on Kafka alone.
//
// Errors state the cause. Each caller adds hints in its own terms.
package control
