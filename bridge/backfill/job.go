package backfill

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
)

// Version is the version of the job format that this program writes. It rejects newer
// versions.
const Version = 2

// listed is the version of a job whose windows list their ranges: an older program would send
// the stored position as a cursor.
const listed = 2

// Kind is the kind of a job, and the eb-origin header of its events.
type Kind string

// The kinds of jobs.
const (
	Replay   Kind = "replay"   // into a topic of its own
	Backfill Kind = "backfill" // into the stream's topic
)

// State is the state of a job.
type State string

// The states of a job. Only a running one changes.
const (
	Running   State = "running" // unfinished, with or without a process that works on it
	Done      State = "done"
	Cancelled State = "cancelled"

	// Interrupted is a running job that no process works on until it is resumed. It is
	// never stored.
	Interrupted State = "interrupted"
	// Waiting is a running job in lanes of which no process runs any yet. It is never stored.
	Waiting State = "waiting"
	// Paused is a running job that an operator paused. It is never stored.
	Paused State = "paused"
)

// Habits are what the live stream has seen of the API.
type Habits struct {
	// MarksEnd is true if the API marks the end of its results.
	MarksEnd bool `json:"marks_end,omitempty"`
	// Paged is true if the API has named a next page: a full page without one is then the end of
	// a window.
	Paged bool `json:"paged,omitempty"`
	// CursorHeeded is true if a page shows that the API heeds the cursor.
	CursorHeeded bool `json:"cursor_heeded,omitempty"`
}

// Job publishes a past range of a stream's export beside the stream. Its plan is committed
// before the first window begins. Later, only the state, the results of the windows,
// RateLimit, Parallel, Lanes, Paused and Revision change, until Tidy reduces the job. The
// JSON form is frozen and versioned. Times are in milliseconds since the epoch.
type Job struct {
	// Version is the format's version, ID the job's id.
	Version int    `json:"v"`
	ID      string `json:"id"`
	Kind    Kind   `json:"kind"`
	// Stream, Resource and Events define the export.
	Stream   string   `json:"stream"`
	Resource string   `json:"resource"`
	Events   []string `json:"events,omitempty"`
	// Source is the live stream's source when the job began. All pages must be of it.
	// Zero if unknown.
	Source bridge.SourceIdentity `json:"source,omitzero"`
	// Request is the fingerprint of what its windows request; unknown in a job of an
	// older version.
	Request bridge.Fingerprint `json:"request,omitempty"`
	Habits
	// Topic is the target topic.
	Topic string `json:"topic"`
	// TopicID is the topic's id when the job began; empty in a job of an older version.
	TopicID string `json:"topic_id,omitempty"`
	// Routes are the stream's KAFKA_ROUTES when the job began: a job keeps them. Of a
	// backfill, RoutedIDs are the ids of their topics by name.
	Routes    string            `json:"routes,omitempty"`
	RoutedIDs map[string]string `json:"routed_ids,omitempty"`
	// From is inclusive, To exclusive.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Windows divide the range, in order of time.
	Windows []Window `json:"windows"`
	// RateLimit is the maximum number of requests per second of all windows together,
	// Parallel the number of windows that run at a time, PageSize the page size. 0 is
	// the setting of the resuming process.
	RateLimit float64 `json:"rate_limit,omitempty"`
	Parallel  int     `json:"parallel,omitempty"`
	PageSize  int     `json:"page_size,omitempty"`
	// Lanes is the number of lanes in which a fleet of processes runs the job: window n is
	// in lane n modulo Lanes. 0 is a job that runs in the process that began or resumed it.
	Lanes int `json:"lanes,omitempty"`
	// Paused: no process runs the job until it is resumed. Revision counts the pauses and
	// resumptions.
	Paused   bool `json:"paused,omitempty"`
	Revision int  `json:"revision,omitempty"`
	// Who, Reason and Created are the creator of the job, their reason, and the time.
	Who     string `json:"who,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Created int64  `json:"created"`
	// State is Running, Done or Cancelled.
	State State `json:"state"`
	// Changed is when State changed, By who changed it, Why that person's reason.
	Changed int64  `json:"changed,omitempty"`
	By      string `json:"by,omitempty"`
	Why     string `json:"why,omitempty"`
	// Reduced is set by Tidy: the checkpoints are deleted, and the windows of a
	// finished job merged into one.
	Reduced bool `json:"reduced,omitempty"`
}

// Window is a part of a job's range, exported with a checkpoint of its own.
type Window struct {
	// From and To are as in Job.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Ended is what ended the window; empty while it is unfinished.
	Ended string `json:"ended,omitempty"`
	// EndedEmpty is the number of empty pages in a row that ended the window: more
	// events may follow. 0 if the API marked the end.
	EndedEmpty int `json:"ended_empty,omitempty"`
	// Events and Pages count the events, with the dead letters, and pages read. Position
	// is the time that the window has reached.
	Events   int64 `json:"events"`
	Pages    int64 `json:"pages"`
	Position int64 `json:"position,omitempty"`
	// DeadLettered counts the dead letters of the process that ended the window, without
	// those of earlier processes.
	DeadLettered int64 `json:"dead_lettered,omitempty"`
	// Outside counts the Events with a time outside the window, Dropped those that a route
	// dropped.
	Outside int64 `json:"outside_range,omitempty"`
	Dropped int64 `json:"dropped_by_route,omitempty"`
}

// Split divides [from, to) into n windows whose lengths differ by at most a
// millisecond. n is at least 1 and at most to-from.
func Split(from, to int64, n int) []Window {
	all := make([]Window, n)
	at := func(i int) int64 { return from + (to-from)/int64(n)*int64(i) + (to-from)%int64(n)*int64(i)/int64(n) }
	for i := range all {
		all[i] = Window{From: at(i), To: at(i + 1)}
	}
	return all
}

// Topics lists the topics of the job's events, Topic first.
func (j *Job) Topics() []string {
	if j.Kind == Replay { // has one for all
		return []string{j.Topic}
	}
	routes, _ := bridge.ParseRoutes(j.Routes, j.Topic) // the settings were valid
	return append([]string{j.Topic}, routes.Topics...)
}

// topicIDs are the ids of Topics that are known.
func (j *Job) topicIDs() map[string]string {
	ids := map[string]string{j.Topic: j.TopicID}
	maps.Copy(ids, j.RoutedIDs)
	return ids
}

// Publishes reports whether the job publishes to one of the topics.
func (j *Job) Publishes(topics []string) bool {
	return slices.ContainsFunc(j.Topics(), func(t string) bool { return slices.Contains(topics, t) })
}

// EventsSince returns the number of events that the windows after a time have published.
func (j *Job) EventsSince(since int64) (events int64) {
	for i := range j.Windows {
		if w := &j.Windows[i]; w.To > since {
			events += w.Events - w.Dropped
		}
	}
	return events
}

// lists reports whether the windows list their ranges, as a stream that follows windows.
func (j *Job) lists() bool { return j.Version >= listed }

// Ended returns the number of windows that have ended.
func (j *Job) Ended() int { return j.count(func(w *Window) bool { return w.Ended != "" }) }

// EndedEmpty returns the number of windows that empty pages ended: more events may
// follow in them.
func (j *Job) EndedEmpty() int { return j.count(func(w *Window) bool { return w.EndedEmpty > 0 }) }

func (j *Job) count(is func(*Window) bool) (n int) {
	for i := range j.Windows {
		if is(&j.Windows[i]) {
			n++
		}
	}
	return n
}

// Progress returns the finished share of the range, from 0 to 1, and the part of that
// share in windows with events: an empty window takes no time, so only these show the pace.
func (j *Job) Progress() (share, worked float64) {
	for i := range j.Windows {
		w := &j.Windows[i]
		share += w.finished()
		if w.Events > 0 {
			worked += w.finished()
		}
	}
	n := float64(max(1, len(j.Windows)))
	return share / n, worked / n
}

// finished returns the finished share of the window. A window from the earliest event has
// an unknown length: it counts only when it has ended.
func (w *Window) finished() float64 {
	switch {
	case w.Ended != "":
		return 1
	case w.From > 0 && w.Position > w.From:
		return min(1, float64(w.Position-w.From)/float64(w.To-w.From))
	}
	return 0
}

// Totals returns the range as one window: the sums of the counts, and the greatest
// Position and EndedEmpty.
func (j *Job) Totals() Window {
	t := Window{From: j.From, To: j.To}
	for i := range j.Windows {
		w := &j.Windows[i]
		t.Events, t.Pages, t.DeadLettered = t.Events+w.Events, t.Pages+w.Pages, t.DeadLettered+w.DeadLettered
		t.Outside, t.Dropped = t.Outside+w.Outside, t.Dropped+w.Dropped
		t.Position, t.EndedEmpty = max(t.Position, w.Position), max(t.EndedEmpty, w.EndedEmpty)
	}
	return t
}

const (
	// OutsideRange is the predicate of a sentence about the events outside a range.
	OutsideRange = "have a time outside the requested range: " + outsideHint
	outsideHint  = "the API selects by another time, or ignores a bound; " +
		"check EXPORT_START_PARAM, EXPORT_END_PARAM and EXPORT_TIME_FORMAT"
)

// FewestOutside is how many events prove that a range was not read. Of fewer, all may be late ones: some APIs
// select by the time of ingestion.
const FewestOutside = 10

// Missed reports whether a job of one window is done, but published nothing of its range:
// ten events or more, all with a time outside. With several windows that proves nothing:
// an event ingested late is in a later window.
func (j *Job) Missed() bool {
	t := j.Totals()
	return j.State == Done && !j.Reduced && len(j.Windows) == 1 && t.Outside >= FewestOutside && t.Outside == t.Events
}

// WindowName is the stream name of window n, for its checkpoints and transactions. It has
// the bounds, so that a checkpoint never applies to another window.
func (j *Job) WindowName(n int) string {
	w := &j.Windows[n]
	return fmt.Sprintf("%s.%s.w%d.%d-%d", j.Stream, j.ID, n, w.From, w.To)
}

// ByWhom describes who cancelled the job, and why; it may be empty.
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

// decodePlan decodes a job's record; nil is the zero Job.
func decodePlan(r *kgo.Record) (Job, error) {
	if r == nil {
		return Job{}, nil
	}
	j, err := decodeJob(r.Value)
	if err != nil {
		return Job{}, foreign(r, fmt.Errorf("%w: %w", bridge.ErrForeign, err))
	}
	return j, nil
}

// foreign is the fault of an unreadable record.
func foreign(r *kgo.Record, err error) error {
	return bridge.Blockf("foreign", bridge.ReasonCheckpoint, "",
		"offset %d in partition %d of %s, key %s: %w", r.Offset, r.Partition, r.Topic, r.Key, err)
}

// decodeJob decodes a job's JSON form.
func decodeJob(value []byte) (j Job, err error) {
	if err := json.Unmarshal(value, &j); err != nil {
		return j, err
	}
	switch {
	case j.Version > Version:
		err = fmt.Errorf("format version %d of a job is newer than %d, upgrade exportbridge", j.Version, Version)
	case j.Version < 1 || j.ID == "" || j.Stream == "":
		err = errors.New("not a job")
	case j.RateLimit < 0 || j.Parallel < 0 || j.PageSize < 0 || j.Lanes < 0:
		err = errors.New("a negative limit")
	case j.Lanes > bridge.MaxLanes:
		err = fmt.Errorf("%d lanes exceed %d, upgrade exportbridge", j.Lanes, bridge.MaxLanes)
	}
	return j, err
}
