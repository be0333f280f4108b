package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/engine"
)

// request returns the fingerprint of a request, by its host and its tenant.
func request(host, tenant string) bridge.Fingerprint {
	return bridge.NewFingerprint([]bridge.RequestPart{{Name: bridge.PartHost, Value: host},
		{Name: bridge.PartParam + "tenant", Value: tenant}})
}

// wantRequest checks the request of the checkpoint.
func (r *harness) wantRequest(want bridge.Fingerprint) {
	r.t.Helper()
	if got := r.store.Checkpoint().Origin.Request; got != want {
		r.t.Errorf("the checkpoint has %q, want %q", got, want)
	}
}

// inRequestModes runs a test in both delivery modes, with a stream whose request is
// known and which has caught up.
func inRequestModes(t *testing.T, x bridgetest.Export, test func(r *harness)) {
	t.Helper()
	inModes(t, x, func(r *harness) {
		r.cfg.Origin.Request = request("a", "one")
		r.follow(25, 5*time.Second)
		if got := r.store.Checkpoint().Origin.Request; got != r.cfg.Origin.Request {
			r.t.Fatalf("the checkpoint has %q", got)
		}
		test(r)
	})
}

// Settings that request another list block the stream before they request
// anything, and a reset accepts them that names them.
func TestRequestChanged(t *testing.T) {
	t.Parallel()
	inRequestModes(t, bridgetest.Export{}, func(r *harness) {
		_ = r.end()
		before := r.source.Requests()
		r.cfg.Origin.Request = request("a", "two")
		r.startFor(2 * time.Minute)
		r.wantState(bridge.StateBlocked, bridge.ReasonSource)
		s := r.bridge.Status()
		if r.source.Requests() != before || !strings.Contains(s.Error, "parameter tenant") ||
			!strings.Contains(s.Error, r.cfg.Origin.Request.Digest()) {
			r.t.Errorf("%d requests; %s", r.source.Requests()-before, s.Error)
		}
		at := r.store.Checkpoint()
		stay := stay(at)
		if a := r.command("r1", stay); a.Applied ||
			!strings.Contains(a.Detail, "--accept-source "+r.cfg.Origin.Request.Digest()) {
			r.t.Errorf("a reset that names nothing is answered %+v", a)
		}
		if a := r.accept("r2", stay, "12345678"); a.Applied {
			r.t.Error("a reset that accepts something else is applied")
		}
		r.applied(r.accept("r3", stay, r.cfg.Origin.Request.Digest()))
		r.source.Grow(5)
		r.wantIdleAfter(time.Minute)
		r.wantRequest(r.cfg.Origin.Request)
	})
}

// TestApplyKeepsRules: the process of a command may have other rules for private data. The
// checkpoint keeps those of the stream, since repairs must have the same.
func TestApplyKeepsRules(t *testing.T) {
	t.Parallel()
	inRequestModes(t, bridgetest.Export{}, func(r *harness) {
		r.mustEnd()
		was := r.cfg.Origin.Request
		r.cfg.Origin.Request = bridge.NewFingerprint([]bridge.RequestPart{{Name: bridge.PartHost, Value: "a"},
			{Name: bridge.PartParam + "tenant", Value: "one"}, {Name: bridge.PartRules, Value: "others"}})
		if a, err := r.applyWithout(pause("p1", 0)); err != nil || !a.Applied {
			r.t.Fatal(a, err)
		}
		r.wantRequest(was)
	})
}

// Changed rules for private data are committed at start, also if nothing is published.
func TestRulesChanged(t *testing.T) {
	t.Parallel()
	inRequestModes(t, bridgetest.Export{}, func(r *harness) {
		_ = r.end()
		parts := []bridge.RequestPart{{Name: bridge.PartHost, Value: "a"}, {Name: bridge.PartParam + "tenant", Value: "one"},
			{Name: bridge.PartRules, Value: "rules"}}
		r.cfg.Origin.Request = bridge.NewFingerprint(parts)
		r.startFor(time.Second)
		r.wantRequest(r.cfg.Origin.Request)
	})
}

// accept pushes a reset that accepts a source, and returns its answer.
func (r *harness) accept(id string, to bridge.Target, source string) bridge.Answer {
	r.t.Helper()
	cmd := reset(id, r.store.Checkpoint().Epoch, to)
	cmd.AcceptSource = source
	r.inbox.Push(cmd)
	return r.await(id)
}

// Another host is accepted where it shows that its list is the same.
func TestHostChanged(t *testing.T) {
	t.Parallel()
	inRequestModes(t, bridgetest.Export{}, func(r *harness) {
		_ = r.end()
		r.cfg.Origin.Request = request("b", "one")
		r.follow(3, time.Minute)
		r.wantIdleAfter(0)
		if r.wantRequest(r.cfg.Origin.Request); !strings.Contains(r.log.String(), "changed=host") {
			r.t.Error("the log does not say that the host changed")
		}
	})
	// An empty page at the end shows nothing.
	inRequestModes(t, bridgetest.Export{End: bridgetest.EndEmptyItems}, func(r *harness) {
		_ = r.end()
		was := r.cfg.Origin.Request
		r.cfg.Origin.Request = request("b", "one")
		r.follow(3, time.Minute)
		r.wantState(bridge.StateBlocked, bridge.ReasonSource)
		r.wantEvents(25)
		at := r.store.Checkpoint()
		if a := r.accept("r1", bridge.Target{Cursor: at.Cursor, Events: at.Events, Pages: at.Pages, Entry: &at.Version},
			r.cfg.Origin.Request.Digest()); !a.Applied {
			r.t.Errorf("answer %+v", a)
		}
		r.wantIdleAfter(time.Minute)
		if got := r.store.Checkpoint().Origin.Request; got == was {
			r.t.Error("the checkpoint has the request before")
		}
	})
}

// A page that begins with what ended the page before shows its list too.
func TestHostChangedAtBorder(t *testing.T) {
	t.Parallel()
	for n, more := range map[int]int{9: 20, 12: 2} {
		inModes(t, bridgetest.Export{PageSize: 5}, func(r *harness) {
			n := n
			r.source.Serve(inclusive(func() int { return n }, 5, 1, "fresh"))
			r.cfg.Origin.Request = request("a", "one")
			r.startFor(time.Minute)
			n, r.cfg.Origin.Request = n+more, request("b", "one")
			r.restart(time.Minute)
			if r.wantEvents(n); r.bridge.Status().State == bridge.StateBlocked {
				r.t.Error(r.bridge.Status().Error)
			}
		})
	}
}

// forgetRequest makes the newest checkpoint one of an older version, which drops what
// it does not know.
func (r *harness) forgetRequest() {
	c := r.store.Checkpoint()
	c.Origin.Request = ""
	c.Version = c.Version.Next()
	r.rewrite(c)
}

// An older version drops the fingerprint: the newest one of the history counts.
func TestRequestInHistory(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.cfg.Origin.Request = request("a", "one")
		r.ran(25, 5*time.Second)
		r.forgetRequest()
		if got := r.store.Checkpoint().Origin.Request; got != "" {
			t.Fatalf("the checkpoint has %q", got)
		}
		requests := r.source.Requests()
		r.cfg.Origin.Request = request("a", "two")
		r.startWith(engine.Ports{History: storeHistory{r.store}})
		r.after(time.Minute)
		r.wantState(bridge.StateBlocked, bridge.ReasonSource)
		if r.source.Requests() != requests {
			t.Error("it requested something")
		}
		_ = r.end()
		r.cfg.Origin.Request = request("a", "one")
		r.startWith(engine.Ports{History: storeHistory{r.store}})
		r.after(time.Minute)
		r.wantState(bridge.StateIdle, "")
		r.wantRequest(r.cfg.Origin.Request)
	})
}

// lostHistory is a history that cannot be asked.
type lostHistory struct{ bridge.History }

func (lostHistory) Before(context.Context, bridge.Checkpoint,
	func(*bridge.Checkpoint) bool) (bridge.Checkpoint, error) {
	return bridge.Checkpoint{}, errors.New("connection refused")
}

// While the history that may know the request cannot be asked, a page must list an item
// that was published before: another list is not published, and the own one is.
func TestRequestInLostHistory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end   bridgetest.End
		grow  int
		state bridge.State
	}{
		"the tail is listed": {bridgetest.EndEmptyCursor, 3, bridge.StateIdle},
		"nothing is listed":  {bridgetest.EndEmptyItems, 0, bridge.StateIdle},
		"it leads on":        {bridgetest.EndEmptyItems, 30, bridge.StateBackoff},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inRequestModes(t, bridgetest.Export{End: c.end}, func(r *harness) {
				_ = r.end()
				r.forgetRequest()
				r.source.Grow(c.grow)
				r.startWith(engine.Ports{History: lostHistory{}})
				r.after(time.Minute)
				if c.state == bridge.StateBackoff && len(r.values()) != 25 {
					r.t.Errorf("%d events", len(r.values()))
				}
				if s := r.bridge.Status(); s.State != c.state {
					r.t.Errorf("state is %s %s", s.State, s.Error)
				}
				r.restart(time.Minute)
				r.wantIdleAfter(0)
			})
		})
	}
}

// Where nothing is known of the request, it is noted with a page that lists a
// published item or leads on, not with an empty one.
func TestRequestUnknown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end   bridgetest.End
		grow  int
		noted bool
	}{
		"the tail is listed": {bridgetest.EndEmptyCursor, 0, true},
		"nothing is listed":  {bridgetest.EndEmptyItems, 0, false},
		"it leads on":        {bridgetest.EndEmptyItems, 30, true},
	} {
		rowInModes(t, name, bridgetest.Export{End: c.end}, func(r *harness) {
			r.ran(25, 5*time.Second)
			r.cfg.Origin.Request = request("a", "one")
			r.follow(c.grow, time.Minute)
			r.wantState(bridge.StateIdle, "")
			if got := r.store.Checkpoint().Origin.Request; got.Known() != c.noted {
				r.t.Errorf("the checkpoint has %q", got)
			}
		})
	}
	// A next URL is requested by its own path: one of another path proves nothing.
	exactlyInBubble(t, bridgetest.Export{}, func(r *harness) {
		r.ran(25, 5*time.Second)
		requests := r.source.Requests()
		r.cfg.Origin.Request = request("a", "one")
		r.cfg.StrayCursor = func(string) error { return errors.New("the stored next URL leads elsewhere") }
		r.startFor(time.Minute)
		r.wantState(bridge.StateBlocked, bridge.ReasonSource)
		if r.source.Requests() != requests {
			t.Error("it requested something")
		}
	})
}

// A target with a credential is refused: each checkpoint and the history would have it.
func TestTargetWithCredential(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.cfg.LeakInCursor = func(cursor string) string {
			if strings.Contains(cursor, "s3cret") {
				return "EXPORT_API_KEY"
			}
			return ""
		}
		r.follow(25, 5*time.Second)
		if a := r.command("r1", bridge.Target{Cursor: "/events?t=s3cret"}); a.Applied ||
			a.Detail != "the cursor contains EXPORT_API_KEY, which is not stored" {
			r.t.Errorf("answer %+v", a)
		}
		if c := r.store.Checkpoint(); c.Epoch != 0 || c.Cursor == "/events?t=s3cret" {
			r.t.Errorf("checkpoint %+v", c)
		}
		r.apply("r2", bridge.Target{})
	})
}

// A target that no request can ask for is refused.
func TestTargetWithoutRequest(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.cfg.Refuse = func(at bridge.Position) error {
			if at.Start == 0 {
				return errors.New("the request has no start")
			}
			return nil
		}
		r.follow(25, 5*time.Second)
		for id, to := range map[string]bridge.Target{"r1": {}, "r2": {Cursor: "c"}} {
			if a := r.command(id, to); a.Applied || a.Detail != "the request has no start; choose a time, or an entry of the history" {
				r.t.Errorf("%+v: answer %+v", to, a)
			}
		}
		r.apply("r3", bridge.Target{Start: 1})
	})
}

// A target that another request gave is refused, and so is a previous cursor.
func TestTargetOfAnotherRequest(t *testing.T) {
	t.Parallel()
	inRequestModes(t, bridgetest.Export{}, func(r *harness) {
		first := r.store.History()[1]
		entry := bridge.Entry{Checkpoint: first}
		to := entry.Target()
		to.Request = request("a", "two")
		if a := r.command("r1", to); a.Applied || !strings.Contains(a.Detail, "parameter tenant") {
			r.t.Errorf("answer %+v", a)
		}
		to.Request = request("b", "one") // another name of the same list
		r.apply("r2", to)
	})
}

// applyElsewhere applies a command at the current position on a machine whose settings make
// another request.
func (r *harness) applyElsewhere(request bridge.Fingerprint, id string, kind bridge.Kind, accept string) {
	r.t.Helper()
	at := r.store.Checkpoint()
	cmd := reset(id, at.Epoch, stay(at))
	cmd.Kind, cmd.PausedUntil, cmd.AcceptSource = kind, bridge.Forever, accept
	ours := r.cfg.Origin.Request
	r.cfg.Origin.Request = request
	if a, err := r.applyWithout(cmd); err != nil || !a.Applied {
		r.t.Fatalf("answer %+v, %v", a, err)
	}
	r.cfg.Origin.Request = ours
}

// A command without a bridge runs with the settings of its own machine. They do not become
// the stream's: the command keeps the stream's request, or records the accepted one.
func TestApplyElsewhere(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.cfg.Origin.Request = request("a", "one")
		r.ran(25, 5*time.Second)
		laptop := request("laptop", "none")
		r.applyElsewhere(laptop, "r1", bridge.KindReset, "")
		r.wantRequest(request("a", "one"))
		r.applyElsewhere(laptop, "r2", bridge.KindReset, request("a", "two").Digest())
		r.applyElsewhere(laptop, "r3", bridge.KindPause, "") // at the same position, so what is accepted stays so
		r.applyElsewhere(laptop, "r4", bridge.KindResume, "")
		r.cfg.Origin.Request = request("a", "two")
		r.follow(5, time.Minute)
		r.wantIdleAfter(0)
		r.wantRequest(request("a", "two"))
	})
}

// What a reset on another machine accepted stands until the stream is of it, also where
// it is paused meanwhile, and where nothing but the cursor's own path is known.
func TestAcceptanceWaits(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{true, false} {
		exactlyInBubble(t, bridgetest.Export{}, func(r *harness) {
			if known {
				r.cfg.Origin.Request = request("a", "one")
			}
			r.ran(25, 5*time.Second)
			ours := request("a", "two") // the command's request is unknown: it reads no secrets
			r.applyElsewhere("", "r1", bridge.KindReset, ours.Digest())
			r.applyElsewhere("", "r2", bridge.KindPause, "")
			r.applyElsewhere("", "r3", bridge.KindResume, "")
			r.cfg.Origin.Request = ours
			r.cfg.StrayCursor = func(string) error { return errors.New("the stored next URL leads elsewhere") }
			r.follow(5, time.Minute)
			r.wantIdleAfter(0)
			if c := r.store.Checkpoint(); c.Origin.Request != ours || c.PendingSource() != "" {
				r.t.Errorf("the checkpoint has %q, %q is pending", c.Origin.Request, c.PendingSource())
			}
		})
	}
}

// A command without a bridge leaves an unread stream to the settings of the bridge, even if
// the command has begun the stream.
func TestApplyElsewhereFirst(t *testing.T) {
	t.Parallel()
	for name, begun := range map[string]bool{"nothing is there": false, "the start is there": true} {
		exactRow(t, name, bridgetest.Export{}, func(r *harness) {
			r.cfg.Origin.Request = request("a", "one")
			if begun {
				r.source.Refuse(func(bridge.Position) error { return errors.New("connection refused") })
				r.startFor(time.Second)
				_ = r.end()
				r.source.Refuse(func(bridge.Position) error { return nil })
			}
			ours := r.cfg.Origin.Request
			r.cfg.Origin.Request = request("laptop", "none")
			if a, err := r.applyWithout(reset("r1", 0, bridge.Target{})); err != nil || !a.Applied {
				r.t.Fatalf("answer %+v, %v", a, err)
			}
			r.cfg.Origin.Request = ours
			r.follow(25, time.Minute)
			r.wantIdleAfter(0)
			r.wantRequest(r.cfg.Origin.Request)
		})
	}
}

// TestPreviousOfUnknownRequest: a cursor from before a reset that accepted another list may be of the
// list before, if nothing is known of its request. A pause accepts no list.
func TestPreviousOfUnknownRequest(t *testing.T) {
	t.Parallel()
	for _, change := range []string{"none", "pause", "list"} {
		exactRow(t, change, bridgetest.Export{}, func(r *harness) {
			r.ran(25, 5*time.Second)
			r.cfg.Origin.Request = request("a", "one")
			r.ran(0, time.Minute)
			r.wantRequest(r.cfg.Origin.Request)
			want, state := bridge.StateIdle, bridge.Reason("")
			if change == "list" {
				want, state = bridge.StateBlocked, bridge.ReasonCursor
				r.cfg.Origin.Request = request("a", "two")
			}
			r.startRecovering("previous")
			r.after(time.Minute)
			at := r.store.Checkpoint()
			switch change {
			case "list":
				r.applied(r.accept("r1", stay(at), r.cfg.Origin.Request.Digest()))
			case "pause":
				r.applied(r.ask("p", bridge.KindPause, bridge.Forever))
				r.applied(r.ask("r", bridge.KindResume, 0))
			}
			r.after(time.Minute)
			r.wantRequest(r.cfg.Origin.Request)
			r.expire(at.Cursor, func(to bridge.Position) bool { return to.Cursor != "" && to.Cursor != at.Cursor })
			r.source.Grow(3)
			r.after(5 * time.Minute)
			r.wantState(want, state)
			if s := r.bridge.Status(); change == "list" && !strings.Contains(s.Error, "nothing is known of the request of the previous cursor") {
				r.t.Error(s.Error)
			}
		})
	}
}
