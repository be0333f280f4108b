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
