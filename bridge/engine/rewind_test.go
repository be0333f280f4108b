package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/engine"
)

// wantMarked checks how many events were marked since, and says how many there
// are in the topic.
func (r *harness) wantMarked(want int, when string) {
	r.t.Helper()
	if got := int(r.again.Swap(0)); got != want {
		r.t.Errorf("%s: %d events are marked as published again, want %d; the topic holds %d records", when, got, want,
			len(r.values()))
	}
}

// All events that were published before are marked: on the last page too, after several
// moves, from the beginning, and by a process that has not published them.
func TestRewindMarksAll(t *testing.T) {
	t.Parallel()
	for _, end := range bridgetest.Ends {
		rowInModes(t, string(end), bridgetest.Export{End: end}, func(r *harness) {
			r.follow(754, 10*time.Second)
			history := r.store.History()
			r.command("last page", bridge.Target{Cursor: history[len(history)-1].Cursor, Tail: history[0].Tail,
				Entry: &history[len(history)-1].Version})
			r.after(10 * time.Second)
			last := 0 // without a cursor of its own the last page comes again
			if end != bridgetest.EndEmptyItems && end != bridgetest.EndFreshCursor {
				last = 4
			}
			r.wantMarked(last, "the last page")
			r.command("earliest", bridge.Target{})
			r.after(10 * time.Second)
			r.wantMarked(754, "to the earliest")
			r.command("unknown", bridge.Target{Cursor: history[len(history)-1].Cursor})
			r.after(10 * time.Second)
			r.wantMarked(last, "to a cursor")
			r.restart(10 * time.Second)
			r.command("entry", bridge.Target{Entry: new(bridge.Version)})
			r.grow(30, 10*time.Second)
			r.wantMarked(754, "to the first entry, after other moves and by another process")
			r.grow(1, 10*time.Second) // an empty page ends the rewind, and the next batch stores that
			if end := r.store.Checkpoint().RewindEnd; end != nil {
				r.t.Errorf("the rewind is not over: %+v", end)
			}
		})
	}
}

// An API hands out new cursors, lists an event late on an old page, and has deleted others.
// Only events that were published before are marked.
func TestRewindMarksNoNews(t *testing.T) {
	t.Parallel()
	inModes(t, bridgetest.Export{}, func(r *harness) {
		ids, round := []int{0, 1, 2, 3, 4, 5}, 0
		r.source.Serve(func(at bridge.Position) bridgetest.Answer {
			n, of := 0, round
			fmt.Sscanf(at.Cursor, "c%d-%d", &n, &of)
			if n >= len(ids) {
				return answer("")
			}
			items := ""
			for _, id := range ids[n:min(n+2, len(ids))] {
				items += "," + sparseItem(fmt.Sprint(id), id%4)
			}
			return bridgetest.Answer{Body: fmt.Sprintf(`{"items":[%s],"nextCursor":"c%d-%d"}`, items[1:], n+2, round)}
		})
		r.startFor(5 * time.Second)
		ids, round = []int{0, 9, 3, 4, 5, 7, 6, 8}, 1 // 1 and 2 are deleted, 9 is listed late, 6 to 8 are new
		r.command("r1", bridge.Target{Entry: new(bridge.Version)})
		r.after(5 * time.Second)
		r.wantMarked(4, "after the first")
		r.command("r2", bridge.Target{})
		r.after(5 * time.Second)
		r.wantMarked(8, "after the second")
	})
}

// If the topic cannot be read back, or was recreated, no event is marked.
func TestRewindMarksNothingUnknown(t *testing.T) {
	t.Parallel()
	inModes(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(25)
		r.startWith(engine.Ports{Inbox: r.inbox, Published: unreadableTopic{}})
		r.after(5 * time.Second)
		r.command("r1", bridge.Target{})
		r.after(5 * time.Second)
		r.wantMarked(0, "with a topic that cannot be read")
		r.wantEvents(50)
	})
}

type unreadableTopic struct{ bridge.PublishedEvents }

func (unreadableTopic) PartialIndex(context.Context, time.Time, bridge.SourceIdentity) (bridge.PublishedIndex, error) {
	return nil, errors.New("not authorized")
}

// replacedMeanwhile is a sink whose stream another process replaces before a publish.
type replacedMeanwhile struct {
	bridge.Sink
	at      bridge.Version
	replace func()
}

func (s replacedMeanwhile) Publish(ctx context.Context, b bridge.Batch) (bridge.Receipt, error) {
	if b.Checkpoint.Version == s.at && b.Checkpoint.Kind == bridge.KindData {
		s.replace()
	}
	return s.Sink.Publish(ctx, b)
}

// During a rewind everything is deleted, and another process begins the stream again and
// rewinds it as far. What the first process knows of the topic then counts no more.
func TestRewindMarksNothingOfAnotherTopic(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(25)
		marked := 0 // in the topic that is deleted: one batch, of as many pages as were ready
		anew := sync.OnceFunc(func() {
			marked = int(r.again.Load())
			r.forgetCheckpoints()
			r.store.Wipe()
			r.topic.Recreate()
			cmd := reset("r2", 0, bridge.Target{})
			inbox := bridgetest.NewInbox(r.t)
			inbox.Push(cmd)
			ports := r.portsOf(inbox)
			if a, err := engine.Apply(r.t.Context(), r.cfg, ports, cmd); err != nil || a.Version != (bridge.Version{Epoch: 1}) {
				r.t.Errorf("the other process: %+v, %v", a, err)
			}
		})
		sink := replacedMeanwhile{r.topic.Open("events"), bridge.Version{Epoch: 1, Seq: 1}, anew}
		r.startWith(engine.Ports{Inbox: r.inbox, Sink: sink})
		r.after(5 * time.Second)
		r.command("r1", bridge.Target{})
		r.after(time.Minute)
		if marked == 0 {
			r.t.Error("the stream was not replaced during the rewind")
		}
		r.wantMarked(marked, "in the topic that was deleted")
		r.wantOnce()
	})
}

// With any actions of an operator and of the processes, no event is marked that was not
// published before (the harness's sink checks that). In exactly-once mode every other
// event is marked.
func TestRewindsMarkedAtRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		x := bridgetest.Export{End: bridgetest.Ends[rnd.IntN(len(bridgetest.Ends))], NoIDs: rnd.IntN(4) == 0,
			Latency: 5 * time.Millisecond}
		exactRow(t, fmt.Sprintf("%d %s", seed, x.End), x, func(r *harness) {
			r.start()
			for i := range 12 {
				r.source.Grow(rnd.IntN(60))
				r.after(time.Duration(rnd.IntN(4000)) * time.Millisecond)
				history := r.store.History()
				entry := history[rnd.IntN(len(history))]
				switch rnd.IntN(5) {
				case 0:
					r.end()
					r.cfg.PageSize = 10 + rnd.IntN(2)*5
					r.start()
				case 1:
					r.command(fmt.Sprint("start", i), bridge.Target{Start: time.Now().UnixMilli() - rnd.Int64N(10_000)})
				case 2:
					r.command(fmt.Sprint("cursor", i), bridge.Target{Cursor: entry.Cursor})
				case 3:
					r.command(fmt.Sprint("entry", i),
						bridge.Target{Cursor: entry.Cursor, Tail: entry.Tail, Carried: entry.Carried, Entry: &entry.Version})
				}
			}
			r.after(time.Minute)
			r.wantState(bridge.StateIdle, "")
			values := r.values()
			repeats := len(values) - len(slices.Compact(slices.Sorted(slices.Values(values))))
			if got := int(r.again.Load()); got != repeats {
				r.t.Errorf("%d events are marked, %d came again", got, repeats)
			}
		})
	}
}

// TestResetAfterAnInvalidCheckpoint: a batch whose checkpoint is invalid is not published, nor is it
// with the checkpoint of a reset that follows.
func TestResetAfterAnInvalidCheckpoint(t *testing.T) {
	t.Parallel()
	exactlyInBubble(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(30)
		dates := &wrongDates{Source: r.source}
		r.startWith(engine.Ports{Source: dates, Inbox: r.inbox})
		r.after(5 * time.Second)
		dates.wrong.Store(true)
		r.grow(30, 30*time.Second)
		r.wantState(bridge.StateBlocked, bridge.ReasonCheckpoint)
		dates.wrong.Store(false)
		r.apply("r1", bridge.Target{})
		r.after(2 * time.Minute) // the topic fails the test at events that are published with a reset
		r.wantState(bridge.StateIdle, "")
	})
}
