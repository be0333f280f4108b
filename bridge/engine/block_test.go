package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/engine"
)

// TestBlocked: what the engine does about each lasting refusal, in a run that
// goes on for ever and in a bounded one. The stream lives, says why, tries
// once a minute, takes commands, and goes on by itself when the reason ends.
func TestBlocked(t *testing.T) {
	t.Parallel()
	withCursor := func(f bridge.Fault) func(bridge.Position) error {
		f.Err = errors.New("refused")
		return func(at bridge.Position) error {
			if at.Cursor == "" {
				return nil
			}
			return &f
		}
	}
	for name, tc := range map[string]struct {
		refuse func(bridge.Position) error
		reason bridge.Reason
		// tries are the requests with which it blocks, a cross-check included.
		tries int
		// perProbe is how many requests a probe takes.
		perProbe int
	}{
		"401": {always(bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonAuth}),
			bridge.ReasonAuth, 1, 1},
		"a redirect": {always(bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonConfig}),
			bridge.ReasonConfig, 1, 1},
		"a body too large": {always(bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonSize}),
			bridge.ReasonSize, 1, 1},
		"items is not an array": {always(bridge.Fault{Class: bridge.Malformed, Reason: bridge.ReasonSchema}),
			bridge.ReasonSchema, 3, 1},
		"the cursor is gone": {withCursor(bridge.Fault{Class: bridge.BadCursor}), bridge.ReasonCursor, 4, 2},
	} {
		row(t, name, bridgetest.Export{}, func(r *harness) {
			r.follow(35, time.Second)
			r.source.Refuse(tc.refuse)
			asked := r.source.Requests()
			r.grow(30, time.Minute)
			r.wantState(bridge.StateBlocked, tc.reason)
			if n := r.source.Requests() - asked; n < tc.tries || n > tc.tries+2*tc.perProbe {
				r.t.Errorf("%d requests in the first minute, want %d and a probe", n, tc.tries)
			}
			asked = r.source.Requests()
			r.after(10 * time.Minute)
			if n := r.source.Requests() - asked; n < 9*tc.perProbe || n > 11*tc.perProbe {
				r.t.Errorf("%d requests in ten blocked minutes, want about %d", n, 10*tc.perProbe)
			}
			r.wantState(bridge.StateBlocked, tc.reason)
			r.wantLogged("level=ERROR", 1)
			r.source.Refuse(nil)
			r.wantIdleAfter(2 * time.Minute)
		})
		row(t, name+", bounded", bridgetest.Export{}, func(r *harness) {
			r.source.Grow(35)
			r.cfg.Limits.Once = true
			r.mustRun()
			r.source.Refuse(tc.refuse)
			wantBlocked(r.t, r.run(), tc.reason)
			if strings.Contains(r.log.String(), `msg="recovered"`) {
				r.t.Error("said that the run goes on, which has ended")
			}
		})
	}
}

// TestOutageIsNoBadCursor: an API that is down may answer 404 to everything.
// That must not condemn the cursor.
func TestOutageIsNoBadCursor(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.follow(35, time.Second)
		r.source.Refuse(func(at bridge.Position) error {
			if at.Cursor == "" {
				return &bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonConfig, Code: "404", Hint: "check the path",
					Err: errors.New("404")}
			}
			return &bridge.Fault{Class: bridge.BadCursor, Code: "404", Reason: bridge.ReasonCursor,
				HintCode: bridge.HintCursorRejected, Err: errors.New("404")}
		})
		hints := make(map[string]bool)
		for range 60 {
			r.after(10 * time.Second)
			s := r.bridge.Status()
			if s.State == bridge.StateBlocked {
				t.Fatalf("blocked by an outage: %+v", s)
			}
			if s.Reason != "" {
				t.Errorf("the reason is %q", s.Reason)
			}
			hints[s.Hint] = true
		}
		delete(hints, string(bridge.HintCursorSuspect)) // before the first request without a cursor
		if len(hints) != 1 || !hints["check the path"] {
			t.Errorf("hints %v, want only that of the request without a cursor", hints)
		}
		r.source.Refuse(nil)
		r.grow(5, 2*time.Minute)
		r.wantOnce()
	})
}

func TestThrottledWaitsAsAsked(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(15)
		r.source.FailRequest(2, &bridge.Fault{Class: bridge.Throttled, RetryAfter: 5 * time.Minute, Err: errors.New("429")})
		r.startFor(5*time.Minute - time.Second)
		if n := r.source.Requests(); n != 2 {
			t.Errorf("%d requests before Retry-After was over, want 2", n)
		}
		r.wantState(bridge.StateBackoff, "")
		r.after(40 * time.Second)
		r.wantOnce()
	})
}

// TestUnsentIsNoRequest: a request that a limit held back is waited for, and not counted.
func TestUnsentIsNoRequest(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(15)
		r.source.FailRequest(2, &bridge.Fault{Class: bridge.Throttled, Code: "429", RetryAfter: time.Minute, Unsent: true,
			Err: errors.New("wait")})
		r.startFor(2 * time.Minute)
		r.wantOnce()
		if n, waits := len(r.observed(bridge.ObserveFetch, "429")), len(r.observed(bridge.ObserveRetry, "429")); n != 0 ||
			waits != 1 {
			t.Errorf("%d requests and %d waits observed, want only a wait", n, waits)
		}
	})
}

func TestCycle(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		serve := func(next map[string]string) {
			r.source.Serve(func(at bridge.Position) bridgetest.Answer {
				return bridgetest.Answer{Body: fmt.Sprintf(`{"items":[{"eventId":"at %s","timestamp":946684800000}],`+
					`"nextCursor":%q}`, at.Cursor, next[at.Cursor])}
			})
		}
		serve(map[string]string{"": "a", "a": "b", "b": "c", "c": "b"})
		r.startFor(time.Minute)
		r.wantState(bridge.StateBlocked, bridge.ReasonCycle)
		r.wantEvents(3)
		serve(map[string]string{"c": "d"})
		r.after(2 * time.Minute)
		if n := len(r.values()); n < 5 {
			t.Errorf("%d events after the cycle was mended", n)
		}
	})
}

// TestCycleIsNotARestart: coming back to a page after an error is no cycle.
func TestCycleIsNotARestart(t *testing.T) {
	bubble(t, bridgetest.Export{PageSize: 5}, func(r *harness) {
		r.source.Grow(200)
		for n := 1; n < 40; n += 2 {
			r.topic.FailPublish(n, bridgetest.Failed)
		}
		r.startFor(20 * time.Minute)
		r.wantState(bridge.StateIdle, "")
		r.wantAll()
	})
}

func TestLongCursor(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.source.Serve(func(at bridge.Position) bridgetest.Answer {
			return bridgetest.Answer{Body: fmt.Sprintf(`{"items":[{"eventId":"1","timestamp":946684800000}],"nextCursor":%q}`,
				strings.Repeat("x", bridge.MaxCursor+1))}
		})
		r.startFor(5 * time.Second)
		r.wantState(bridge.StateBlocked, bridge.ReasonCursor)
		r.wantEvents(0)
	})
}

func TestTailTooLarge(t *testing.T) {
	bubble(t, bridgetest.Export{PageSize: 5000}, func(r *harness) {
		r.cfg.PageSize = 10 // lowered since the tail was read, or the API ignores it
		r.follow(950, 5*time.Second)
		r.wantState(bridge.StateIdle, "")
		r.grow(3100, 20*time.Second)
		r.wantState(bridge.StateBlocked, bridge.ReasonTail)
	})
}

func TestAnotherTenant(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		page := func(org, id, next string) bridgetest.Answer {
			return bridgetest.Answer{Body: fmt.Sprintf(`{"items":[{"eventId":%q,"timestamp":946684800000}],`+
				`"nextCursor":%q,"metadata":{"organization":{"slug":%q}}}`, id, next, org)}
		}
		org := "acme"
		r.source.Serve(func(at bridge.Position) bridgetest.Answer {
			if at.Cursor == "" {
				return page("acme", "1", "c1")
			}
			return page(org, "2", "")
		})
		org = "evil"
		r.startFor(time.Minute)
		r.wantState(bridge.StateBlocked, bridge.ReasonSource)
		r.wantEvents(1) // only those of the first tenant
		// A reset accepts the new one.
		r.apply("accept", bridge.Target{Cursor: "c1"})
		r.after(time.Minute)
		r.wantState(bridge.StateIdle, "")
		if got := r.store.Checkpoint().Source.Organization; got != "evil" {
			t.Errorf("the checkpoint is of %q", got)
		}
	})
}

func TestOriginChanged(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.cfg.Limits.Once = true
		r.source.Grow(15)
		r.mustRun()
		r.cfg.Origin.Start = 5 // matters once only
		if err := r.run(); err != nil {
			t.Errorf("another start: %v", err)
		}
		r.cfg.Origin.Events = []string{"orderPlaced"}
		wantBlocked(t, r.run(), bridge.ReasonSource)
		r.cfg.Limits.Once = false
		r.startFor(time.Minute)
		r.wantState(bridge.StateBlocked, bridge.ReasonSource)
		if s := r.bridge.Status(); !strings.Contains(s.Error, "orderPlaced") || !strings.Contains(s.Error, "all events") {
			t.Errorf("the error %q does not name both filters", s.Error)
		}
		c := r.store.Checkpoint()
		r.apply("accept", bridge.Target{Cursor: c.Cursor, Tail: c.Tail})
		r.wantIdleAfter(time.Minute)
	})
}

func TestForeignCheckpoint(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.store.Put([]byte(`{"v":99,"stream":"events"}`))
		r.startFor(10 * time.Minute)
		r.wantState(bridge.StateBlocked, bridge.ReasonCheckpoint)
		if string(r.store.Get()) != `{"v":99,"stream":"events"}` {
			t.Error("a value that is not ours was overwritten")
		}
	})
}

func TestSinkRefuses(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		for n := 1; n < 4; n++ {
			r.topic.FailRecover(n, &bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonTopic, Hint: "topics create",
				Err: errors.New("no topic")})
		}
		r.follow(15, 90*time.Second)
		r.wantState(bridge.StateBlocked, bridge.ReasonTopic)
		if r.source.Requests() > 0 {
			t.Error("asked the API without a topic to publish to")
		}
		r.wantIdleAfter(3 * time.Minute)
	})
}

// TestPassingSchemaErrors: only three in a row block.
func TestPassingSchemaErrors(t *testing.T) {
	bubble(t, bridgetest.Export{Latency: time.Millisecond}, func(r *harness) {
		r.source.Grow(400)
		for n := 2; n < 40; n += 3 {
			for _, m := range []int{n, n + 1} {
				r.source.FailRequest(m, &bridge.Fault{Class: bridge.Malformed, Reason: bridge.ReasonSchema,
					Err: errors.New("items is missing")})
			}
		}
		r.cfg.Limits.Once = true // would return a BlockedError
		r.mustRun()
		r.wantOnce()
	})
}

// If a sink fails after each good Recover, the retries become rarer and rarer.
func TestPublishFailsForEver(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		for n := 1; n < 5000; n++ {
			r.topic.FailPublish(n, bridgetest.Persisted)
		}
		r.follow(500, 10*time.Minute)
		if n := r.topic.Publishes(); n > 100 {
			t.Errorf("%d sessions in ten minutes: back-off never grows beyond its first step", n)
		}
	})
}

// refusingStore is a Store that may not be written.
type refusingStore struct{ *bridgetest.Store }

func (refusingStore) Advance(context.Context, bridge.Checkpoint, bridge.Checkpoint) error {
	return &bridge.Fault{Class: bridge.Permanent, Code: "noperm", Reason: bridge.ReasonConfig, Err: errors.New("NOPERM")}
}

// A bounded run ends when the store refuses writes for good.
func TestStoreRefusesWritesBounded(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(50)
		r.cfg.Limits.Once = true
		r.startWith(engine.Ports{Store: refusingStore{r.store}})
		wantBlocked(t, r.endsWithin(24*time.Hour), bridge.ReasonConfig)
	})
}

// A cross-check that is answered by 429 waits as long as it says.
func TestCrossCheckThrottled(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.follow(35, time.Second)
		asked := r.source.Requests()
		r.source.Refuse(func(at bridge.Position) error {
			if at.Cursor == "" {
				return &bridge.Fault{Class: bridge.Throttled, Code: "429", RetryAfter: 10 * time.Minute, Err: errors.New("429")}
			}
			return gone
		})
		r.after(10 * time.Minute)
		if n := r.source.Requests() - asked; n > 8 {
			t.Errorf("%d requests in 10 min, though the 429 of the 4th asked for 10 min of silence", n)
		}
	})
}

// A page that must not be published blocks the stream. The pages before it are committed
// once, however often the page is tried again. One record in the log reports it.
func TestPageRefused(t *testing.T) {
	t.Parallel()
	inModes(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(50)
		r.startWith(engine.Ports{Inbox: r.inbox, Sink: refusingSink{r.topic.Open("events"), "c+30/"}})
		r.after(10 * time.Minute)
		r.wantState(bridge.StateBlocked, bridge.ReasonEvent)
		r.wantEvents(30)
		if c := r.store.Checkpoint(); !strings.HasPrefix(c.Cursor, "c+30/") || c.Events != 30 || c.Pages != 3 {
			r.t.Errorf("the checkpoint is at %q with %d events and %d pages, want the page's cursor", c.Cursor, c.Events,
				c.Pages)
		}
		if n := strings.Count(r.log.String(), "level=ERROR"); n > 1 {
			r.t.Errorf("it is said %d times", n)
		}
	})
}

// A refused page of an overlap is compared with the topic again from the start: events
// without ids match once for each copy.
func TestPageRefusedInOverlap(t *testing.T) {
	t.Parallel()
	inModes(t, bridgetest.Export{NoIDs: true}, func(r *harness) {
		r.source.Grow(95)
		r.cfg.OnInvalidCursor = "time"
		sink := &refusingOnce{Sink: r.topic.Open("events")}
		r.startWith(engine.Ports{Inbox: r.inbox, Sink: sink, History: storeHistory{r.store}})
		r.after(5 * time.Second)
		sink.cursor = "c+90/" // whose first five events are known
		r.expire(r.store.Checkpoint().Cursor, func(at bridge.Position) bool { return at.Cursor == "" && at.Start > 0 })
		r.grow(30, 10*time.Minute)
		if sink.cursor != "" {
			r.t.Errorf("the page at %s was not sent", sink.cursor)
		}
		r.wantOnce()
	})
}

// refusingOnce refuses the page at the cursor that begins so once, "" none.
type refusingOnce struct {
	bridge.Sink
	cursor string
}

func (s *refusingOnce) Send(ctx context.Context, p *bridge.Page) error {
	refuse := refusingSink{s.Sink, s.cursor}
	if s.cursor == "" || !strings.HasPrefix(p.At.Cursor, s.cursor) {
		return s.Sink.Send(ctx, p)
	}
	s.cursor = ""
	return refuse.Send(ctx, p)
}

// refusingSink refuses the page at the cursor that begins so.
type refusingSink struct {
	bridge.Sink
	cursor string
}

func (s refusingSink) Send(ctx context.Context, p *bridge.Page) error {
	if !strings.HasPrefix(p.At.Cursor, s.cursor) {
		return s.Sink.Send(ctx, p)
	}
	p.Release()
	return fmt.Errorf("%w: %w", bridge.ErrRejected, &bridge.Fault{Class: bridge.Permanent, Code: "bad-timestamp",
		Reason: bridge.ReasonEvent, Err: errors.New("item 3")})
}
