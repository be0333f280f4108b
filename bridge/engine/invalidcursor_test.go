package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/engine"
)

// gone is the error of a cursor that the API has forgotten.
var gone = &bridge.Fault{Class: bridge.BadCursor, Code: "410", Err: errors.New("410 Gone")}

// storeHistory is a bridge.History over a store without branches.
type storeHistory struct{ store *bridgetest.Store }

func (p storeHistory) Before(_ context.Context, c bridge.Checkpoint,
	matches func(*bridge.Checkpoint) bool) (bridge.Checkpoint, error) {
	for _, h := range slices.Backward(p.store.History()) {
		if h.Version.Compare(c.Version) < 0 && matches(&h) {
			return h, nil
		}
	}
	return bridge.Checkpoint{}, bridge.ErrNoCheckpoint
}

// publishedIn is a bridge.PublishedEvents over a topic.
type publishedIn struct {
	topic *bridgetest.Topic
	asked *[]time.Time
}

func (h publishedIn) Index(_ context.Context, since bridge.Since,
	_ bridge.SourceIdentity) (bridge.PublishedIndex, error) {
	*h.asked = append(*h.asked, since.Time)
	end := -1
	if was := bridge.FindTopic(since.Topics, "events"); was != nil && len(was.Ends) > 0 {
		end = int(was.Ends.Offsets()[0])
	}
	return publishedSince(h.topic, since.Time, end), nil
}

func (h publishedIn) PartialIndex(_ context.Context, from time.Time,
	_ bridge.SourceIdentity) (bridge.PublishedIndex, error) {
	return publishedSince(h.topic, from, -1), nil
}

// publishedSince returns the records of a topic from the first one of a time on, in the
// order of its log, and those after an end. Each key has a partition of its own.
func publishedSince(topic *bridgetest.Topic, from time.Time, end int) topicIndex {
	held, begun := make(topicIndex), make(map[string]bool)
	for i, r := range topic.Records() {
		key := string(r.Key)
		begun[key] = begun[key] || end >= 0 && i >= end || from.IsZero() || r.Time >= from.UnixMilli()
		if begun[key] && r.Defect == bridge.DefectNone {
			held[string(r.Value)]++
		}
	}
	return held
}

// topicIndex counts values.
type topicIndex map[string]int

func (h topicIndex) Match(e *bridge.Event) bool {
	n := h[string(e.Raw)]
	if n > 0 && e.ID == nil {
		h[string(e.Raw)]--
	}
	return n > 0
}

// startRecovering starts a process that answers to a refused cursor by policy.
func (r *harness) startRecovering(policy string) (asked *[]time.Time) {
	r.t.Helper()
	asked = new([]time.Time)
	r.cfg.OnInvalidCursor = policy
	r.startWith(engine.Ports{
		Source: r.source, Inbox: r.inbox, History: storeHistory{r.store}, Published: publishedIn{r.topic, asked},
	})
	return asked
}

// expire makes the API refuse this cursor until it is asked in a way that mends
// it.
func (r *harness) expire(cursor string, mends func(bridge.Position) bool) {
	mended := false
	r.source.Refuse(func(at bridge.Position) error {
		mended = mended || mends(at)
		if mended || at.Cursor != cursor {
			return nil
		}
		return gone
	})
}

// A cursor that expired is left behind, and nothing is lost or comes twice.
func TestRefusedCursorIsLeft(t *testing.T) {
	t.Parallel()
	for _, x := range []bridgetest.Export{{}, {NoIDs: true}, {End: bridgetest.EndEmptyItems}} {
		for _, policy := range []string{"time", "previous"} {
			t.Run(fmt.Sprintf("%s, %+v", policy, x), func(t *testing.T) {
				t.Parallel()
				inModes(t, x, func(r *harness) { leavesCursor(r, policy) })
			})
		}
	}
}

func leavesCursor(r *harness, policy string) {
	r.source.Grow(95)
	asked := r.startRecovering(policy)
	r.after(5 * time.Second)
	before := r.store.Checkpoint()
	r.expire(before.Cursor, func(at bridge.Position) bool {
		return policy == "time" && at.Cursor == "" && at.Start > 0 || policy == "previous" && at.Cursor != "" &&
			at.Cursor != before.Cursor
	})
	r.source.Grow(30)
	r.wantIdleAfter(5 * time.Minute)
	c := r.store.Checkpoint()
	if c.Epoch != 1 || c.Change == nil || c.Change.Who != "me" || !strings.Contains(c.Change.Reason, policy) ||
		!strings.Contains(c.Change.Reason, "410") {
		r.t.Errorf("epoch %d, change %+v", c.Epoch, c.Change)
	}
	for _, h := range r.store.History() {
		if h.Version == (bridge.Version{Epoch: 1}) &&
			(h.RewindEnd == nil || h.RewindEnd.CursorHash != bridge.CursorHash(before.Cursor)) {
			r.t.Errorf("marks end at %+v, want the refused cursor", h.RewindEnd)
		}
	}
	o := c.Overlap
	from := min(before.LastEventTime, before.AdvanceTime) - time.Hour.Milliseconds()
	if o == nil || !o.Done || o.Until != before.LastEventTime || o.From != from && policy == "time" || o.From > from {
		r.t.Fatalf("overlap %+v, want it done, from %d until %d", o, from, before.LastEventTime)
	}
	want := int64(95)
	if policy == "previous" {
		want = o.Dropped // as much as the page before has
	}
	if o.Dropped != want || o.Dropped == 0 {
		r.t.Errorf("%d events dropped as known, want %d", o.Dropped, want)
	}
	if c.Events != 125 {
		r.t.Errorf("the checkpoint counts %d events, want 125", c.Events)
	}
	if len(*asked) == 0 || (*asked)[0].UnixMilli() != o.From {
		r.t.Errorf("asked what the topic holds from %v on, want %d", *asked, o.From)
	}
	if s := r.bridge.Status().Overlap; s == nil || *s != *o {
		r.t.Errorf("status shows the overlap %+v", s)
	}
}

// An event that was listed long after its time, in a partition without newer ones, does
// not come twice after a step back. Without the ends of the topic in the history, as
// older versions write it, the marks know it.
func TestStepBackKnowsLateEvents(t *testing.T) {
	t.Parallel()
	for _, ends := range []bool{true, false} {
		inModes(t, bridgetest.Export{NoIDs: ends}, func(r *harness) {
			r.topic.NoEnds = !ends
			id := `"eventId":"late",`
			if ends {
				id = "" // of events without one the marks drop none
			}
			stepBackOverLateEvent(r, id)
		})
	}
}

func stepBackOverLateEvent(r *harness, id string) {
	// Twice, so that the history has a cursor in between: one batch may take
	// all pages that are there.
	r.source.Grow(45)
	r.startRecovering("previous")
	r.after(5 * time.Second)
	r.grow(50, 5*time.Second)
	r.source.Append(fmt.Sprintf(`{%s"userId":"elsewhere","timestamp":%d}`, id, time.Now().Add(-5*time.Hour).UnixMilli()))
	r.after(20 * time.Second)
	at := r.store.Checkpoint().Cursor
	r.expire(at, func(asked bridge.Position) bool { return asked.Cursor != "" && asked.Cursor != at })
	r.grow(30, 5*time.Minute)
	r.wantState(bridge.StateIdle, "")
	r.wantMarked(0, "after a step back")
	r.wantOnce()
	if c := r.store.Checkpoint(); c.OverlapTopics != nil || c.Overlap == nil || !c.Overlap.Done {
		r.t.Errorf("overlap %+v, topics %v; want it done", c.Overlap, c.OverlapTopics)
	}
}

// refuseFrom makes the API refuse this cursor in epoch 0, and from the given request of
// epoch 1 on the cursor of that one.
func (r *harness) refuseFrom(cursor string, request int) {
	requests := 0
	r.source.Refuse(func(at bridge.Position) error {
		switch epoch := r.store.Checkpoint().Epoch; {
		case epoch == 2:
			cursor = ""
		case epoch == 1 && requests < request:
			if requests++; requests < request {
				return nil
			}
			cursor = at.Cursor
		}
		if at.Cursor == "" || at.Cursor != cursor {
			return nil
		}
		return gone
	})
}

// beginning returns the checkpoint that an epoch began with.
func (r *harness) beginning(epoch int64) bridge.Checkpoint {
	r.t.Helper()
	for _, h := range r.store.History() {
		if h.Version == (bridge.Version{Epoch: epoch}) {
			return h
		}
	}
	r.t.Fatalf("no epoch %d", epoch)
	return bridge.Checkpoint{}
}

// A cursor that is refused within an overlap does not shorten it.
func TestRefusedAgainWithinAnOverlap(t *testing.T) {
	t.Parallel()
	inModes(t, bridgetest.Export{Latency: 100 * time.Millisecond}, func(r *harness) {
		r.source.Grow(40)
		asked := r.startRecovering("previous")
		r.after(5 * time.Hour)
		r.grow(10, time.Minute)
		r.refuseFrom(r.store.Checkpoint().Cursor, 40)
		r.source.Grow(1000)
		r.wantIdleAfter(10 * time.Minute)
		a, b := r.beginning(1).Overlap, r.beginning(2).Overlap
		if a.From != b.From || b.Dropped == 0 || !(*asked)[0].Equal((*asked)[len(*asked)-1]) {
			r.t.Errorf("overlaps %+v and %+v, asked from %v on; want the first beginning", a, b, *asked)
		}
	})
}

// A cursor that is refused within a rewind does not move its end: what was published
// before goes on being marked.
func TestRefusedWithinARewind(t *testing.T) {
	t.Parallel()
	inModes(t, bridgetest.Export{Latency: 100 * time.Millisecond}, func(r *harness) {
		r.source.Grow(1000)
		r.startRecovering("previous")
		r.after(time.Minute)
		end := bridge.CursorHash(r.store.Checkpoint().Cursor)
		r.refuseFrom("", 40)
		r.command("r1", bridge.Target{})
		r.after(10 * time.Minute)
		r.wantState(bridge.StateIdle, "")
		for epoch := range int64(2) {
			if got := r.beginning(epoch + 1).RewindEnd; got == nil || got.CursorHash != end {
				r.t.Errorf("in epoch %d the rewind ends at %+v, want where it began", epoch+1, got)
			}
		}
	})
}

// After a crash in the middle of an overlap, the overlap is not published again.
func TestOverlapOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	inModes(t, bridgetest.Export{Latency: 20 * time.Millisecond}, func(r *harness) {
		r.source.Grow(1000)
		r.startRecovering("time")
		r.after(10 * time.Second)
		at := r.store.Checkpoint()
		r.expire(at.Cursor, func(at bridge.Position) bool { return at.Cursor == "" && at.Start > 0 })
		r.source.Grow(500)
		for r.store.Checkpoint().Overlap == nil {
			r.after(100 * time.Millisecond)
		}
		r.after(time.Second)
		if o := r.store.Checkpoint().Overlap; o.Done {
			r.t.Fatalf("the overlap is over: %+v", o)
		}
		r.mustEnd()
		asked := r.startRecovering("time")
		r.wantIdleAfter(time.Minute)
		if o := r.store.Checkpoint().Overlap; !o.Done || o.Dropped != 1000 || len(*asked) != 1 {
			r.t.Errorf("overlap %+v after asking %d times, want 1000 dropped after asking once", o, len(*asked))
		}
	})
}

// An outage that answers 404 to everything says nothing about the cursor.
func TestOutageMovesNothing(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"time", "previous"} {
		rowInModes(t, policy, bridgetest.Export{}, func(r *harness) {
			r.source.Grow(95)
			r.startRecovering(policy)
			r.after(5 * time.Second)
			r.source.Refuse(always(bridge.Fault{Class: bridge.BadCursor, Code: "404", Err: errors.New("404")}))
			r.grow(30, 3*time.Minute)
			r.source.Refuse(nil)
			r.wantIdleAfter(3 * time.Minute)
			if c := r.store.Checkpoint(); c.Epoch != 0 || c.Overlap != nil {
				r.t.Errorf("the stream was moved: %s, overlap %+v", c.Version, c.Overlap)
			}
		})
	}
}

// A rejected cursor that the stream cannot leave blocks it as before.
func TestRefusedCursorStays(t *testing.T) {
	t.Parallel()
	rowInModes(t, "no history", bridgetest.Export{}, func(r *harness) {
		r.source.Grow(5)
		r.startRecovering("previous")
		r.after(5 * time.Second)
		r.grow(30, 5*time.Second)
		// Every cursor is refused, and so is each one before.
		r.source.Refuse(func(at bridge.Position) error {
			if at.Cursor == "" {
				return nil
			}
			return gone
		})
		r.after(time.Hour / 2)
		if c := r.store.Checkpoint(); c.Cursor != "" && r.bridge.Status().State != bridge.StateBlocked {
			r.t.Errorf("state %s at cursor %q", r.bridge.Status().State, c.Cursor)
		}
		r.source.Refuse(nil)
		r.after(5 * time.Minute)
		r.wantOnce()
	})
	rowInModes(t, "too often", bridgetest.Export{}, func(r *harness) {
		r.source.Grow(95)
		r.startRecovering("time")
		r.after(5 * time.Second)
		r.source.Refuse(func(at bridge.Position) error {
			if at.Cursor == "" {
				return nil
			}
			return gone
		})
		r.after(40 * time.Minute)
		r.wantState(bridge.StateBlocked, bridge.ReasonCursor)
		if s := r.bridge.Status(); !strings.Contains(s.Error, "5 rejected cursors within") || s.Version.Epoch != 5 {
			r.t.Errorf("epoch %d, %s", s.Version.Epoch, s.Error)
		}
		r.wantOnce()
	})
}

// A policy that leaves rejected cursors requires the ports History and Published.
func TestRecoveryNeedsPorts(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.cfg.OnInvalidCursor = "time"
		_, err := engine.New(r.cfg, engine.Ports{Source: r.source, Sink: r.topic.Open("events"), Store: r.store})
		if err == nil || !strings.Contains(err.Error(), `"time"`) {
			t.Errorf("%v", err)
		}
	})
}

// The requester of the previous change may still wait for its answer.
func TestDetourRemembersTheRequestBefore(t *testing.T) {
	t.Parallel()
	inModes(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(95)
		r.startRecovering("time")
		r.after(5 * time.Second)
		r.apply("r1", bridge.Target{Entry: new(bridge.Version)})
		r.after(5 * time.Second)
		r.expire(r.store.Checkpoint().Cursor, func(at bridge.Position) bool { return at.Cursor == "" && at.Start > 0 })
		r.after(5 * time.Minute)
		if ch := r.store.Checkpoint().Change; ch == nil || ch.ID == "r1" || ch.After != "r1" {
			r.t.Errorf("change %+v, want one of the program's own after r1", ch)
		}
	})
}

// What an operator has accepted since the earlier cursor stays accepted.
func TestRefusedCursorKeepsTheOrigin(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.ran(95, 5*time.Second)
		r.cfg.Origin.Events = []string{"orderPlaced"}
		r.startRecovering("previous")
		r.after(time.Second)
		c := r.store.Checkpoint()
		r.command("accept", bridge.Target{Cursor: c.Cursor, Tail: c.Tail})
		before := r.store.Checkpoint()
		r.expire(before.Cursor, func(at bridge.Position) bool { return at.Cursor != "" && at.Cursor != before.Cursor })
		r.after(5 * time.Minute)
		_ = r.end()
		r.startRecovering("previous")
		r.after(time.Minute)
		r.wantState(bridge.StateIdle, "")
		if c := r.store.Checkpoint(); c.Epoch < 2 {
			t.Errorf("epoch %d: the cursor was not left", c.Epoch)
		}
	})
}
