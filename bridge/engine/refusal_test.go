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

// A page that must not be published blocks the stream behind the pages before
// it, which are committed once, however often it is tried again. That is said
// once.
func TestPageRefused(t *testing.T) {
	t.Parallel()
	for _, mode := range []bridge.Mode{bridge.AtLeastOnce, bridge.ExactlyOnce} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			inBubble(t, bridgetest.Export{}, func(r *harness) {
				if mode == bridge.ExactlyOnce {
					r.exactly()
				}
				r.source.Grow(50)
				r.startWith(engine.Ports{Source: r.source, Inbox: r.inbox, Sink: refusingSink{r.topic.Open("events"), "c+30/"}})
				r.after(10 * time.Minute)
				r.wantState(bridge.StateBlocked, bridge.ReasonEvent)
				if got := len(r.values()); got != 30 {
					t.Errorf("%d events are published, want the 30 before the page, once", got)
				}
				if c := r.store.Checkpoint(); !strings.HasPrefix(c.Cursor, "c+30/") || c.Events != 30 || c.Pages != 3 {
					t.Errorf("the checkpoint is at %q with %d events and %d pages, want the page's cursor", c.Cursor, c.Events, c.Pages)
				}
				if n := strings.Count(r.log.String(), "level=ERROR"); n > 1 {
					t.Errorf("it is said %d times", n)
				}
			})
		})
	}
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
	return fmt.Errorf("%w: %w", bridge.ErrRefused, &bridge.Fault{Class: bridge.Permanent, Code: "bad-timestamp", Reason: bridge.ReasonEvent, Err: errors.New("item 3")})
}
