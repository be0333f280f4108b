package conformance

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
)

const (
	// longItems fill a page that is on its way for a while: 45 KB.
	longItems = 500
	// habit is how many pages make a source believe that they begin with
	// their cursor.
	habit = 3
)

// arrivalCases are the sentences about pages whose bodies arrive behind Fetch.
var arrivalCases = []sourceCase{
	{"the body may be on its way when fetch returns", sourceArriving},
	{"only of a page that leads on, has a cursor and is no small one", sourceNotArriving},
	{"what ends a body early is the fault that it would have been", sourceBrokenArriving},
	{"the context counts until the body has arrived", sourceCancelledArriving},
	{"release ends what is on its way", sourceReleasedArriving},
	{"requests leave before bodies have arrived, and pages keep their order", sourceOverlapArriving},
	{"at most three bodies are on their way at once", sourceThreeArriving},
}

// longPage returns a page that begins with its cursor.
func longPage(next string, first int) string {
	return fmt.Sprintf(`{"nextCursor":%q,"items":[%s],"metadata":{"nextCursor":"decoy"}}`, next, itemBodies(first, longItems))
}

// accustom lets the source read some pages that begin with their cursor.
func accustom(t *testing.T, f SourceFixture) {
	t.Helper()
	for n := range habit {
		f.Serve(always(bridgetest.Answer{Body: longPage(fmt.Sprint("next ", n), 0)}))
		p := mustFetch(t, f.Source, bridge.Position{Cursor: fmt.Sprint("habit ", n)})
		mustDecode(t, f.Source, p)
		p.Release()
	}
}

// fetchArriving fetches a page whose body waits for rest.
func fetchArriving(ctx context.Context, t *testing.T, f SourceFixture, a bridgetest.Answer) *bridge.Page {
	t.Helper()
	f.Serve(always(a))
	p, err := f.Source.Fetch(ctx, bridge.Position{Cursor: "here"})
	if err != nil {
		t.Fatalf("fetch of a page on its way: %v", err)
	}
	return p
}

// wantItems demands a long page's items.
func wantItems(t *testing.T, p *bridge.Page, first int) {
	t.Helper()
	if p.Items != longItems || len(p.Events) != longItems {
		t.Fatalf("page at %q has %d items and %d events, want %d", p.At.Cursor, p.Items, len(p.Events), longItems)
	}
	for i := range p.Events {
		if want := itemBody(first + i); string(p.Events[i].Raw) != want || p.Events[i].Index != i {
			t.Fatalf("page at %q, item %d is %q with index %d, want %q", p.At.Cursor, i, p.Events[i].Raw, p.Events[i].Index, want)
		}
	}
}

func sourceArriving(t *testing.T, f SourceFixture) {
	accustom(t, f)
	body, rest := longPage("there", 7), make(chan struct{})
	p := fetchArriving(patiently(t), t, f, bridgetest.Answer{Body: body, Rest: rest})
	defer p.Release()
	if !p.ArrivedAt.IsZero() || p.Body != nil || len(p.Events) > 0 {
		t.Errorf("page arrived at %v with %d bytes before the server had sent them", p.ArrivedAt, len(p.Body))
	}
	if p.Next != "there" || p.Tail() || p.Size < bridge.SmallBody || p.RequestedAt.IsZero() {
		t.Errorf("page on its way has next %q, size %d, asked for at %v", p.Next, p.Size, p.RequestedAt)
	}
	close(rest)
	mustDecode(t, f.Source, p)
	wantItems(t, p, 7)
	if string(p.Body) != body || p.Size != int64(len(body)) || p.Next != "there" || p.ArrivedAt.Before(p.RequestedAt) {
		t.Errorf("decoded page has %d bytes, size %d, next %q, arrived at %v; want %d bytes", len(p.Body), p.Size, p.Next, p.ArrivedAt, len(body))
	}
}

// sourceNotArriving holds bodies back whose pages must not be handed out
// before they have arrived.
func sourceNotArriving(t *testing.T, f SourceFixture) {
	for name, c := range map[string]struct {
		cursor, body string
	}{
		"no cursor in the request": {"", longPage("there", 0)},
		"the same cursor again":    {"here", longPage("here", 0)},
		"an empty cursor":          {"here", longPage("", 0)},
		"null":                     {"here", `{"nextCursor":null,"items":[` + itemBodies(0, longItems) + `]}`},
		"no cursor":                {"here", `{"items":[` + itemBodies(0, longItems) + `]}`},
		"another member so called": {"here", `{"metadata":{"nextCursor":"decoy","x":"\"},\"nextCursor\":\"decoy\",\""},"items":[` + itemBodies(0, longItems) + `]}`},
		"a small page":             {"here", `{"nextCursor":"there","items":[` + itemBody(1) + `]}`},
		"an empty page":            {"here", `{"nextCursor":"there","items":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			accustom(t, f)
			rest := make(chan struct{})
			f.Serve(always(bridgetest.Answer{Body: c.body, Rest: rest}))
			fetched := make(chan *bridge.Page, 1)
			go func() {
				defer close(fetched)
				p, err := fetch(t, f.Source, bridge.Position{Cursor: c.cursor})
				if err != nil {
					t.Errorf("fetch: %v", err)
					return
				}
				fetched <- p
			}()
			early := false
			select {
			case p, ok := <-fetched:
				if early = ok; early {
					t.Errorf("handed out before its body had arrived, with next %q", p.Next)
					p.Release()
				}
			case <-time.After(moment):
			}
			close(rest)
			if p := <-fetched; p != nil {
				if string(p.Body) != c.body || p.ArrivedAt.IsZero() || p.Size != int64(len(c.body)) {
					t.Errorf("page has %d bytes, size %d, arrived at %v; want %d bytes", len(p.Body), p.Size, p.ArrivedAt, len(c.body))
				}
				mustDecode(t, f.Source, p)
				p.Release()
			}
		})
	}
}

// sourceBrokenArriving breaks a body when the request behind it has its answer.
func sourceBrokenArriving(t *testing.T, f SourceFixture) {
	f.Serve(always(bridgetest.Answer{Body: longPage("there", 0), Cut: true}))
	_, err := fetch(t, f.Source, bridge.Position{})
	want, ok := errors.AsType[*bridge.Fault](err)
	if !ok {
		t.Fatalf("a body that broke off gives %v, want a Fault", err)
	}
	accustom(t, f)
	rest := make(chan struct{})
	p := fetchArriving(patiently(t), t, f, bridgetest.Answer{Body: longPage("there", 0), Cut: true, Rest: rest})
	f.Serve(always(bridgetest.Answer{Body: longPage("elsewhere", 9)}))
	behind := mustFetch(t, f.Source, bridge.Position{Cursor: p.Next})
	close(rest)
	got, ok := errors.AsType[*bridge.Fault](f.Source.Decode(p))
	if !ok || got.Class != want.Class || got.Code != want.Code || got.Reason != want.Reason {
		t.Errorf("decode returned %+v, want what fetch returned: %+v", got, want)
	}
	if len(p.Events) != 0 || p.Items != 0 || !p.ArrivedAt.IsZero() {
		t.Errorf("the page has %d events, %d items and arrived at %v, want none and never", len(p.Events), p.Items, p.ArrivedAt)
	}
	p.Release()
	behind.Release()

	last := mustFetch(t, f.Source, bridge.Position{Cursor: "here"})
	defer last.Release()
	mustDecode(t, f.Source, last)
	wantItems(t, last, 9)
}

func sourceCancelledArriving(t *testing.T, f SourceFixture) {
	accustom(t, f)
	ctx, cancel := context.WithCancel(patiently(t))
	defer cancel()
	p := fetchArriving(ctx, t, f, bridgetest.Answer{Body: longPage("there", 0), Rest: make(chan struct{})})
	defer p.Release()
	result := make(chan error, 1)
	go func() { result <- f.Source.Decode(p) }()
	cancel()
	if err := receive(t, result, "Decode after the context was cancelled"); !errors.Is(err, context.Canceled) {
		t.Errorf("Decode returned %v, want context.Canceled", err)
	}
}

// sourceReleasedArriving leaves nothing behind that a server would wait for.
func sourceReleasedArriving(t *testing.T, f SourceFixture) {
	accustom(t, f)
	for range 2 * habit {
		p := fetchArriving(patiently(t), t, f, bridgetest.Answer{Body: longPage("there", 0), Rest: make(chan struct{})})
		p.Release()
		p.Release()
	}
	f.Serve(always(bridgetest.Answer{Body: longPage("there", 3)}))
	p := mustFetch(t, f.Source, bridge.Position{Cursor: "here"})
	defer p.Release()
	mustDecode(t, f.Source, p)
	wantItems(t, p, 3)
}

// sourceOverlapArriving lets each body go on when the request behind it has
// come: a source that waits for bodies first waits for ever.
func sourceOverlapArriving(t *testing.T, f SourceFixture) {
	const pages = 20
	var rest [pages]chan struct{}
	for n := range rest {
		rest[n] = make(chan struct{})
	}
	f.Serve(func(at bridge.Position) bridgetest.Answer {
		n, _ := strconv.Atoi(at.Cursor) // 0 on the first page, which has none
		a := bridgetest.Answer{Body: longPage(fmt.Sprint(n+1), n)}
		if n > 0 {
			close(rest[n-1])
		}
		if n > habit && n < pages-1 {
			a.Rest = rest[n]
		}
		return a
	})
	fetched := make(chan *bridge.Page, pages)
	go func() {
		defer close(fetched)
		at := bridge.Position{}
		for range pages {
			p, err := fetch(t, f.Source, at)
			if err != nil {
				t.Errorf("fetch at %q: %v", at.Cursor, err)
				return
			}
			at.Cursor = p.Next
			fetched <- p
		}
	}()
	n := 0
	for p := range fetched {
		mustDecode(t, f.Source, p)
		wantItems(t, p, n)
		p.Release()
		n++
	}
	if n != pages {
		t.Errorf("%d pages arrived, want %d", n, pages)
	}
}

// sourceThreeArriving decodes nothing before all requests have left.
func sourceThreeArriving(t *testing.T, f SourceFixture) {
	accustom(t, f)
	const pages = 5
	var rest [pages]chan struct{}
	for n := range rest {
		rest[n] = make(chan struct{})
	}
	asked := make(chan int, pages)
	f.Serve(func(at bridge.Position) bridgetest.Answer {
		n, _ := strconv.Atoi(at.Cursor)
		asked <- n
		return bridgetest.Answer{Body: longPage(fmt.Sprint(n+1), n), Rest: rest[n]}
	})
	fetched := make(chan *bridge.Page, pages)
	go func() {
		defer close(fetched)
		for n := range pages {
			p, err := fetch(t, f.Source, bridge.Position{Cursor: fmt.Sprint(n)})
			if err != nil {
				t.Errorf("fetch at %d: %v", n, err)
				return
			}
			fetched <- p
		}
	}()
	for n := range bridgetest.MaxArriving {
		receive(t, asked, fmt.Sprint("request ", n))
	}
	for n := bridgetest.MaxArriving; n < pages; n++ {
		select {
		case <-asked:
			t.Errorf("request %d left with %d bodies on their way", n, bridgetest.MaxArriving)
		case <-time.After(moment):
		}
		close(rest[n-bridgetest.MaxArriving])
		receive(t, asked, fmt.Sprint("request ", n, " when a body has arrived"))
	}
	for n := pages - bridgetest.MaxArriving; n < pages; n++ {
		close(rest[n])
	}
	n := 0
	for p := range fetched {
		mustDecode(t, f.Source, p)
		wantItems(t, p, n)
		p.Release()
		n++
	}
}
