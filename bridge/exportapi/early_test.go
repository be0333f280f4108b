package exportapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
)

// streamed is an API whose bodies go out in two parts, the second when the
// test lets it.
type streamed struct {
	t        testing.TB
	encoding string
	// page returns the page at a cursor, in its two parts.
	page func(cursor string) (head, rest string)
	// held returns what the rest of the page at a cursor waits for, nil for
	// nothing. It may tell the test that the request has come.
	held func(cursor string) <-chan struct{}
	// cut breaks the connection in place of the rest.
	cut func(cursor string) bool
	// gone, if not nil, takes the cursors of pages that were held until the
	// client gave them up.
	gone chan<- string

	connections atomic.Int64
}

func (s *streamed) start(vars map[string]string) *exportapi.Client {
	s.t.Helper()
	server := httptest.NewUnstartedServer(s)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.connections.Add(1)
		}
	}
	server.Start()
	s.t.Cleanup(server.Close)
	cfg := config(s.t, vars)
	cfg.URL = server.URL
	return connect(s.t, cfg)
}

// parts writes a body in two parts, each as far as the other side must have it.
type parts interface {
	io.Writer
	Flush() error
	Close() error
}

type identity struct{ io.Writer }

func (identity) Flush() error { return nil }
func (identity) Close() error { return nil }

func (s *streamed) encoder(w io.Writer) parts {
	switch s.encoding {
	case "gzip":
		return gzip.NewWriter(w)
	case "zstd":
		enc, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
		if err != nil {
			s.t.Error(err)
		}
		return enc
	}
	return identity{w}
}

func (s *streamed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	cursor := r.URL.Query().Get("cursor")
	head, rest := s.page(cursor)
	var wait <-chan struct{}
	if s.held != nil {
		wait = s.held(cursor)
	}
	w.Header().Set("Content-Type", "application/json")
	if s.encoding != "" {
		w.Header().Set("Content-Encoding", s.encoding)
	}
	body := s.encoder(w)
	_, _ = io.WriteString(body, head)
	_ = body.Flush()
	_ = http.NewResponseController(w).Flush()
	if wait != nil {
		select {
		case <-wait:
		case <-r.Context().Done():
			if s.gone != nil {
				s.gone <- cursor
			}
			return
		}
	}
	if s.cut != nil && s.cut(cursor) {
		panic(http.ErrAbortHandler)
	}
	_, _ = io.WriteString(body, rest)
	_ = body.Close()
}

// noise is text that does not compress, so that bodies are large on the wire.
func noise(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, seed))
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcdefghijklmnopqrstuvwxyz0123456789"[r.IntN(36)]
	}
	return string(b)
}

var padding = noise(1, 2000)

// items returns n items of 2 KB each, named after their page.
func items(page string, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"eventId":"%s-%d","userId":"u","timestamp":%d,"nextCursor":"decoy","pad":"\",\"nextCursor\":\"decoy\"%s"}`, page, i, i+1, padding)
	}
	return b.String()
}

const (
	headItems = 30
	restItems = 20
)

// cursorFirst returns the page at cursor "c<n>", which leads to the next one.
func cursorFirst(cursor string) (head, rest string) {
	n := number(cursor)
	return fmt.Sprintf(`{"nextCursor":"c%d","items":[`, n+1) + items(cursor, headItems), "," + items(cursor+"b", restItems) + `]}`
}

func number(cursor string) (n int) {
	_, _ = fmt.Sscanf(cursor, "c%d", &n) // none is the first page
	return n
}

// accustom reads pages whole until the client believes in their layout.
func accustom(t testing.TB, c *exportapi.Client) {
	t.Helper()
	for n := range 3 {
		p, err := c.Fetch(t.Context(), bridge.Position{Cursor: fmt.Sprint("c", n)})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Decode(p); err != nil {
			t.Fatal(err)
		}
		p.Release()
	}
}

// TestNextRequestLeavesEarly holds each body back until the request behind it
// has come: without early cursors nothing would ever go on.
func TestNextRequestLeavesEarly(t *testing.T) {
	t.Parallel()
	const pages = 60
	for _, encoding := range []string{"", "gzip", "zstd"} {
		t.Run("encoding "+encoding, func(t *testing.T) {
			t.Parallel()
			var came [pages + 1]chan struct{}
			for n := range came {
				came[n] = make(chan struct{})
			}
			api := &streamed{t: t, encoding: encoding, page: cursorFirst, held: func(cursor string) <-chan struct{} {
				n := number(cursor)
				close(came[n]) // fails when a page is asked for twice
				if n < 3 || n == pages-1 {
					return nil
				}
				return came[n+1]
			}}
			c := api.start(nil)
			spare, ctx := countSpares(t.Context())
			n := 0
			for p := range fetchAhead(ctx, t, c, pages, pages) {
				if err := c.Decode(p); err != nil {
					t.Errorf("decode at %q: %v", p.At.Cursor, err)
				}
				head, rest := cursorFirst(p.At.Cursor)
				if string(p.Body) != head+rest || p.Items != headItems+restItems || p.Next != fmt.Sprint("c", n+1) {
					t.Errorf("page at %q has %d bytes, %d items, next %q", p.At.Cursor, len(p.Body), p.Items, p.Next)
				}
				p.Release()
				n++
			}
			if n != pages {
				t.Errorf("%d pages arrived, want %d", n, pages)
			}
			if got := api.connections.Load() - spare.Load(); got > 3 {
				t.Errorf("%d requests took %d connections, want three at most", pages, got)
			}
		})
	}
}

// countSpares counts the requests under the context that dialed, but left on a
// connection that another request gave back meanwhile. net/http keeps the one
// that was dialed for later.
func countSpares(ctx context.Context) (*atomic.Int64, context.Context) {
	var n atomic.Int64
	return &n, httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) {
			if c.Reused && !c.WasIdle {
				n.Add(1)
			}
		},
	})
}

// fetchAhead fetches pages one after the other while others decode them, at
// most so many ahead, and closes the queue after the last one or an error.
func fetchAhead(ctx context.Context, t *testing.T, c *exportapi.Client, pages, ahead int) <-chan *bridge.Page {
	t.Helper()
	queue := make(chan *bridge.Page, ahead)
	go func() {
		defer close(queue)
		at := bridge.Position{}
		for range pages {
			p, err := c.Fetch(ctx, at)
			if err != nil {
				t.Errorf("fetch at %q: %v", at.Cursor, err)
				return
			}
			at.Cursor = p.Next
			queue <- p
		}
	}()
	return queue
}

// TestWhenPagesAreEarly tells of each page of a run whether it was handed out
// before its body had arrived.
func TestWhenPagesAreEarly(t *testing.T) {
	t.Parallel()
	first := func(next string) (string, string) {
		return `{"nextCursor":` + next + `,"items":[` + items("a", headItems), "," + items("b", restItems) + `]}`
	}
	last := func(cursor string) (string, string) {
		return `{"items":[` + items("a", headItems), "," + items("b", restItems) + `],"nextCursor":"` + cursor + `"}`
	}
	for name, tc := range map[string]struct {
		page  func(n int) (string, string)
		early string // a letter a page: e early, w whole; the first is asked for without a cursor
	}{
		"always first": {func(n int) (string, string) { return first(fmt.Sprintf(`"c%d"`, n+1)) }, "wweeeeee"},
		"always last":  {func(n int) (string, string) { return last(fmt.Sprint("c", n+1)) }, "wwwwwwww"},
		"sometimes first": {func(n int) (string, string) {
			if n == 4 {
				return last("c5")
			}
			return first(fmt.Sprintf(`"c%d"`, n+1))
		}, "wweewwwe"},
		"behind the metadata": {func(n int) (string, string) {
			head, rest := first(fmt.Sprintf(`"c%d"`, n+1))
			return `{"metadata":{"organization":"acme","nextCursor":"decoy"},"x":[{"}":"]"},1.5e3,"\\\"",null],` + head[1:], rest
		}, "wweeeeee"},
		"too far behind": {func(n int) (string, string) {
			head, rest := first(fmt.Sprintf(`"c%d"`, n+1))
			return `{"x":"` + noise(3, 4<<10) + `",` + head[1:], rest
		}, "wwwwwwww"},
		"spaced and escaped": {func(n int) (string, string) {
			head, rest := first(fmt.Sprintf(`"\u0063%d"`, n+1))
			return " \n{\t" + strings.Replace(head[1:], "nextCursor", `next\u0043ursor`, 1), rest
		}, "wweeeeee"},
		"small pages": {func(n int) (string, string) {
			return fmt.Sprintf(`{"nextCursor":"c%d","items":[`, n+1), `{"timestamp":1}]}`
		}, "wwwwwwww"},
		"pages of one flight": {func(n int) (string, string) {
			return fmt.Sprintf(`{"nextCursor":"c%d","items":[`, n+1) + items("a", 4), "," + items("b", 2) + `]}`
		}, "wwwwwwww"},
		"an empty one": {func(n int) (string, string) {
			if n == 3 {
				return `{"nextCursor":"c4","items":[`, `]}`
			}
			return first(fmt.Sprintf(`"c%d"`, n+1))
		}, "wweweeee"},
		"a tail": {func(n int) (string, string) {
			if n == 3 {
				return first(`""`)
			}
			return first(fmt.Sprintf(`"c%d"`, n+1))
		}, "wwewwwee"},
		"null": {func(n int) (string, string) {
			if n == 3 {
				return first(`null`)
			}
			return first(fmt.Sprintf(`"c%d"`, n+1))
		}, "wwewwwee"},
		"the same again": {func(n int) (string, string) { return first(fmt.Sprintf(`"c%d"`, n)) }, "wwwwwwww"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var rest atomic.Pointer[chan struct{}]
			api := &streamed{t: t, page: func(cursor string) (string, string) { return tc.page(number(cursor)) },
				held: func(string) <-chan struct{} { return *rest.Load() }}
			c := api.start(nil)
			for n := range len(tc.early) {
				at := bridge.Position{Cursor: fmt.Sprint("c", n)}
				if n == 0 {
					at.Cursor = ""
				}
				hold := make(chan struct{})
				rest.Store(&hold)
				if tc.early[n] == 'w' {
					close(hold)
				}
				p, err := c.Fetch(t.Context(), at)
				if err != nil {
					t.Fatalf("fetch page %d: %v", n, err)
				}
				early := p.ArrivedAt.IsZero()
				if early != (tc.early[n] != 'w') || early && p.Size < bridge.SmallBody || early != (p.Body == nil) {
					t.Errorf("page %d is early %v with size %d and %d bytes, want %c", n, early, p.Size, len(p.Body), tc.early[n])
				}
				next, size := p.Next, p.Size
				if early {
					close(hold)
				}
				if err := c.Decode(p); err != nil {
					t.Errorf("decode page %d: %v", n, err)
				}
				head, tail := tc.page(n)
				if p.Next != next || string(p.Body) != head+tail || p.Size != int64(len(head+tail)) || p.ArrivedAt.IsZero() {
					t.Errorf("page %d: next %q then %q, size %d then %d, %d bytes, want %d", n, next, p.Next, size, p.Size, len(p.Body), len(head+tail))
				}
				p.Release()
			}
		})
	}
}

// TestBrokenBehindItsCursor breaks a page when it has been handed out.
func TestBrokenBehindItsCursor(t *testing.T) {
	t.Parallel()
	const begin = `{"nextCursor":"c9","items":[`
	head := begin + items("a", headItems)
	for name, tc := range map[string]struct {
		encoding   string
		head, rest string
		cut        bool
		vars       map[string]string
		class      bridge.Class
		code       string
		reason     bridge.Reason
		say        string
	}{
		"cursor twice":         {"", head, `],"nextCursor":"c8"}`, false, nil, bridge.Malformed, "schema", bridge.ReasonSchema, "twice"},
		"the same twice":       {"", head, `],"nextCursor":"c9"}`, false, nil, bridge.Malformed, "schema", bridge.ReasonSchema, "twice"},
		"twice, one escaped":   {"gzip", head, `],"next\u0043ursor":"c8"}`, false, nil, bridge.Malformed, "schema", bridge.ReasonSchema, "twice"},
		"then null":            {"", head, `],"nextCursor":null}`, false, nil, bridge.Malformed, "schema", bridge.ReasonSchema, "twice"},
		"items twice":          {"", head, `],"items":[]}`, false, nil, bridge.Malformed, "schema", bridge.ReasonSchema, "twice"},
		"not JSON behind":      {"", head, `]} and more`, false, nil, bridge.Malformed, "schema", bridge.ReasonSchema, "unexpected data after"},
		"not UTF-8 behind":     {"", head, "],\"x\":\"\xff\"}", false, nil, bridge.Malformed, "schema", bridge.ReasonSchema, "UTF-8"},
		"no items":             {"", `{"nextCursor":"c9","other":[` + items("a", headItems), `]}`, false, nil, bridge.Malformed, "schema", bridge.ReasonSchema, "no member"},
		"ends in an item":      {"", head, `,{"timestamp":`, false, nil, bridge.Transient, "decode", "", "truncated"},
		"connection cut":       {"", head, "", true, nil, bridge.Transient, "network", "", "ended after"},
		"connection cut, gzip": {"gzip", head, "", true, nil, bridge.Transient, "network", "", "ended after"},
		"connection cut, zstd": {"zstd", head, "", true, nil, bridge.Transient, "network", "", "ended after"},
		"too large":            {"", head, strings.Repeat(" ", 1<<20), false, map[string]string{"EXPORT_MAX_RESPONSE_BYTES": "200000"}, bridge.Permanent, "size", bridge.ReasonSize, "200000"},
		"too large, gzip":      {"gzip", head, strings.Repeat(" ", 4<<20), false, map[string]string{"EXPORT_MAX_RESPONSE_BYTES": "200000"}, bridge.Permanent, "size", bridge.ReasonSize, "200000"},
		"too large, zstd":      {"zstd", head, strings.Repeat(" ", 4<<20), false, map[string]string{"EXPORT_MAX_RESPONSE_BYTES": "200000"}, bridge.Permanent, "size", bridge.ReasonSize, "200000"},
		"too late":             {"", head, "never", false, map[string]string{"EXPORT_TIMEOUT": "5s"}, bridge.Transient, "timeout", "", "body not complete within 5s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hold := make(chan struct{})
			api := &streamed{t: t, encoding: tc.encoding,
				page: func(cursor string) (string, string) {
					if cursor == testCursor {
						return tc.head, tc.rest
					}
					return cursorFirst(cursor)
				},
				held: func(cursor string) <-chan struct{} {
					if cursor == testCursor {
						return hold
					}
					return nil
				},
				cut: func(cursor string) bool { return tc.cut && cursor == testCursor },
			}
			c := api.start(tc.vars)
			accustom(t, c)
			p, err := c.Fetch(t.Context(), bridge.Position{Cursor: testCursor})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Release()
			if !p.ArrivedAt.IsZero() || p.Next != "c9" {
				t.Fatalf("page arrived at %v with next %q, want it on its way, with c9", p.ArrivedAt, p.Next)
			}
			if tc.rest != "never" {
				// The request behind it has its answer before the body breaks.
				behind, err := c.Fetch(t.Context(), bridge.Position{Cursor: p.Next})
				if err != nil {
					t.Fatal(err)
				}
				defer behind.Release()
				close(hold)
			}
			f := wantFault(t, c.Decode(p))
			if f.Class != tc.class || f.Code != tc.code || f.Reason != tc.reason || !strings.Contains(f.Error(), tc.say) {
				t.Errorf("got class %v code %q reason %q %q, want %v %q %q %q", f.Class, f.Code, f.Reason, f, tc.class, tc.code, tc.reason, tc.say)
			}
			if !strings.Contains(f.Error(), "fetch page at cursor "+bridge.CursorHash(testCursor)) || errors.Is(f, context.DeadlineExceeded) {
				t.Errorf("got %q, want a fault of its own that names the page", f)
			}
			if len(p.Events) != 0 || p.Items != 0 {
				t.Errorf("%d events of a broken page", len(p.Events))
			}
			// Whoever was wrong once is not believed at once.
			later, err := c.Fetch(t.Context(), bridge.Position{Cursor: "c20"})
			if err != nil {
				t.Fatal(err)
			}
			defer later.Release()
			if later.ArrivedAt.IsZero() {
				t.Error("the page after a broken one is early")
			}
		})
	}
}

// TestEarlyPagesAreGivenUp releases, cancels and closes with bodies on their
// way that would never come. Goroutines left behind fail the package.
func TestEarlyPagesAreGivenUp(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) (c *exportapi.Client, gone <-chan string) {
		ended := make(chan string, 100)
		api := &streamed{t: t, page: cursorFirst, gone: ended, held: func(cursor string) <-chan struct{} {
			if number(cursor) < 3 {
				return nil
			}
			return make(chan struct{})
		}}
		c = api.start(map[string]string{"EXPORT_TIMEOUT": "10m"})
		accustom(t, c)
		return c, ended
	}
	early := func(ctx context.Context, t *testing.T, c *exportapi.Client, n int) *bridge.Page {
		t.Helper()
		p, err := c.Fetch(ctx, bridge.Position{Cursor: fmt.Sprint("c", n)})
		if err != nil {
			t.Fatal(err)
		}
		if !p.ArrivedAt.IsZero() {
			t.Fatal("the page is not early")
		}
		return p
	}
	t.Run("released", func(t *testing.T) {
		t.Parallel()
		c, gone := setup(t)
		for n := range 10 {
			p := early(t.Context(), t, c, 10+n)
			p.Release()
			p.Release()
			<-gone
		}
		for range 3 {
			a, b := early(t.Context(), t, c, 20), early(t.Context(), t, c, 21)
			b.Release()
			if cursor := <-gone; cursor != "c21" {
				t.Errorf("%s has ended, want c21", cursor)
			}
			a.Release()
			<-gone
		}
	})
	t.Run("released while room is made", func(t *testing.T) {
		t.Parallel()
		c, gone := setup(t)
		pages := []*bridge.Page{early(t.Context(), t, c, 10), early(t.Context(), t, c, 11), early(t.Context(), t, c, 12)}
		fourth := make(chan error)
		go func() { // reads the oldest
			p, err := c.Fetch(t.Context(), bridge.Position{Cursor: "c13"})
			if err == nil {
				p.Release()
			}
			fourth <- err
		}()
		pages[0].Release()
		if err := <-fourth; err != nil {
			t.Errorf("the fourth request: %v", err)
		}
		pages[1].Release()
		pages[2].Release()
		for range 4 {
			<-gone
		}
	})
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		c, gone := setup(t)
		a, b := early(t.Context(), t, c, 10), early(t.Context(), t, c, 11)
		a.Release()
		c.Close()
		<-gone
		<-gone
		b.Release()
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		c, gone := setup(t)
		ctx, cancel := context.WithCancel(t.Context())
		a, b := early(ctx, t, c, 10), early(ctx, t, c, 11)
		result := make(chan error, 1)
		go func() { result <- c.Decode(a) }()
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("decode: %v, want context.Canceled", err)
		}
		if err := c.Decode(b); !errors.Is(err, context.Canceled) {
			t.Errorf("decode of the second: %v, want context.Canceled", err)
		}
		if _, err := c.Fetch(ctx, bridge.Position{Cursor: "c12"}); !errors.Is(err, context.Canceled) {
			t.Errorf("fetch: %v, want context.Canceled", err)
		}
		a.Release()
		b.Release()
		<-gone
		<-gone
	})
	t.Run("cancelled while room is made", func(t *testing.T) {
		t.Parallel()
		c, gone := setup(t)
		ctx, cancel := context.WithCancel(t.Context())
		pages := []*bridge.Page{early(ctx, t, c, 10), early(ctx, t, c, 11), early(ctx, t, c, 12)}
		result := make(chan error, 1)
		go func() {
			_, err := c.Fetch(ctx, bridge.Position{Cursor: "c13"})
			result <- err
		}()
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("fetch: %v, want context.Canceled", err)
		}
		for _, p := range pages {
			p.Release()
			<-gone
		}
	})
}

// TestEveryEarlyRequestIsReported wants one report for each request, when its
// body has ended.
func TestEveryEarlyRequestIsReported(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	api := &streamed{t: t, page: cursorFirst,
		held: func(cursor string) <-chan struct{} {
			if cursor == "c10" {
				return hold
			}
			return nil
		},
		cut: func(cursor string) bool { return cursor == "c10" },
	}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	cfg := config(t, map[string]string{"EXPORT_URL": server.URL})
	var mu sync.Mutex
	var reports []error
	cfg.Report = func(err error) {
		mu.Lock()
		defer mu.Unlock()
		reports = append(reports, err)
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(reports)
	}
	c := connect(t, cfg)
	accustom(t, c)
	p, err := c.Fetch(t.Context(), bridge.Position{Cursor: "c10"})
	if err != nil || !p.ArrivedAt.IsZero() {
		t.Fatalf("got %v, want a page on its way", err)
	}
	defer p.Release()
	if n := count(); n != 3 {
		t.Errorf("%d reports while a fourth body is on its way, want 3", n)
	}
	close(hold)
	_ = wantFault(t, c.Decode(p))
	if n := count(); n != 4 || reports[3] == nil {
		t.Errorf("%d reports, the last %v, want 4 and a fault", n, reports[n-1])
	}
}

// TestEarlyMemory decodes pages in one goroutine and keeps some of them, while
// bodies in all encodings come and go in another.
func TestEarlyMemory(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one := &streamed{t: t, page: cursorFirst, encoding: []string{"", "gzip", "zstd"}[number(r.URL.Query().Get("cursor"))%3]}
		one.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	c := connect(t, config(t, map[string]string{"EXPORT_URL": server.URL}))
	const pages = 80
	var kept []*bridge.Page
	n := 0
	for p := range fetchAhead(t.Context(), t, c, pages, 6) {
		if n%7 == 3 {
			p.Release()
			n++
			continue
		}
		if err := c.Decode(p); err != nil {
			t.Fatal(err)
		}
		kept = append(kept, p)
		if len(kept) == 5 {
			for _, p := range kept {
				head, rest := cursorFirst(p.At.Cursor)
				if !bytes.Equal(p.Body, []byte(head+rest)) {
					t.Errorf("page at %q has another body", p.At.Cursor)
				}
				p.Release()
			}
			kept = kept[:0]
		}
		n++
	}
	for _, p := range kept {
		p.Release()
	}
}

// TestSlowPagesAreWaitedFor: where pages take a good part of EXPORT_TIMEOUT,
// several at once would come too late.
func TestSlowPagesAreWaitedFor(t *testing.T) {
	t.Parallel()
	api := &streamed{t: t, page: cursorFirst, held: func(cursor string) <-chan struct{} {
		if cursor != "c10" {
			return nil
		}
		hold := make(chan struct{}) // from the request on: an eighth and some
		time.AfterFunc(1100*time.Millisecond, func() { close(hold) })
		return hold
	}}
	c := api.start(map[string]string{"EXPORT_TIMEOUT": "8s"})
	accustom(t, c)
	p, err := c.Fetch(t.Context(), bridge.Position{Cursor: "c10"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	if err := c.Decode(p); err != nil {
		t.Fatal(err)
	}
	next, err := c.Fetch(t.Context(), bridge.Position{Cursor: p.Next})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Release()
	if next.ArrivedAt.IsZero() {
		t.Error("the page behind a slow one is early")
	}
}
