package kafkasink

import (
	"regexp"

	"exportbridge/bridge"
)

// jobsSuffix is what the topic of the jobs' records has behind the name of the
// checkpoint topic. A job never writes where the stream has its checkpoints: an
// open transaction there would hold its start back.
const jobsSuffix = ".jobs"

// JobsTopic is the name of the topic where the jobs of streams are whose
// checkpoints are in the given one.
func JobsTopic(checkpoints string) string { return checkpoints + jobsSuffix }

func (c *Config) jobsTopic() string { return JobsTopic(c.CheckpointTopic) }

// Window is one window of a job, which is a stream of its own to Kafka.
type Window struct {
	// Name is that of its checkpoints and its transactions:
	// STREAM.JOB.wN.FROM-TO. Its bounds are in it, so that what was reached in
	// one window is never taken for a place in another.
	Name string
	// Topic is where its events go, Origin the header eb-origin that they have.
	Topic, Origin string
}

var windowNames = regexp.MustCompile(`^(.+)\.w\d+\.\d+-\d+$`)

// jobName is a job's name among the streams. A stream of BRIDGE_STREAMS has no
// dot.
func jobName(stream, id string) string { return stream + "." + id }

// ownedAs returns the name under which a stream is owned. Whoever owns a job
// owns its windows.
func ownedAs(stream string) string {
	if m := windowNames.FindStringSubmatch(stream); m != nil {
		return m[1]
	}
	return stream
}

// originReplay is the origin of what is published to a topic of its own.
const originReplay = "replay"

// OfWindow returns the configuration of a Sink for a window of a job of the
// stream that c is the configuration of. It is exactly once always, and creates
// no topics by itself: a topic of checkpoints that vanished must not begin anew.
func (c *Config) OfWindow(w Window) Config {
	own := *c
	own.Stream, own.CheckpointTopic, own.Topic = w.Name, c.jobsTopic(), w.Topic
	own.Part = &Part{Stream: c.Stream, Origin: w.Origin}
	own.Mode, own.CreateTopics, own.InstanceID, own.Known = bridge.ExactlyOnce, false, "", nil
	if w.Origin == originReplay {
		own.DLQTopic = "" // beside the topic of its own
	}
	return own
}
