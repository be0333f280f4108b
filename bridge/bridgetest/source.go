package bridgetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"exportbridge/bridge"
)

// End is how an export marks the end of its results.
type End string

// The ends. With the first three, the last page has no cursor and grows in place. With the
// others, every page has a cursor.
const (
	EndEmptyCursor End = "empty-cursor" // nextCursor is ""
	EndNullCursor  End = "null-cursor"  // nextCursor is null
	EndNoCursor    End = "no-cursor"    // nextCursor is absent
	EndEmptyItems  End = "empty-items"  // no items, and the same cursor as in the request
	EndFreshCursor End = "fresh-cursor" // no items, and a new cursor each time
)

// Ends lists all ends, for tests that must hold with each.
var Ends = []End{EndEmptyCursor, EndNullCursor, EndNoCursor, EndEmptyItems, EndFreshCursor}

// growing reports whether the last page has no cursor and grows in place.
func (e End) growing() bool { return e != EndEmptyItems && e != EndFreshCursor }

// Export is what a Source holds and how it behaves.
type Export struct {
	PageSize int // items per page; default 10
	End      End // default EndEmptyCursor
	// NoIDs leaves out the items' own ids, as the oldest schema does.
	NoIDs bool
	// Latency is the time from each request to the first byte of the answer.
	Latency time.Duration
	// Pad is the number of bytes of white space after each page.
	Pad int
	// Identity is the identity in the pages' metadata.
	Identity bridge.SourceIdentity
}

// Source is a bridge.Source of a list in memory. All methods may be called concurrently. It
// fails the test if two goroutines call Fetch or Decode at once, if a page is decoded out
// of order or twice, if a request has a cursor that no page had, or if a page is not
// released when the test ends.
type Source struct {
	t      testing.TB
	export Export

	mu       sync.Mutex // guards all below
	list     []*Item
	made     int            // number of generated items
	last     int64          // the newest generated item's time
	cursors  map[string]int // the item that each cursor points to
	frontier int            // the furthest of these items
	asked    []bridge.Position
	failures map[int]error
	serve    func(bridge.Position) Answer
	refuse   func(bridge.Position) error
	pages    map[*bridge.Page]int // fetched and not released, with their numbers
	fetching bool
	decoding bool
	decoded  int // number of the last page decoded
}

// Item is one event of an export.
type Item struct {
	// Raw is the bytes of the item.
	Raw []byte

	time  int64
	shown bool // on a page that was returned
}

// NewSource returns an empty export.
func NewSource(t testing.TB, e Export) *Source {
	if e.PageSize == 0 {
		e.PageSize = 10
	}
	if e.End == "" {
		e.End = EndEmptyCursor
	}
	s := &Source{
		t: t, export: e, cursors: map[string]int{"": 0},
		failures: make(map[int]error),
		pages:    make(map[*bridge.Page]int),
	}
	t.Cleanup(func() {
		if n := s.Unreleased(); n > 0 {
			t.Errorf("source: %d pages were never released", n)
		}
	})
	return s
}

// Grow appends n generated items and returns them. All differ, and their times rise from
// now on.
func (s *Source) Grow(n int) [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	added := make([][]byte, n)
	for i := range added {
		added[i] = s.makeItem()
		s.add(added[i])
	}
	return added
}

// Append adds items as they are. They must be valid JSON.
func (s *Source) Append(items ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, item := range items {
		s.add([]byte(item))
	}
}

// FailRequest makes request n, counted from 1, return err.
func (s *Source) FailRequest(n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures[n] = err
}

// Refuse makes a request return the error of refuse, unless that is nil. A nil refuse ends
// this.
func (s *Source) Refuse(refuse func(at bridge.Position) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

// Serve makes a script answer all later requests instead of the list. Cursors are not
// checked then. A nil answer returns to the list.
func (s *Source) Serve(answer func(asked bridge.Position) Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serve = answer
}

// Requests returns the number of requests so far, failed ones included.
func (s *Source) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

// Asked returns the position of every request so far.
func (s *Source) Asked() []bridge.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// Items returns every item that the pages have shown or will show, in the order of their
// creation.
func (s *Source) Items() []Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	var items []Item
	for i, item := range s.list {
		if item.shown || i >= s.frontier {
			items = append(items, *item)
		}
	}
	return items
}

// Unreleased returns the number of pages that were fetched and not released.
func (s *Source) Unreleased() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pages)
}

// Fetch implements bridge.Source.
func (s *Source) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	n := s.begin(at)
	defer s.end(&s.fetching)
	if err := wait(ctx, s.export.Latency); err != nil {
		return nil, fmt.Errorf("fetch page: %w", err)
	}
	return s.answer(ctx, n, at)
}

// answer makes the answer to request n.
func (s *Source) answer(ctx context.Context, n int, at bridge.Position) (*bridge.Page, error) {
	if serve := s.script(); serve != nil {
		return s.scripted(ctx, n, at, serve(asked(at)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.failures[n]; err != nil {
		return nil, err
	}
	if s.refuse != nil {
		if err := s.refuse(at); err != nil {
			return nil, err
		}
	}
	from, known := s.cursors[at.Cursor]
	if !known {
		s.t.Errorf("source: request %d has cursor %q, which was never given", n, at.Cursor)
		return nil, &bridge.Fault{Class: bridge.BadCursor, Code: "400", Reason: bridge.ReasonCursor,
			Err: fmt.Errorf("cursor %q is unknown", at.Cursor)}
	}
	return s.hand(n, at, from), nil
}

// Decode implements bridge.Source.
func (s *Source) Decode(p *bridge.Page) error {
	s.mu.Lock()
	n, ours := s.pages[p]
	switch {
	case !ours:
		s.t.Errorf("source: decode of a page that is released or not ours")
	case s.decoding:
		s.t.Errorf("source: two calls of Decode at once")
	case n <= s.decoded:
		s.t.Errorf("source: page of request %d decoded after that of request %d", n, s.decoded)
	}
	s.decoding, s.decoded = true, n
	s.mu.Unlock()
	defer s.end(&s.decoding)
	return DecodePage(p)
}

// DecodeItem returns a page with one item and nothing else.
func (s *Source) DecodeItem(item []byte) (*bridge.Page, error) {
	page := NewPage(bridge.Position{}, fmt.Appendf(nil, `{"items":[%s]}`, item))
	if err := DecodePage(page); err != nil {
		return nil, errors.New(err.Error()) // no Fault, as of bytes that are no item
	}
	return page, nil
}

// DecodeRecord is DecodeItem: a Source of tests has no rules for private data.
func (s *Source) DecodeRecord(value []byte, _ string) (*bridge.Page, error) {
	return s.DecodeItem(value)
}

// asked returns the part of a position that a request contains.
func asked(at bridge.Position) bridge.Position {
	if at.Cursor != "" && !at.Window {
		return bridge.Position{Cursor: at.Cursor}
	}
	at.Window = false
	return at
}

// begin counts a request.
func (s *Source) begin(at bridge.Position) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fetching {
		s.t.Errorf("source: two calls of Fetch at once")
	}
	s.fetching = true
	s.asked = append(s.asked, at)
	return len(s.asked)
}

func (s *Source) script() func(bridge.Position) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serve
}

func (s *Source) end(busy *bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*busy = false
}

// scripted returns what a client makes of an answer.
func (s *Source) scripted(ctx context.Context, n int, at bridge.Position, a Answer) (*bridge.Page, error) {
	switch {
	case a.Hang:
		<-ctx.Done()
		return nil, fmt.Errorf("fetch page: %w", ctx.Err())
	case a.Outage:
		return nil, &bridge.Fault{Class: bridge.Transient, Code: "503", Err: fmt.Errorf("fetch page: %w", ErrDown)}
	case a.Cut:
		return nil, &bridge.Fault{Class: bridge.Transient, Code: "network",
			Err: fmt.Errorf("fetch page: body cut off: %w", ErrDown)}
	}
	probe := NewPage(at, []byte(a.Body))
	if err := DecodePage(probe); err != nil {
		probe.Next = "" // Decode returns the error
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	page := s.give(n, at, []byte(a.Body), probe.Next)
	page.Unread = a.Unread
	return page, nil
}

// hand returns the page that begins at the item from. The caller holds mu.
func (s *Source) hand(n int, at bridge.Position, from int) *bridge.Page {
	var items [][]byte
	i := from
	for ; i < len(s.list) && len(items) < s.export.PageSize; i++ {
		item := s.list[i]
		if item.outside(at) {
			continue
		}
		item.shown = true
		items = append(items, item.Raw)
	}
	next := ""
	switch full := len(items) == s.export.PageSize && i < len(s.list); {
	case full, !s.export.End.growing() && len(items) > 0:
		next = s.cursor(i, "")
	case s.export.End == EndEmptyItems && at.Cursor != "":
		next = at.Cursor
	case !s.export.End.growing():
		next = s.cursor(i, fmt.Sprint("~", n))
	}
	return s.give(n, at, s.render(bytes.Join(items, []byte(",")), next), next)
}

// give creates a page and remembers it until it is released. The caller holds mu.
func (s *Source) give(n int, at bridge.Position, body []byte, next string) *bridge.Page {
	p := NewPage(at, body)
	p.Next = next
	p.Recycle = func(p *bridge.Page) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.pages, p)
		poisonPage(p)
	}
	s.pages[p] = n
	return p
}

// outside reports whether a request's bounds exclude the item.
func (i *Item) outside(at bridge.Position) bool {
	at = asked(at)
	return i.time < at.Start || at.End != 0 && i.time >= at.End
}

func (s *Source) render(items []byte, next string) []byte {
	body := new(bytes.Buffer)
	if id := s.export.Identity; id != (bridge.SourceIdentity{}) {
		fmt.Fprintf(body, `{"metadata":{"organization":{"slug":%q},"workspace":{"slug":%q},"application":{"slug":%q}},`,
			id.Organization, id.Workspace, id.Application)
	} else {
		body.WriteByte('{')
	}
	fmt.Fprintf(body, `"items":[%s]`, items)
	quoted, err := json.Marshal(next)
	if err != nil {
		s.t.Errorf("source: encode cursor %q: %v", next, err)
	}
	switch {
	case next == "" && s.export.End == EndNoCursor:
		body.WriteByte('}')
	case next == "" && s.export.End == EndNullCursor:
		body.WriteString(`,"nextCursor":null}`)
	default:
		fmt.Fprintf(body, `,"nextCursor":%s}`, quoted)
	}
	return append(body.Bytes(), bytes.Repeat([]byte(" "), s.export.Pad)...)
}

// cursor returns a new token for the item at. It contains characters that a careless client
// breaks.
func (s *Source) cursor(at int, nonce string) string {
	token := fmt.Sprintf("c+%d/=%%2B&# é%s", at, nonce)
	s.cursors[token] = at
	s.frontier = max(s.frontier, at)
	return token
}

// add puts an item at the end of the list.
func (s *Source) add(raw []byte) {
	s.list = append(s.list, &Item{Raw: raw, time: decodeEvent(raw, 0).Time})
}

func (s *Source) makeItem() []byte {
	n := s.made
	s.made++
	s.last = max(s.last+1, time.Now().UnixMilli())
	if s.export.NoIDs {
		return fmt.Appendf(nil, `{"userId":"u-%d","timestamp":%d,"payload":{"type":"tested","n":%d}}`, n%7, s.last, n)
	}
	return fmt.Appendf(nil, `{"eventId":"e-%06d","userId":"u-%d","timestamp":%d,"payload":{"type":"tested","n":%d}}`,
		n, n%7, s.last, n)
}
