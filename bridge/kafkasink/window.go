package kafkasink

import (
	"regexp"

	"exportbridge/bridge"
)

// jobsSuffix is appended to the checkpoint topic's name for the job topic. A
// job never writes to the checkpoint topic: its open transaction would delay
// the start of the stream.
const jobsSuffix = ".jobs"

// JobsTopic returns the name of the job topic of a checkpoint topic.
func JobsTopic(checkpoints string) string { return checkpoints + jobsSuffix }

// Window is one window of a job, which is a stream of its own to Kafka.
type Window struct {
	// Name names its checkpoints and transactions: STREAM.JOB.wN.FROM-TO. It contains
	// the bounds, so that no window takes the position of another.
	Name string
	// Topic is the topic of its events without a route of Routes, Origin the value of
	// eb-origin.
	Topic, Routes, Origin string
}

var windowNames = regexp.MustCompile(`^(.+)\.w\d+\.\d+-\d+$`)

// JobName returns a job's name as a stream. No stream of BRIDGE_STREAMS has such a name:
// their names have no dot.
func JobName(stream, id string) string { return stream + "." + id }

// OwnedAs returns the name under which a stream is owned. The owner of a job owns the job's
// windows.
func OwnedAs(stream string) string {
	if m := windowNames.FindStringSubmatch(stream); m != nil {
		return m[1]
	}
	return stream
}

// originReplay is the origin of events published to a replay topic.
const originReplay = "replay"

// OfWindow returns the configuration of a Sink for a window of a job of the
// stream. It is always in exactly-once mode.
func (c *Config) OfWindow(w Window) Config {
	own := *c
	own.Stream, own.CheckpointTopic, own.Topic = w.Name, JobsTopic(c.CheckpointTopic), w.Topic
	own.RouteText = w.Routes
	own.Part = &Part{Stream: c.Stream, Origin: w.Origin}
	own.Mode, own.Known = bridge.ExactlyOnce, nil
	if w.Origin == originReplay {
		own.DLQTopic = ""  // the default beside w.Topic
		own.RouteText = "" // but the export's routes still say which events are dropped
	}
	return own
}
