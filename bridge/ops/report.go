package ops

import (
	"math"
	"time"

	"exportbridge/bridge"
)

// Report is what is known of a stream: from the bridge that runs it, or
// straight from Redis and Kafka. Its JSON form is what status --json prints.
type Report struct {
	Stream string `json:"stream"`
	// Live is what the bridge that runs the stream says of it; nil where none
	// does, or Redis does not answer.
	Live *bridge.Status `json:"live,omitempty"`
	// Checkpoint is what is committed. It holds the cursor itself, which the
	// server does not send.
	Checkpoint *bridge.Checkpoint `json:"checkpoint,omitempty"`
	// Members are the processes that run the stream or stand by for it.
	// MembersKnown is false where Kafka does not say who they are.
	Members      []Member `json:"members,omitempty"`
	MembersKnown bool     `json:"members_known"`
	// LagSeconds is the age of the position, 0 when caught up, -1 where it is
	// not known; CaughtUpIn how many seconds it takes until it is, at the pace
	// of now, -1 where it does not catch up or that is not known.
	LagSeconds float64 `json:"lag_seconds"`
	CaughtUpIn float64 `json:"caught_up_in_seconds"`
	Guarantee  string  `json:"guarantee"`
	// Changes are the last ones by operators, newest first.
	Changes []bridge.Change `json:"changes,omitempty"`
	// Notes say what could not be found out.
	Notes []string `json:"notes,omitempty"`
}

// Member is a process in a stream's group, as Kafka's coordinator knows it.
type Member struct {
	// ClientID is its KAFKA_CLIENT_ID.
	ClientID string `json:"client_id"`
	// Host is the address that the brokers see.
	Host string `json:"host"`
	// InstanceID is its BRIDGE_INSTANCE_ID; empty if it has none.
	InstanceID string `json:"instance_id,omitempty"`
	// Owner: the stream is assigned to it.
	Owner bool `json:"owner"`
}

// NewReport returns a report that says what is promised, and nothing else yet.
func NewReport(stream string, mode bridge.Mode) Report {
	return Report{Stream: stream, Guarantee: guarantee(mode), CaughtUpIn: -1}
}

// guarantee says what a delivery mode promises, and why.
func guarantee(mode bridge.Mode) string {
	if mode == bridge.ExactlyOnce {
		return "exactly-once: events and checkpoint are one Kafka transaction; consumers must read_committed"
	}
	return "at-least-once: the checkpoint follows the acknowledged events; after a crash those in flight come again, with the same ce_id"
}

// Measure derives from Live and Checkpoint how far behind the stream is, and
// for how long.
func (r *Report) Measure(now time.Time) {
	var at time.Time
	switch {
	case r.Live != nil && r.Live.CaughtUp:
		r.CaughtUpIn = 0
		return
	case r.Live != nil:
		at = r.Live.Position
	case r.Checkpoint != nil && r.Checkpoint.PositionTime > 0:
		at = time.UnixMilli(r.Checkpoint.PositionTime)
	}
	if at.IsZero() {
		r.LagSeconds = -1
		return
	}
	r.LagSeconds = max(0, now.Sub(at).Seconds())
	if r.Live != nil && r.Live.Pace > 1 {
		r.CaughtUpIn = math.Ceil(r.LagSeconds / (r.Live.Pace - 1))
	}
}

// shownReport is a report as it leaves the process.
type shownReport struct {
	Report
	Checkpoint *shownCheckpoint `json:"checkpoint,omitempty"`
}

// shownCheckpoint is a checkpoint without its cursor, with which anybody who
// has a key could read the export, and without the identities of its tail. The
// fields that it has itself hide those of the same name.
type shownCheckpoint struct {
	*bridge.Checkpoint
	Cursor     *struct{} `json:"cursor,omitempty"`
	CursorHash string    `json:"cursor_hash"`
	Tail       *struct{} `json:"tail,omitempty"`
	TailItems  int       `json:"tail_items,omitempty"`
}

func shown(all []Report) []shownReport {
	out := make([]shownReport, len(all))
	for i := range all {
		out[i].Report = all[i]
		if c := all[i].Checkpoint; c != nil {
			out[i].Checkpoint = &shownCheckpoint{Checkpoint: c, CursorHash: bridge.CursorHash(c.Cursor), TailItems: len(c.Tail)}
		}
	}
	return out
}

// liveReports reports what the process knows by itself: it asks nobody.
func liveReports(streams []Stream, now time.Time) []Report {
	all := make([]Report, len(streams))
	for i, s := range streams {
		status := s.Status()
		all[i] = NewReport(status.Stream, status.Mode)
		all[i].Live = &status
		all[i].Measure(now)
	}
	return all
}
