package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/engine"
)

// refuseEarlier makes the API refuse the cursors of the first epoch.
func (r *harness) refuseEarlier() {
	r.source.Refuse(func(p bridge.Position) error {
		if r.store.Checkpoint().Epoch > 0 || p.Cursor == "" {
			return nil
		}
		return gone
	})
}

// TestOverlapEndsAtEachEnd: an overlap ends at the end of the results, however the API marks
// it.
func TestOverlapEndsAtEachEnd(t *testing.T) {
	t.Parallel()
	for _, end := range bridgetest.Ends {
		exactRow(t, string(end), bridgetest.Export{End: end}, func(r *harness) {
			r.source.Grow(95)
			r.startRecovering("time")
			r.after(5 * time.Second)
			r.refuseEarlier()
			r.grow(30, 30*time.Minute)
			for range 10 {
				r.grow(2, time.Minute)
			}
			r.wantState(bridge.StateIdle, "")
			r.wantOnce()
			if c := r.store.Checkpoint(); c.Epoch != 1 || c.Overlap == nil || !c.Overlap.Done || c.OverlapTopics != nil {
				r.t.Errorf("%s: the overlap is %+v, topics %v; want it done", c.Version, c.Overlap, c.OverlapTopics)
			}
		})
	}
}

// TestNothingIsLostAfterOverlap: an hour after an overlap, the API lists two equal events
// without an id, with a failed request in between. Both are published.
func TestNothingIsLostAfterOverlap(t *testing.T) {
	exactBubble(t, bridgetest.Export{End: bridgetest.EndFreshCursor, NoIDs: true}, func(r *harness) {
		r.source.Grow(95)
		r.startRecovering("time")
		r.after(5 * time.Second)
		r.refuseEarlier()
		r.grow(30, time.Hour)
		r.wantOnce()
		const item = `{"userId":"u","timestamp":946690000000,"payload":{"type":"ping"}}`
		r.source.Append(item)
		r.after(10 * time.Minute)
		r.source.FailRequest(r.source.Requests()+1, errors.New("503"))
		r.after(10 * time.Minute)
		r.source.Append(item)
		r.after(10 * time.Minute)
		if got := r.topic.Count([]byte(item)); got != 2 {
			t.Errorf("the export lists 2 equal events, the topic has %d", got)
		}
	})
}

// TestOverlapKeepsUpdates: long after an overlap, an item with an id changes and changes
// back. All three forms are published, as they are without an overlap.
func TestOverlapKeepsUpdates(t *testing.T) {
	t.Parallel()
	for name, overlap := range map[string]bool{"with an overlap": true, "without": false} {
		exactRow(t, name, bridgetest.Export{End: bridgetest.EndFreshCursor}, func(r *harness) {
			r.source.Grow(95)
			r.startRecovering("time")
			r.after(5 * time.Second)
			if overlap {
				r.refuseEarlier()
			}
			r.grow(30, time.Hour)
			state := func(s string) string {
				return `{"eventId":"user-1","userId":"u","timestamp":946690000000,"payload":{"type":"state","is":"` + s + `"}}`
			}
			for _, s := range []string{"on", "off", "on"} {
				r.source.Append(state(s))
				r.grow(40, 10*time.Minute)
				r.source.FailRequest(r.source.Requests()+1, errors.New("503"))
				r.after(10 * time.Minute)
			}
			if on, off := r.topic.Count([]byte(state("on"))), r.topic.Count([]byte(state("off"))); on != 2 || off != 1 {
				r.t.Errorf("on %d times, off %d times; the export has on, off, on", on, off)
			}
		})
	}
}

// TestOverlapFromEntry: a stream that was reset to an entry of the history, whose cursor the API
// then rejects, is read again from the time of the entry, not from the start of the export.
func TestOverlapFromEntry(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(95)
		r.startRecovering("time")
		r.after(5 * time.Second)
		r.grow(30, time.Minute)
		all := r.store.History()
		entry := bridge.Entry{Checkpoint: all[len(all)/2]}
		r.expire(entry.Cursor, func(at bridge.Position) bool { return at.Cursor == "" && at.Start > 0 })
		r.command("r1", entry.Target())
		r.wantIdleAfter(5 * time.Minute)
		r.wantOnce()
		from := min(entry.LastEventTime, entry.AdvanceTime) - time.Hour.Milliseconds()
		if o := r.store.Checkpoint().Overlap; o == nil || !o.Done || o.From != from || from <= 0 {
			t.Errorf("entry %s: the overlap is %+v, want it done, from %d", entry.Version, o, from)
		}
	})
}

// undated is an export whose events have no time.
type undated struct{ *bridgetest.Source }

func (s undated) Decode(p *bridge.Page) error {
	err := s.Source.Decode(p)
	for i := range p.Events {
		p.Events[i].Time = bridge.NoTime
	}
	return err
}

// TestOverlapWithoutTimes: if no event has a time, an overlap includes the whole topic.
func TestOverlapWithoutTimes(t *testing.T) {
	exactBubble(t, bridgetest.Export{End: bridgetest.EndEmptyItems}, func(r *harness) {
		r.cfg.OnInvalidCursor = "previous"
		r.source.Grow(25)
		r.startWith(engine.Ports{Source: undated{r.source}, Inbox: r.inbox, History: storeHistory{r.store},
			Published: publishedIn{r.topic, new([]time.Time)}})
		r.after(2 * time.Hour)
		r.grow(15, time.Minute)
		at := r.store.Checkpoint()
		r.expire(at.Cursor, func(bridge.Position) bool { return r.store.Checkpoint().Epoch > at.Epoch })
		r.after(5 * time.Minute)
		if o := r.store.Checkpoint().Overlap; o == nil || o.From != 0 || at.PositionTime == 0 || at.AdvanceTime == 0 {
			t.Errorf("after %+v, the overlap is %+v, want it from 0", at, o)
		}
		r.wantOnce()
	})
}

// TestCurrentKeepsOverlap: a reset that keeps the position goes on with an overlap, so the
// rest of it is not published again.
func TestCurrentKeepsOverlap(t *testing.T) {
	exactBubble(t, bridgetest.Export{Latency: 200 * time.Millisecond}, func(r *harness) {
		r.source.Grow(195)
		r.startRecovering("time")
		r.after(time.Minute)
		r.refuseEarlier()
		r.source.Grow(5)
		for r.store.Checkpoint().Epoch == 0 {
			r.after(100 * time.Millisecond)
		}
		r.after(1500 * time.Millisecond)
		at := r.store.Checkpoint()
		if o := at.Overlap; o.Done || o.Dropped == 0 {
			t.Fatalf("the overlap is %+v, want a part of it dropped", o)
		}
		r.apply("r1", at.CurrentTarget())
		r.wantIdleAfter(5 * time.Minute)
		if o := r.store.Checkpoint().Overlap; o == nil || !o.Done || o.Dropped != 195 {
			t.Errorf("the overlap is %+v, want it done, with 195 events dropped", o)
		}
	})
}

// TestPauseBeginsOverlap: after Kafka has lost its checkpoints, a pause without a bridge
// resumes from the store's checkpoint, which may be behind. Later events of the topic are not
// published again.
func TestPauseBeginsOverlap(t *testing.T) {
	exactBubble(t, bridgetest.Export{Latency: time.Millisecond}, func(r *harness) {
		r.topic.Latency = 20 * time.Millisecond
		r.ran(30, time.Minute)
		rollBackEvents(r)
		r.forgetCheckpoints()
		cmd := pause("p1", 0)
		cmd.PausedUntil = time.Now().Add(time.Minute).UnixMilli()
		if a, err := r.applyWithout(cmd); err != nil || !a.Applied {
			t.Fatal(a, err)
		}
		r.startFor(10 * time.Minute)
		r.wantOnce()
	})
}

// TestOverlapWithoutPublished: a process that cannot read the topic goes on after an overlap
// that a command has begun, and publishes its events again.
func TestOverlapWithoutPublished(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.ran(30, time.Minute)
		r.forgetCheckpoints()
		cmd := pause("p1", 0)
		cmd.PausedUntil = time.Now().Add(time.Minute).UnixMilli()
		if a, err := r.applyWithout(cmd); err != nil || !a.Applied {
			t.Fatal(a, err)
		}
		r.source.Grow(5)
		ports := r.portsOf(r.inbox)
		ports.Source = r.source
		e := must.Get(engine.New(r.cfg, ports))(t)
		ctx, stop := context.WithTimeout(r.t.Context(), 10*time.Minute)
		defer stop()
		must.Do(t, e.Run(ctx))
		if c := r.store.Checkpoint(); c.Overlap == nil || !c.Overlap.Done || c.Events != 35 {
			t.Errorf("the overlap is %+v after %d events, want it done after 35", c.Overlap, c.Events)
		}
	})
}

// TestFailedRequestInOverlap: equal events without an id, of which an overlap has dropped
// some before a request fails. New ones that are listed after it are published.
func TestFailedRequestInOverlap(t *testing.T) {
	exactBubble(t, bridgetest.Export{NoIDs: true, Latency: 500 * time.Millisecond}, func(r *harness) {
		item := fmt.Sprintf(`{"userId":"u","timestamp":%d}`, time.Now().UnixMilli())
		add := func(n int) {
			for range n {
				r.source.Append(item)
				r.source.Grow(1)
			}
		}
		r.source.Grow(45)
		r.startRecovering("time")
		r.after(20 * time.Second)
		add(100)
		r.after(time.Minute)
		r.refuseEarlier()
		r.source.Grow(1)
		for c := r.store.Checkpoint(); c.Epoch == 0 || c.Overlap.Dropped < 95; c = r.store.Checkpoint() {
			r.after(100 * time.Millisecond)
		}
		add(60)
		r.source.FailRequest(r.source.Requests()+1, errors.New("503"))
		r.after(5 * time.Minute)
		if got := r.topic.Count([]byte(item)); got != 160 {
			t.Errorf("%d equal events, want 160", got)
		}
	})
}

// TestCurrentAfterLostCheckpoints: after Kafka has lost its checkpoints, an operator resets to
// the position that the store has, which may be behind. Later events of the topic are not
// published again.
func TestCurrentAfterLostCheckpoints(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{true, false} {
		exactlyInBubble(t, bridgetest.Export{Latency: time.Millisecond}, func(r *harness) {
			r.cfg.OnCheckpointLoss = "stop"
			r.topic.Latency = 20 * time.Millisecond
			r.ran(30, time.Minute)
			rollBackEvents(r)
			r.forgetCheckpoints()
			at := r.store.Checkpoint()
			if running {
				r.start()
			}
			r.steer(reset("r1", at.Epoch, at.CurrentTarget()), running)
			r.after(10 * time.Minute)
			r.wantState(bridge.StateIdle, "")
			r.wantOnce()
		})
	}
}
