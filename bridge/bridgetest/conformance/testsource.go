package conformance

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
)

const (
	// patience bounds every call that must return. Real brokers need seconds to recover
	// from a fault.
	patience = 30 * time.Second
	// moment is how long a call must keep waiting to count as waiting.
	moment = 300 * time.Millisecond
)

// SourceFixture is a Source and its server.
type SourceFixture struct {
	// Source requests the resource "events" with the default names of fields and
	// parameters. Each Fetch makes one request.
	Source bridge.Source
	// Serve sets how the server answers all later requests. The answer
	// function is called on the server's goroutines.
	Serve func(answer func(asked bridge.Position) bridgetest.Answer)
}

// TestSource checks a Source against each sentence of its contract.
func TestSource(t *testing.T, newFixture func(t *testing.T) SourceFixture) {
	cases := []sourceCase{
		{"fetch knows the cursor that decode finds", sourceKnowsNext},
		{"the cursor goes out byte for byte", sourceCursorVerbatim},
		{"bounds go without a cursor, and always in a window", sourceBounds},
		{"a first page has arrived as a whole", sourceWholeBody},
		{"errors are faults", sourceErrorsAreFaults},
		{"a cancelled context returns its error", sourceCancelled},
		{"decode sets events, items and source", sourceDecodes},
		{"items are untouched bytes of the body", sourceBytesUntouched},
		{"an unpublishable item is marked, not dropped", sourceDefects},
		{"a body that is not exactly one page is a fault", sourceNotAPage},
		{"an empty page is a page", sourceEmptyPage},
		{"the caller releases the page in any case", sourceRelease},
		{"decode runs beside a later fetch", sourceOverlap},
	}
	for _, c := range cases {
		t.Run(c.sentence, func(t *testing.T) { c.test(t, newFixture(t)) })
	}
}

// sourceCase is a sentence of the contract with its test.
type sourceCase struct {
	sentence string
	test     func(*testing.T, SourceFixture)
}

// hostileCursors are tokens that a careless client alters.
var hostileCursors = []string{
	"plain", "a+b", "a/b=", "c%2Bd", "100%", "a&b=c", "#frag", "?q", " lead and trail ", "tab\there",
	"ключ-日本-🙂", `quo"te\slash`, "+", "%", "null", "0", "a;b", "<&>", "\u2028",
}

func sourceKnowsNext(t *testing.T, f SourceFixture) {
	const items = `"items":[{"eventId":"1","timestamp":1,"nextCursor":"decoy"}]`
	const metadata = `"metadata":{"nextCursor":"decoy","x":"\"nextCursor\":\"decoy\""}`
	for name, c := range map[string]struct{ body, next string }{
		"last":               {`{` + metadata + `,` + items + `,"nextCursor":"real"}`, "real"},
		"last, with spaces":  {"{" + items + ",\n \"nextCursor\" : \"real\"\n}\n", "real"},
		"first":              {`{"nextCursor":"real",` + items + `,` + metadata + `}`, "real"},
		"middle":             {`{` + items + `,"nextCursor":"real",` + metadata + `}`, "real"},
		"escaped":            {`{` + items + `,"nextCursor":"r\u0065\/\"a\\l"}`, `re/"a\l`},
		"escaped name":       {`{` + items + `,"next\u0043ursor":"real"}`, "real"},
		"surrogate pair":     {`{` + items + `,"nextCursor":"\ud83d\ude42"}`, "🙂"},
		"null":               {`{` + items + `,"nextCursor":null}`, ""},
		"empty":              {`{` + items + `,"nextCursor":""}`, ""},
		"absent":             {`{` + items + `}`, ""},
		"decoy last":         {`{"nextCursor":"real",` + items + `,"metadata":{"nextCursor":"decoy"}}`, "real"},
		"decoy in a string":  {`{"nextCursor":"real",` + items + `,"z":"\",\"nextCursor\":\"decoy\"}"}`, "real"},
		"absent, with decoy": {`{` + items + `,` + metadata + `}`, ""},
		"other case":         {`{` + items + `,"nextCursor":"real","nextcursor":"decoy"}`, "real"},
	} {
		t.Run(name, func(t *testing.T) {
			f.Serve(always(bridgetest.Answer{Body: c.body}))
			p := mustFetch(t, f.Source, bridge.Position{Cursor: "here"})
			defer p.Release()
			if p.Next != c.next {
				t.Errorf("Next after Fetch is %q, want %q", p.Next, c.next)
			}
			mustDecode(t, f.Source, p)
			if p.Next != c.next {
				t.Errorf("Next after Decode is %q, want %q", p.Next, c.next)
			}
		})
	}
}

func sourceCursorVerbatim(t *testing.T, f SourceFixture) {
	asked := make(chan string, 1)
	var next string
	f.Serve(func(at bridge.Position) bridgetest.Answer {
		asked <- at.Cursor
		return bridgetest.Answer{Body: pageBody(next, "")}
	})
	at := bridge.Position{}
	for _, next = range append(hostileCursors, strings.Repeat("long+", 1600)) {
		p := mustFetch(t, f.Source, at)
		if got := <-asked; got != at.Cursor {
			t.Errorf("the server was asked for cursor %q, want %q", got, at.Cursor)
		}
		if p.Next != next || p.At != at {
			t.Errorf("page is at %+v with next %q, want %+v and %q", p.At, p.Next, at, next)
		}
		mustDecode(t, f.Source, p)
		at = bridge.Position{Cursor: p.Next}
		p.Release()
	}
}

func sourceBounds(t *testing.T, f SourceFixture) {
	asked := make(chan bridge.Position, 1)
	f.Serve(func(at bridge.Position) bridgetest.Answer {
		asked <- at
		return bridgetest.Answer{Body: pageBody("", "")}
	})
	for _, c := range []struct{ at, want bridge.Position }{
		{bridge.Position{}, bridge.Position{}},
		{bridge.Position{Start: 5, End: 9}, bridge.Position{Start: 5, End: 9}},
		{bridge.Position{Cursor: "c", Start: 5, End: 9}, bridge.Position{Cursor: "c"}},
		{bridge.Position{Cursor: "c", Start: 5, End: 9, Window: true}, bridge.Position{Cursor: "c", Start: 5, End: 9}},
	} {
		mustFetch(t, f.Source, c.at).Release()
		got := <-asked
		got.Window = false // the request does not contain it
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("fetch at %+v asked otherwise (-want +got):\n%s", c.at, diff)
		}
	}
}

func sourceWholeBody(t *testing.T, f SourceFixture) {
	body := pageBody("n", itemBody(1)+","+itemBody(2))
	f.Serve(always(bridgetest.Answer{Body: body}))
	p := mustFetch(t, f.Source, bridge.Position{})
	if string(p.Body) != body {
		t.Errorf("Body after Fetch is %q, want %q", p.Body, body)
	}
	if p.RequestedAt.IsZero() || p.ArrivedAt.Before(p.RequestedAt) {
		t.Errorf("asked for at %v, arrived at %v", p.RequestedAt, p.ArrivedAt)
	}
	p.Release()

	f.Serve(always(bridgetest.Answer{Body: body, Cut: true}))
	if p, err := fetch(t, f.Source, bridge.Position{}); err == nil {
		p.Release()
		t.Error("Fetch accepted a body that was cut off")
	}
}

func sourceErrorsAreFaults(t *testing.T, f SourceFixture) {
	for name, a := range map[string]bridgetest.Answer{
		"outage": {Outage: true},
		"cut":    {Body: pageBody("n", itemBody(1)), Cut: true},
	} {
		f.Serve(always(a))
		_, err := fetch(t, f.Source, bridge.Position{Cursor: "c"})
		fault, ok := errors.AsType[*bridge.Fault](err)
		if !ok {
			t.Errorf("%s: error is %v, want a Fault", name, err)
			continue
		}
		if fault.Class != bridge.Transient || fault.Code == "" {
			t.Errorf("%s: fault has class %d and code %q, want Transient and a code", name, fault.Class, fault.Code)
		}
	}
	f.Serve(always(bridgetest.Answer{Body: pageBody("n", itemBody(1))}))
	mustFetch(t, f.Source, bridge.Position{Cursor: "c"}).Release()
}

func sourceCancelled(t *testing.T, f SourceFixture) {
	arrived := make(chan struct{}, 1)
	f.Serve(func(bridge.Position) bridgetest.Answer {
		arrived <- struct{}{}
		return bridgetest.Answer{Hang: true}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() {
		_, err := f.Source.Fetch(ctx, bridge.Position{})
		result <- err
	}()
	receive(t, arrived, "the request at the server")
	cancel()
	if err := receive(t, result, "Fetch after its context was cancelled"); !errors.Is(err, context.Canceled) {
		t.Errorf("Fetch returned %v, want context.Canceled", err)
	}
}

func sourceDecodes(t *testing.T, f SourceFixture) {
	const metadata = `"metadata":{"organization":{"name":"Org","slug":"org"},"workspace":{"name":"W","slug":"ws"},` +
		`"application":{"name":"A","slug":"app"}},"unknown":[1,{"items":[]}]`
	const bare = `{"EventId":"wrong","x":{"eventId":"wrong"},"eventId":"right","eventid":"wrong","timestamp":5,` +
		`"userId":null}`
	f.Serve(always(bridgetest.Answer{Body: `{` + metadata + `,"items":[` + itemBody(1) + ` , ` + itemBody(2) + `,` +
		bare + `],"nextCursor":"n"}`}))
	p := mustFetch(t, f.Source, bridge.Position{})
	defer p.Release()
	mustDecode(t, f.Source, p)
	if p.Items != 3 {
		t.Errorf("Items is %d, want 3", p.Items)
	}
	want := []bridge.Event{wantEvent(1), wantEvent(2), {
		Raw: []byte(bare), ID: []byte("right"), Time: 5,
	}}
	want[1].Index, want[2].Index = 1, 2
	if diff := cmp.Diff(want, p.Events); diff != "" {
		t.Errorf("Events differ (-want +got):\n%s", diff)
	}
	if want := (bridge.SourceIdentity{Organization: "org", Workspace: "ws", Application: "app"}); p.Source != want {
		t.Errorf("Source is %+v, want %+v", p.Source, want)
	}
}

func sourceBytesUntouched(t *testing.T, f SourceFixture) {
	items := []string{
		`{"eventId":"1","timestamp":1,"n":12345678901234567890123,"f":1.10,"e":1E+2}`,
		"{ \"timestamp\" : 2 ,\n\t\"eventId\":\"2\" , \"z\":1, \"a\":2 }",
		`{"eventId":"3","timestamp":3,"a":1,"a":2,"s":"\u0041\/\ud800<&>"}`,
		`{"eventId":"4","timestamp":4,"deep":[[{"items":[{"nextCursor":"x"}]}]],"huge":1e400}`,
		`{"eventId":"5","timestamp":5,"braces":"]}{[\"\\"}`,
	}
	f.Serve(always(bridgetest.Answer{Body: `{"items":[ ` + strings.Join(items, "\n,") + ` ],"nextCursor":"n"}`}))
	p := mustFetch(t, f.Source, bridge.Position{})
	defer p.Release()
	mustDecode(t, f.Source, p)
	if len(p.Events) != len(items) {
		t.Fatalf("decoded %d events, want %d", len(p.Events), len(items))
	}
	for i, want := range items {
		if got := string(p.Events[i].Raw); got != want {
			t.Errorf("item %d is %q, want %q", i, got, want)
		}
		if d := p.Events[i].Defect; d != bridge.DefectNone {
			t.Errorf("item %d has defect %q, want none", i, d)
		}
	}
	clear(p.Body)
	for i := range p.Events {
		if strings.Trim(string(p.Events[i].Raw), "\x00") != "" {
			t.Errorf("item %d is a copy, want bytes of the body", i)
		}
	}
}

func sourceDefects(t *testing.T, f SourceFixture) {
	items := []string{`{"eventId":"1","timestamp":1}`, `17`, `"text"`, `null`, `[]`, `{"eventId":"2"}`,
		`{"eventId":"3","timestamp":"soon"}`, "{\"eventId\":\"4\",\"timestamp\":4,\"text\":\"a\xff\"}"}
	want := []bridge.Defect{"", bridge.DefectNotObject, bridge.DefectNotObject, bridge.DefectNotObject,
		bridge.DefectNotObject, bridge.DefectTime, bridge.DefectTime, bridge.DefectBadText}
	f.Serve(always(bridgetest.Answer{Body: pageBody("n", strings.Join(items, ","))}))
	p := mustFetch(t, f.Source, bridge.Position{})
	defer p.Release()
	mustDecode(t, f.Source, p)
	if len(p.Events) != len(items) {
		t.Fatalf("decoded %d events, want %d", len(p.Events), len(items))
	}
	for i, e := range p.Events {
		if e.Defect != want[i] || e.Index != i || string(e.Raw) != items[i] {
			t.Errorf("item %s: defect %q, index %d, raw %q; want %q, %d and the item", items[i], e.Defect, e.Index, e.Raw,
				want[i], i)
		}
	}
}

func sourceNotAPage(t *testing.T, f SourceFixture) {
	for name, body := range map[string]string{
		"nothing":                     "",
		"null":                        "null",
		"array":                       "[]",
		"string":                      `"items"`,
		"HTML":                        "<html><body>Sign in</body></html>",
		"no items":                    `{"events":[{"eventId":"1"}],"nextCursor":"n"}`,
		"items object":                `{"items":{},"nextCursor":"n"}`,
		"items twice":                 `{"items":[],"items":[{}],"nextCursor":"n"}`,
		"items in other case":         `{"Items":[],"nextCursor":"n"}`,
		"cursor fraction":             `{"items":[],"nextCursor":7.5}`,
		"cursor object":               `{"items":[],"nextCursor":{}}`,
		"cursor false":                `{"items":[],"nextCursor":false}`,
		"cursor twice":                `{"items":[],"nextCursor":"a","nextCursor":"b"}`,
		"cursor twice, one escaped":   `{"items":[],"next\u0043ursor":"a","nextCursor":"b"}`,
		"cursor not UTF-8":            "{\"items\":[],\"nextCursor\":\"a\xffb\"}",
		"cursor with lone surrogate":  `{"items":[],"nextCursor":"a\ud800b"}`,
		"cursor with unknown escape":  `{"items":[],"nextCursor":"a\qb"}`,
		"object cut":                  `{"items":[],"nextCursor":"n"`,
		"item cut":                    `{"items":[{"eventId":"1"`,
		"two objects":                 `{"items":[],"nextCursor":"n"}{"items":[],"nextCursor":"m"}`,
		"trailing text":               `{"items":[],"nextCursor":"n"} ok`,
		"comma at the end of items":   `{"items":[{"eventId":"1","timestamp":1},],"nextCursor":"n"}`,
		"comma at the end of members": `{"items":[],"nextCursor":"n",}`,
		"broken item":                 `{"items":[{"eventId":1 2}],"nextCursor":"n"}`,
		"broken unknown member":       `{"x":{"y":},"items":[],"nextCursor":"n"}`,
	} {
		t.Run(name, func(t *testing.T) {
			f.Serve(always(bridgetest.Answer{Body: body}))
			p, err := fetch(t, f.Source, bridge.Position{Cursor: "c"})
			if err == nil {
				next := p.Next
				err = f.Source.Decode(p)
				if err == nil {
					t.Errorf("accepted as a page with %d items and next %q", p.Items, next)
				}
				p.Release()
			}
			if _, ok := errors.AsType[*bridge.Fault](err); err != nil && !ok {
				t.Errorf("error is %v, want a Fault", err)
			}
		})
	}
}

func sourceEmptyPage(t *testing.T, f SourceFixture) {
	for body, next := range map[string]string{
		pageBody("", ""): "", pageBody("n", ""): "n",
		`{"items":null,"nextCursor":"n"}`: "n", `{"items":null,"nextCursor":null}`: "", `{"nextCursor":"n"}`: "n",
		`{"nextCursor":""}`: "",
	} {
		f.Serve(always(bridgetest.Answer{Body: body}))
		p := mustFetch(t, f.Source, bridge.Position{Cursor: "c"})
		mustDecode(t, f.Source, p)
		if p.Items != 0 || len(p.Events) != 0 || p.Next != next {
			t.Errorf("page has %d items, %d events, next %q; want none and %q", p.Items, len(p.Events), p.Next, next)
		}
		p.Release()
	}
}

// sourceRelease keeps one page while others are fetched and released. If the memory of that
// page is reused too early, its bytes change.
func sourceRelease(t *testing.T, f SourceFixture) {
	n := 0
	f.Serve(func(bridge.Position) bridgetest.Answer {
		n++
		return bridgetest.Answer{Body: pageBody(fmt.Sprint("c", n), itemBody(n))}
	})
	held := mustFetch(t, f.Source, bridge.Position{})
	mustDecode(t, f.Source, held)
	for range 8 {
		p := mustFetch(t, f.Source, bridge.Position{Cursor: "c"})
		mustDecode(t, f.Source, p)
		if want := itemBody(n); string(p.Events[0].Raw) != want {
			t.Fatalf("page %d holds %q, want %q", n, p.Events[0].Raw, want)
		}
		p.Release()
		p.Release()
	}
	if want := itemBody(1); string(held.Events[0].Raw) != want {
		t.Errorf("the page that was not released now holds %q, want %q", held.Events[0].Raw, want)
	}
	held.Release()

	f.Serve(always(bridgetest.Answer{Body: `{"items":[{"eventId":"1","timestamp":1},17`}))
	if p, err := fetch(t, f.Source, bridge.Position{}); err == nil {
		if f.Source.Decode(p) == nil {
			t.Error("Decode accepted half a page")
		}
		p.Release()
	}
	f.Serve(always(bridgetest.Answer{Body: pageBody("n", itemBody(3))}))
	p := mustFetch(t, f.Source, bridge.Position{})
	defer p.Release()
	mustDecode(t, f.Source, p)
	if diff := cmp.Diff([]bridge.Event{wantEvent(3)}, p.Events); diff != "" {
		t.Errorf("the page after a bad one differs (-want +got):\n%s", diff)
	}
}

func sourceOverlap(t *testing.T, f SourceFixture) {
	f.Serve(func(at bridge.Position) bridgetest.Answer {
		n, _ := strconv.Atoi(at.Cursor) // 0 for the first page, which has no cursor
		return bridgetest.Answer{Body: pageBody(fmt.Sprint(n+1), itemBody(n))}
	})
	const pages = 20
	fetched := make(chan *bridge.Page, 2)
	go func() {
		defer close(fetched)
		at := bridge.Position{}
		for range pages {
			p, err := f.Source.Fetch(t.Context(), at)
			if err != nil {
				t.Errorf("fetch: %v", err)
				return
			}
			at = bridge.Position{Cursor: p.Next}
			fetched <- p
		}
	}()
	n := 0
	for p := range fetched {
		mustDecode(t, f.Source, p)
		if diff := cmp.Diff([]bridge.Event{wantEvent(n)}, p.Events); diff != "" {
			t.Errorf("page %d differs (-want +got):\n%s", n, diff)
		}
		p.Release()
		n++
	}
	if n != pages {
		t.Errorf("%d pages arrived, want %d", n, pages)
	}
}

func always(a bridgetest.Answer) func(bridge.Position) bridgetest.Answer {
	return func(bridge.Position) bridgetest.Answer { return a }
}

func fetch(t *testing.T, s bridge.Source, at bridge.Position) (*bridge.Page, error) {
	t.Helper()
	return s.Fetch(patiently(t), at)
}

// patiently returns a context for calls that must return, and for what may follow them.
func patiently(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func mustFetch(t *testing.T, s bridge.Source, at bridge.Position) *bridge.Page {
	t.Helper()
	p, err := fetch(t, s, at)
	if err != nil {
		t.Fatalf("fetch at %+v: %v", at, err)
	}
	return p
}

// mustDecode must be called on the test's goroutine.
func mustDecode(t *testing.T, s bridge.Source, p *bridge.Page) {
	t.Helper()
	if err := s.Decode(p); err != nil {
		t.Fatalf("decode page at %+v: %v", p.At, err)
	}
}

// receive waits for a value. At the timeout it ends the test with the name of the value.
func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var v T
	select {
	case v = <-from:
	case <-timer.C:
		t.Fatalf("waited %s in vain for %s", patience, what)
	}
	return v
}
