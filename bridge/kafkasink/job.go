package kafkasink

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"

	"exportbridge/bridge"
)

// JobVersion is the version of the format in which jobs are kept. This program
// writes it, and refuses newer ones.
const JobVersion = 1

// JobKind is what a job does, and the header eb-origin of its events.
type JobKind string

// The kinds of jobs.
const (
	JobReplay   JobKind = "replay"   // into a topic of its own
	JobBackfill JobKind = "backfill" // into the stream's topic
)

// JobState is what became of a job.
type JobState string

// The states of a job. Only a running one changes.
const (
	JobRunning   JobState = "running" // not finished, whether or not a process is at it
	JobDone      JobState = "done"
	JobCancelled JobState = "cancelled"
)

// Job is a part of a stream's export that is published beside the stream. It is
// committed as a whole before the first window begins, and never changes but in
// its state, in the results of its windows, and in RateLimit and Parallel, until
// Tidy reduces it. Its JSON form is a frozen, versioned format. Times are milliseconds since the epoch.
type Job struct {
	// Version is that of the format, ID what commands call the job.
	Version int     `json:"v"`
	ID      string  `json:"id"`
	Kind    JobKind `json:"kind"`
	// Stream is whose export it is, Resource and Events what was asked for.
	Stream   string   `json:"stream"`
	Resource string   `json:"resource"`
	Events   []string `json:"events,omitempty"`
	// Topic is where the events go.
	Topic string `json:"topic"`
	// TopicID is the id of that topic when the job began; empty in a job of an
	// older version.
	TopicID string `json:"topic_id,omitempty"`
	// From is the first instant of the job, To the first one after it.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Windows are its parts, one after the other in time.
	Windows []JobWindow `json:"windows"`
	// RateLimit is how many requests a second all windows together may make; 0
	// where there was no limit. Parallel is how many windows run at a time,
	// PageSize how many events are asked for per page. Any that is 0 is left to
	// who resumes the job.
	RateLimit float64 `json:"rate_limit,omitempty"`
	Parallel  int     `json:"parallel,omitempty"`
	PageSize  int     `json:"page_size,omitempty"`
	// Who began it, the Reason, and when it was Created.
	Who     string `json:"who,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Created int64  `json:"created"`
	// State is how far it is.
	State JobState `json:"state"`
	// Changed is when State changed, By who did that, Why what they said.
	Changed int64  `json:"changed,omitempty"`
	By      string `json:"by,omitempty"`
	Why     string `json:"why,omitempty"`
	// Reduced: only this record is left, long after the end. The windows of a job
	// that was done were put together into one.
	Reduced bool `json:"reduced,omitempty"`
}

// JobWindow is one window of a job: a bounded export of its own, with a
// checkpoint of its own.
type JobWindow struct {
	// From and To are as in Job.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Ended says what ended the window; empty while it is not done.
	Ended string `json:"ended,omitempty"`
	// Events and Pages are what its cursor passed, dead letters included;
	// Position how far it is in time.
	Events   int64 `json:"events"`
	Pages    int64 `json:"pages"`
	Position int64 `json:"position,omitempty"`
	// DeadLettered counts the dead letters of the process that ended the
	// window. One before it that was killed took its count with it.
	DeadLettered int64 `json:"dead_lettered,omitempty"`
}

// JobWindows divides the time from one instant up to another into n windows of the
// same length, but for a millisecond. They are half open, so that no event is in
// two. n is at least 1 and at most to-from.
func JobWindows(from, to int64, n int) []JobWindow {
	all := make([]JobWindow, n)
	at := func(i int) int64 { return from + (to-from)/int64(n)*int64(i) + (to-from)%int64(n)*int64(i)/int64(n) }
	for i := range all {
		all[i] = JobWindow{From: at(i), To: at(i + 1)}
	}
	return all
}

// Done counts the windows that have ended.
func (j *Job) Done() int {
	n := 0
	for i := range j.Windows {
		if j.Windows[i].Ended != "" {
			n++
		}
	}
	return n
}

// Progress returns how far the windows are in time, from 0 to 1. How long one
// is that begins with the export nobody knows: it counts when it has ended.
func (j *Job) Progress() float64 {
	sum := 0.0
	for i := range j.Windows {
		switch w := &j.Windows[i]; {
		case w.Ended != "":
			sum++
		case w.From > 0 && w.Position > w.From:
			sum += min(1, float64(w.Position-w.From)/float64(w.To-w.From))
		}
	}
	return sum / float64(max(1, len(j.Windows)))
}

// Counts returns the sums of the windows.
func (j *Job) Counts() (events, pages, deadLettered int64) {
	for i := range j.Windows {
		w := &j.Windows[i]
		events, pages, deadLettered = events+w.Events, pages+w.Pages, deadLettered+w.DeadLettered
	}
	return events, pages, deadLettered
}

// name is the job's among the streams. A stream of BRIDGE_STREAMS has no dot.
func (j *Job) name() string { return jobName(j.Stream, j.ID) }

func jobName(stream, id string) string { return stream + "." + id }

// jobKeyPrefix is how the keys of plans begin. The windows' checkpoints are
// under the windows' names.
const jobKeyPrefix = "job/"

func jobKey(stream, id string) string { return jobKeyPrefix + stream + "/" + id }

// WindowName is the name under which window n is a stream: that of its
// checkpoints and its transactions. It has the bounds in it, so that what was
// reached in one window is never taken for a place in another.
func (j *Job) WindowName(n int) string {
	w := &j.Windows[n]
	return fmt.Sprintf("%s.w%d.%d-%d", j.name(), n, w.From, w.To)
}

var windowNames = regexp.MustCompile(`^(.+)\.w(\d+)\.\d+-\d+$`)

// ownedAs returns the name under which a stream is owned. Whoever owns a job
// owns its windows.
func ownedAs(stream string) string {
	if m := windowNames.FindStringSubmatch(stream); m != nil {
		return m[1]
	}
	return stream
}

// windowOf returns the job and the number that a window's name holds.
func windowOf(name string) (job string, n int, ok bool) {
	m := windowNames.FindStringSubmatch(name)
	if m == nil {
		return "", 0, false
	}
	n, err := strconv.Atoi(m[2])
	return m[1], n, err == nil
}

// decodeJob reads a job's JSON form.
func decodeJob(value []byte) (Job, error) {
	var j Job
	if err := json.Unmarshal(value, &j); err != nil {
		return Job{}, fmt.Errorf("%w: %w", bridge.ErrForeign, err)
	}
	switch {
	case j.Version > JobVersion:
		return Job{}, fmt.Errorf("%w: format version %d of a job is newer than %d, upgrade exportbridge", bridge.ErrForeign, j.Version, JobVersion)
	case j.Version < 1 || j.ID == "" || j.Stream == "":
		return Job{}, fmt.Errorf("%w: not a job", bridge.ErrForeign)
	case j.RateLimit < 0 || j.Parallel < 0 || j.PageSize < 0:
		return Job{}, fmt.Errorf("%w: a negative limit", bridge.ErrForeign)
	}
	return j, nil
}

// jobsTopic is where jobs and the checkpoints of their windows are.
func (c *Config) jobsTopic() string { return JobsTopic(c.CheckpointTopic) }

// JobsTopic is the name of the topic where the jobs of streams are whose
// checkpoints are in the given one.
func JobsTopic(checkpoints string) string { return checkpoints + jobsSuffix }

// replayInfix is between a topic and the id of a replay of it.
const replayInfix = ".replay."

// ReplayTopic is where a replay goes if nobody says where.
func ReplayTopic(topic, id string) string { return topic + replayInfix + id }

// jobTopics is the topic that jobs need besides the stream's. Jobs have none.
func (c *Config) jobTopics() []string {
	if c.Part != nil {
		return nil
	}
	return []string{c.jobsTopic()}
}

// compacted reports whether a topic keeps checkpoints.
func (c *Config) compacted(topic string) bool {
	return topic == c.CheckpointTopic || topic == c.jobsTopic()
}

// OfWindow returns the configuration of a Sink for window n of a job of the
// stream that c is the configuration of. It is exactly once always, and creates
// no topics by itself: a topic of checkpoints that vanished must not begin anew.
func (c *Config) OfWindow(j *Job, n int) Config {
	w := *c
	w.Stream, w.CheckpointTopic, w.Topic = j.WindowName(n), c.jobsTopic(), j.Topic
	w.Part = &Part{Stream: j.Stream, Origin: string(j.Kind)}
	w.Mode, w.CreateTopics, w.InstanceID, w.Known = bridge.ExactlyOnce, false, "", nil
	if j.Kind == JobReplay {
		w.DLQTopic = "" // beside the topic of its own
	}
	return w
}
