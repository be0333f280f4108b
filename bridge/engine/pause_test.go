package engine_test

import (
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
)

// ask pushes a pause or its end, made for the stored epoch, and returns the
// answer.
func (r *harness) ask(id string, kind bridge.Kind, until int64) bridge.Answer {
	r.t.Helper()
	cmd := reset(id, r.store.Checkpoint().Epoch, bridge.Target{})
	cmd.Kind, cmd.PausedUntil, cmd.Reason = kind, until, "why"
	r.inbox.Push(cmd)
	return r.await(id)
}

// A pause takes effect at once. No request is sent while it lasts, also after a restart.
// Afterwards the stream goes on where it was.
func TestPause(t *testing.T) {
	t.Parallel()
	inModes(t, bridgetest.Export{Latency: 20 * time.Millisecond}, func(r *harness) {
		r.follow(1000, time.Second)
		asked := time.Now()
		a := r.ask("p1", bridge.KindPause, bridge.Forever)
		if !a.Applied || a.Version != (bridge.Version{Epoch: 1}) || time.Since(asked) > 2*time.Second {
			r.t.Fatalf("after %v: %+v", time.Since(asked), a)
		}
		r.after(time.Second)
		r.wantState(bridge.StatePaused, "")
		paused := r.store.Checkpoint()
		if ch := paused.Change; ch == nil || ch.Kind != bridge.KindPause || ch.Who != "op" || ch.Reason != "why" ||
			paused.PausedUntil != bridge.Forever {
			r.t.Errorf("checkpoint %+v", paused)
		}
		if got := r.bridge.Status().PausedUntil; got != bridge.Forever {
			r.t.Errorf("status says paused until %d", got)
		}
		calls := r.source.Requests()
		r.after(time.Hour)
		r.mustEnd()
		r.startFor(time.Hour)
		r.wantState(bridge.StatePaused, "")
		if now := r.source.Requests(); now != calls {
			r.t.Errorf("%d requests while paused", now-calls)
		}
		c := r.store.Checkpoint()
		if c.Cursor != paused.Cursor || c.Events != paused.Events || c.Epoch != 1 || c.Seq < 20 {
			r.t.Errorf("two hours later the checkpoint is %s at %q, want heartbeats of %s at %q", c.Version, c.Cursor,
				paused.Version, paused.Cursor)
		}
		if a := r.ask("p2", bridge.KindResume, 0); !a.Applied || a.Version != (bridge.Version{Epoch: 2}) {
			r.t.Fatalf("%+v", a)
		}
		r.wantIdleAfter(time.Minute)
		if c := r.store.Checkpoint(); c.PausedUntil != 0 || c.Events != 1000 {
			r.t.Errorf("at the end the checkpoint is %+v", c)
		}
	})
}

// A pause with an end ends by itself.
func TestPauseEnds(t *testing.T) {
	t.Parallel()
	inModes(t, bridgetest.Export{Latency: 20 * time.Millisecond}, func(r *harness) {
		r.follow(1000, time.Second)
		end := time.Now().Add(10 * time.Minute)
		r.applied(r.ask("p1", bridge.KindPause, end.UnixMilli()))
		r.after(time.Until(end) - time.Second)
		r.wantState(bridge.StatePaused, "")
		r.wantIdleAfter(time.Minute)
		if c := r.store.Checkpoint(); c.PausedUntil != 0 || c.Epoch != 1 {
			r.t.Errorf("at the end the checkpoint is %+v", c)
		}
	})
}

// A reset of a paused stream moves it, and it stays paused.
func TestResetWhilePaused(t *testing.T) {
	t.Parallel()
	inModes(t, bridgetest.Export{}, func(r *harness) {
		r.follow(50, time.Second)
		r.ask("p1", bridge.KindPause, bridge.Forever)
		r.apply("r1", bridge.Target{})
		r.after(time.Minute)
		r.wantState(bridge.StatePaused, "")
		if c := r.store.Checkpoint(); c.Cursor != "" || c.Epoch != 2 {
			r.t.Errorf("checkpoint %+v", c)
		}
		r.ask("p2", bridge.KindResume, 0)
		r.after(time.Minute)
		r.wantEvents(100)
	})
}

// A pause in the middle of a rewind does not end it.
func TestPauseKeepsTheRewind(t *testing.T) {
	t.Parallel()
	inModes(t, bridgetest.Export{Latency: 20 * time.Millisecond, End: bridgetest.EndEmptyItems}, func(r *harness) {
		r.follow(500, 5*time.Second)
		r.apply("r1", bridge.Target{Entry: new(bridge.Version)})
		r.after(300 * time.Millisecond)
		r.ask("p1", bridge.KindPause, bridge.Forever)
		if r.store.Checkpoint().RewindEnd == nil {
			r.t.Fatal("the rewind was over before the pause")
		}
		r.ask("p2", bridge.KindResume, 0)
		r.after(time.Minute)
		if again := r.again.Load(); again < 500 {
			r.t.Errorf("%d events are marked as coming again, want 500, or more in at-least-once mode", again)
		}
	})
}

// A bounded run does not wait for the end of a pause.
func TestPausedBoundedRun(t *testing.T) {
	t.Parallel()
	inModes(t, bridgetest.Export{}, func(r *harness) {
		r.follow(50, time.Second)
		r.ask("p1", bridge.KindPause, time.Now().Add(time.Hour).UnixMilli())
		r.mustEnd()
		r.cfg.Limits.Once = true
		began := time.Now()
		wantBlocked(t, r.run(), bridge.ReasonPaused)
		if took := time.Since(began); took > time.Minute {
			r.t.Errorf("it took %v", took)
		}
	})
}

func TestPausesRefused(t *testing.T) {
	t.Parallel()
	inModes(t, bridgetest.Export{}, func(r *harness) {
		r.follow(50, time.Second)
		for _, c := range []struct {
			id    string
			kind  bridge.Kind
			until int64
			want  string
		}{
			{"a", bridge.KindResume, 0, "not paused"},
			{"b", bridge.KindPause, time.Now().Add(-time.Second).UnixMilli(), "has passed"},
			{"c", bridge.KindPause, 0, "has passed"},
		} {
			if a := r.ask(c.id, c.kind, c.until); a.Applied || !strings.Contains(a.Detail, c.want) {
				r.t.Errorf("%s until %d: %+v", c.kind, c.until, a)
			}
		}
		if c := r.store.Checkpoint(); c.Epoch != 0 {
			r.t.Errorf("a refused command began epoch %d", c.Epoch)
		}
	})
}

// A checkpoint that was missing when a process started, and has come back, is a position
// like any other: a paused stream can be resumed.
func TestResumeAfterTheCheckpointWasAway(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.follow(20, 5*time.Second)
		r.ask("p1", bridge.KindPause, bridge.Forever)
		r.end()
		raw := r.store.Get()
		r.store.Wipe()
		r.forgetCheckpoints()
		r.startFor(5 * time.Second)
		r.wantState(bridge.StateBlocked, bridge.ReasonCheckpointLost)
		r.store.Put(raw)
		r.after(2 * time.Minute)
		r.wantState(bridge.StatePaused, "")
		r.applied(r.ask("p2", bridge.KindResume, 0))
		r.source.Grow(20)
		r.wantIdleAfter(time.Minute)
	})
}

// A reset is obeyed wherever the store is ahead of Kafka, also at the very
// beginning of a stream.
func TestResetWhereKafkaLostTheBeginning(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.cfg.OnCheckpointLoss = "stop"
		r.startFor(time.Second)
		raw := r.store.Get()
		r.end()
		r.forgetCheckpoints()
		r.store.Put(raw)
		r.follow(20, 5*time.Second)
		r.wantState(bridge.StateBlocked, bridge.ReasonCheckpoint)
		r.apply("r1", bridge.Target{})
		r.wantIdleAfter(time.Minute)
	})
}

// A pause decides nothing about lost data, also where only the process itself
// remembers what was committed.
func TestPauseWhereKafkaLostData(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.cfg.OnCheckpointLoss = "stop"
		r.follow(50, 5*time.Second)
		r.topic.Forget("events", 100)
		r.store.Wipe()
		r.topic.FailNext(bridgetest.Failed)
		r.grow(1, time.Minute)
		r.wantState(bridge.StateBlocked, bridge.ReasonCheckpoint)
		r.inbox.Push(pause("p1", 0))
		if a := r.await("p1"); a.Applied || !strings.Contains(a.Detail, "position") {
			t.Errorf("pause: %+v", a)
		}
		r.wantState(bridge.StateBlocked, bridge.ReasonCheckpoint)
		r.push("r1", 0, bridge.Target{})
		r.applied(r.await("r1"))
		r.wantIdleAfter(time.Minute)
		r.applied(r.ask("p2", bridge.KindPause, bridge.Forever))
	})
}

// TestUnreadAdoptsSettings: a stream that has read no page adopts a corrected filter, also
// after changed routes, a pause, another delivery, or a command that expired after its claim.
// After a reset it does not: the settings may have an earlier start.
func TestUnreadAdoptsSettings(t *testing.T) {
	t.Parallel()
	other := map[bridge.Mode]bridge.Mode{
		bridge.ExactlyOnce: bridge.AtLeastOnce, bridge.AtLeastOnce: bridge.ExactlyOnce,
	}
	for between, adopts := range map[string]bool{
		"nothing": true, "routes": true, "pause": true, "delivery": true, "expired": true, "reset": false,
	} {
		rowInModes(t, between, bridgetest.Export{}, func(r *harness) {
			r.source.Refuse(always(bridge.Fault{Class: bridge.Permanent, Code: "401", Reason: bridge.ReasonAuth}))
			r.cfg.Origin.Events = []string{"orderPlacd"}
			r.follow(30, time.Minute)
			switch between {
			case "routes":
				r.cfg.Routes = "*.debug=drop"
				r.restart(time.Minute)
			case "delivery":
				r.mustEnd()
				r.switchMode(other[r.cfg.Mode])
				r.startFor(time.Minute)
			case "expired":
				r.mustEnd()
				r.claimed("c1")
				r.after(time.Minute)
				r.startFor(time.Minute)
			case "reset":
				r.apply("r1", bridge.Target{Start: 1})
				fallthrough
			case "pause":
				r.ask("p1", bridge.KindPause, bridge.Forever)
				r.ask("p2", bridge.KindResume, 0)
			}
			r.cfg.Origin.Events = []string{"orderPlaced"}
			r.source.Refuse(nil)
			r.restart(2 * time.Minute)
			if adopts {
				r.wantState(bridge.StateIdle, "")
			} else {
				r.wantState(bridge.StateBlocked, bridge.ReasonSource)
			}
		})
	}
}
