package backfill

import (
	"encoding/json"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
)

// Version is the version of the format in which jobs are kept. This program
// writes it, and refuses newer ones.
const Version = 1

// Kind is what a job does, and the header eb-origin of its events.
type Kind string

// The kinds of jobs.
const (
	Replay   Kind = "replay"   // into a topic of its own
	Backfill Kind = "backfill" // into the stream's topic
)

// State is what became of a job.
type State string

// The states of a job. Only a running one changes.
const (
	Running   State = "running" // not finished, whether or not a process works on it
	Done      State = "done"
	Cancelled State = "cancelled"

	// Interrupted is a running job that no process works on. It is never stored.
	Interrupted State = "interrupted"
)

// Job is a past range of a stream's export that is published beside the stream.
// It is committed as a whole before the first window begins, and never changes
// but in its state, in the results of its windows, and in RateLimit and
// Parallel, until Tidy reduces it. Its JSON form is a frozen, versioned format.
// Times are milliseconds since the epoch.
type Job struct {
	// Version is that of the format, ID what commands call the job.
	Version int    `json:"v"`
	ID      string `json:"id"`
	Kind    Kind   `json:"kind"`
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
	Windows []Window `json:"windows"`
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
	State State `json:"state"`
	// Changed is when State changed, By who did that, Why what they said.
	Changed int64  `json:"changed,omitempty"`
	By      string `json:"by,omitempty"`
	Why     string `json:"why,omitempty"`
	// Reduced: only this record is left, long after the end. The windows of a job
	// that was done were put together into one.
	Reduced bool `json:"reduced,omitempty"`
}

// Window is one window of a job: a bounded export of its own, with a checkpoint
// of its own.
type Window struct {
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

// Split divides the time from one instant up to another into n windows of the
// same length, but for a millisecond. They are half open, so that no event is in
// two. n is at least 1 and at most to-from.
func Split(from, to int64, n int) []Window {
	all := make([]Window, n)
	at := func(i int) int64 { return from + (to-from)/int64(n)*int64(i) + (to-from)%int64(n)*int64(i)/int64(n) }
	for i := range all {
		all[i] = Window{From: at(i), To: at(i + 1)}
	}
	return all
}

// Ended counts the windows that have ended.
func (j *Job) Ended() int {
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

// WindowName is the name under which window n is a stream: that of its
// checkpoints and its transactions. It has the bounds in it, so that what was
// reached in one window is never taken for a place in another.
func (j *Job) WindowName(n int) string {
	w := &j.Windows[n]
	return fmt.Sprintf("%s.%s.w%d.%d-%d", j.Stream, j.ID, n, w.From, w.To)
}

// overlaps reports whether two jobs have a part of their ranges in common.
func (j *Job) overlaps(other *Job) bool { return j.From < other.To && other.From < j.To }

// ByWhom says who cancelled the job, and why, as far as that is known.
func (j *Job) ByWhom() string {
	text := ""
	if j.By != "" {
		text += " by " + j.By
	}
	if j.Why != "" {
		text += " (" + j.Why + ")"
	}
	return text
}

// decodePlan reads a job's record; nil is the zero Job. Its errors say where the
// record is.
func decodePlan(r *kgo.Record) (Job, error) {
	if r == nil {
		return Job{}, nil
	}
	j, err := decodeJob(r.Value)
	if err != nil {
		return Job{}, foreign(r, err)
	}
	return j, nil
}

func foreign(r *kgo.Record, err error) error {
	return &bridge.Fault{
		Class: bridge.Permanent, Reason: bridge.ReasonCheckpoint, Code: "foreign",
		Err: fmt.Errorf("offset %d in partition %d of %s, key %s: %w", r.Offset, r.Partition, r.Topic, r.Key, err),
	}
}

// decodeJob reads a job's JSON form.
func decodeJob(value []byte) (Job, error) {
	var j Job
	if err := json.Unmarshal(value, &j); err != nil {
		return Job{}, fmt.Errorf("%w: %w", bridge.ErrForeign, err)
	}
	switch {
	case j.Version > Version:
		return Job{}, fmt.Errorf("%w: format version %d of a job is newer than %d, upgrade exportbridge", bridge.ErrForeign, j.Version, Version)
	case j.Version < 1 || j.ID == "" || j.Stream == "":
		return Job{}, fmt.Errorf("%w: not a job", bridge.ErrForeign)
	case j.RateLimit < 0 || j.Parallel < 0 || j.PageSize < 0:
		return Job{}, fmt.Errorf("%w: a negative limit", bridge.ErrForeign)
	}
	return j, nil
}
