package bridgetest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"exportbridge/bridge"
)

// List is a bridge.Source of an export without a cursor: it lists ranges, newest first.
type List struct {
	// Items are oldest first.
	Items []bridge.Event
	// Size is the number of items of a page, Paging how a page names the next one.
	Size   int
	Paging Paging
	// Beyond is the answer to a number after the last page: "repeat" is the last page,
	// "reject" an error, anything else an empty page.
	Beyond string
	// MaxPages is the number of pages after which a cursor is rejected, 0 for no limit.
	MaxPages int
	Latency  time.Duration
	Source   bridge.SourceIdentity

	requests atomic.Int64
}

// Paging is how a page names the next one.
type Paging int

// The forms of Paging. A page of ByOffset begins with the last item of the page before;
// Unpaged names none.
const (
	ByCursor Paging = iota
	ByNumber
	ByOffset
	Unpaged
)

// Requests returns the number of requested pages.
func (l *List) Requests() int { return int(l.requests.Load()) }

// Fetch implements bridge.Source.
func (l *List) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	l.requests.Add(1)
	if err := wait(ctx, l.Latency); err != nil {
		return nil, err
	}
	var shown []bridge.Event
	for _, e := range slices.Backward(l.Items) {
		if e.Time >= at.Start && e.Time < at.End {
			shown = append(shown, e)
		}
	}
	asked, _ := strconv.Atoi(at.Cursor)
	skip := asked
	if l.Paging == ByNumber {
		asked = max(1, asked)
		number, last := asked, max(1, (len(shown)+l.Size-1)/l.Size)
		switch {
		case number > last && l.Beyond == "reject":
			return nil, &bridge.Fault{Class: bridge.BadCursor, Code: "404", Err: errors.New("no such page")}
		case l.Beyond == "repeat":
			number = min(number, last)
		}
		skip = (number - 1) * l.Size
	}
	if l.MaxPages > 0 && skip >= l.MaxPages*l.Size {
		return nil, &bridge.Fault{Class: bridge.BadCursor, Code: "410", Err: errors.New("the cursor has expired")}
	}
	now := time.Now()
	p := &bridge.Page{At: at, Source: l.Source, RequestedAt: now, ArrivedAt: now, ServerTime: now.Truncate(time.Second)}
	rest := shown[min(len(shown), skip):]
	for i, e := range rest[:min(len(rest), l.Size)] {
		e.Index = i
		p.Events = append(p.Events, e)
	}
	p.Items = len(p.Events)
	switch {
	case l.Paging == ByNumber && p.Items > 0:
		p.Next = strconv.Itoa(asked + 1)
	case l.Paging == ByOffset && (p.Items > 1 || p.Items == 1 && at.Cursor == ""):
		p.Next = strconv.Itoa(skip + p.Items - 1)
	case l.Paging == ByCursor && len(rest) > l.Size:
		p.Next = strconv.Itoa(skip + l.Size)
	}
	return p, nil
}

// Decode implements bridge.Source: the pages are decoded.
func (*List) Decode(*bridge.Page) error { return nil }
