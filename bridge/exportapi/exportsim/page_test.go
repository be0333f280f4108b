package exportsim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge/exportapi/exportsim"
)

var contracts = []exportsim.EndOfResults{
	exportsim.EmptyCursor, exportsim.NullCursor, exportsim.NoCursor, exportsim.EmptyItems,
}

var schemas = []exportsim.Schema{exportsim.Schema08, exportsim.Schema07, exportsim.Schema05}

func TestPagingToTheEnd(t *testing.T) {
	t.Parallel()
	for _, schema := range schemas {
		for _, contract := range contracts {
			t.Run(fmt.Sprintf("%s/%s", schema, contract), func(t *testing.T) {
				t.Parallel()
				_, api := newServer(t, exportsim.Config{
					Seed: 7, Events: 1045, Schema: schema, EndOfResults: contract, BasePath: "/export",
				})
				items, last := api.drain("/events", params("pageSize", "250"))
				checkSequence(t, items, 0, 1045)
				switch contract {
				case exportsim.EmptyCursor:
					if string(last.Next) != `""` {
						t.Errorf("last nextCursor is %s, want an empty string", last.Next)
					}
				case exportsim.NullCursor:
					if string(last.Next) != "null" {
						t.Errorf("last nextCursor is %s, want null", last.Next)
					}
				case exportsim.NoCursor:
					if last.Next != nil {
						t.Errorf("last page has a nextCursor: %s", last.Next)
					}
				case exportsim.EmptyItems:
					if last.cursor() == "" || len(last.Items) != 0 {
						t.Errorf("last page: cursor %q and %d items, want a cursor and none", last.cursor(), len(last.Items))
					}
				}
				sessions, _ := api.drain("/session", params("pageSize", "100"))
				if want := 1045 / 64 * 8; len(sessions) != want {
					t.Errorf("%d sessions, want %d", len(sessions), want)
				}
				users, _ := api.drain("/user", nil)
				if want := 1045/32 + 1; len(users) != want {
					t.Errorf("%d users, want %d", len(users), want)
				}
			})
		}
	}
}

func TestPageMembers(t *testing.T) {
	t.Parallel()
	order := func(t *testing.T, raw []byte) []string {
		decoder := json.NewDecoder(bytes.NewReader(raw))
		var names []string
		if _, err := decoder.Token(); err != nil {
			t.Fatal(err)
		}
		for decoder.More() {
			name, err := decoder.Token()
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, name.(string))
			var skipped json.RawMessage
			if err := decoder.Decode(&skipped); err != nil {
				t.Fatal(err)
			}
		}
		return names
	}
	for first, want := range map[bool][]string{
		false: {"items", "metadata", "nextCursor"},
		true:  {"nextCursor", "items", "metadata"},
	} {
		h := newHandler(t, exportsim.Config{Events: 10, CursorFirst: first, Application: "Other App"})
		recorder := recordStatus(h, "/events?pageSize=3")
		if diff := cmp.Diff(want, order(t, recorder.Body.Bytes())); diff != "" {
			t.Errorf("CursorFirst %v: members (-want +got):\n%s", first, diff)
		}
		metadata := decodePage(t, recorder.Body.Bytes()).Metadata
		if diff := cmp.Diff(map[string]string{
			"organizationName": "Acme Corp", "organizationSlug": "acme-corp",
			"workspaceName": "Storefront", "workspaceSlug": "storefront",
			"applicationName": "Other App", "applicationSlug": "other-app",
		}, metadata); diff != "" {
			t.Errorf("metadata (-want +got):\n%s", diff)
		}
	}
	h := newHandler(t, exportsim.Config{Events: 640})
	for _, path := range []string{"/session", "/user"} {
		got := order(t, recordStatus(h, path+"?pageSize=3").Body.Bytes())
		if diff := cmp.Diff([]string{"items", "nextCursor"}, got); diff != "" {
			t.Errorf("%s: members (-want +got):\n%s", path, diff)
		}
	}
}

func TestDefaultPageSize(t *testing.T) {
	t.Parallel()
	h := newHandler(t, exportsim.Config{Events: 1000})
	if got := len(decodePage(t, recordStatus(h, "/events").Body.Bytes()).Items); got != 100 {
		t.Errorf("%d items without pageSize, want 100", got)
	}
}

// Two simulators with the same configuration are the same API.
func TestSameBytesFromTheSameConfig(t *testing.T) {
	t.Parallel()
	for _, schema := range schemas {
		c := exportsim.Config{Seed: 42, Events: 700, Schema: schema}
		one, two := newHandler(t, c), newHandler(t, c)
		target := "/events?pageSize=200"
		for range 4 {
			a, b := recordStatus(one, target), recordStatus(two, target)
			if !bytes.Equal(a.Body.Bytes(), b.Body.Bytes()) {
				t.Fatalf("%s: different bytes for %s", schema, target)
			}
			p := decodePage(t, b.Body.Bytes())
			for _, item := range p.Items {
				i, _ := exportsim.IndexOf(item)
				if !bytes.Equal(item, one.Event(i)) {
					t.Fatalf("%s: event %d in the page is not Event(%d)", schema, i, i)
				}
			}
			target = "/events?pageSize=200&cursor=" + url.QueryEscape(p.cursor())
		}
		c.Seed = 43
		if bytes.Equal(newHandler(t, c).Event(5), one.Event(5)) {
			t.Errorf("%s: another seed makes the same event", schema)
		}
	}
}

// The page that is not full grows under the same request, keeps its items, and
// names a next cursor once it is full.
func TestTailGrowsInPlace(t *testing.T) {
	t.Parallel()
	for _, contract := range contracts[:3] {
		t.Run(string(contract), func(t *testing.T) {
			t.Parallel()
			h, api := newServer(t, exportsim.Config{Events: 120, EndOfResults: contract})
			second := params("pageSize", "100", "cursor", api.get("/events", nil).cursor())
			for _, step := range []struct{ grow, items int }{{0, 20}, {1, 21}, {30, 51}, {48, 99}} {
				h.Grow(step.grow)
				p := api.get("/events", second)
				checkSequence(t, p.Items, 100, 100+step.items)
				if p.cursor() != "" {
					t.Errorf("a page of %d items has cursor %q", step.items, p.cursor())
				}
			}
			h.Grow(1)
			full := api.get("/events", second)
			checkSequence(t, full.Items, 100, 200)
			if full.cursor() == "" {
				t.Fatal("a full page has no cursor")
			}
			// Nothing follows yet: the next page is empty and is the new tail.
			third := params("pageSize", "100", "cursor", full.cursor())
			if p := api.get("/events", third); len(p.Items) != 0 || p.cursor() != "" {
				t.Errorf("behind the end: %d items, cursor %q", len(p.Items), p.cursor())
			}
			h.Grow(5)
			checkSequence(t, api.get("/events", third).Items, 200, 205)
			checkSequence(t, api.get("/events", second).Items, 100, 200)
		})
	}
}

func TestEmptyItemsContract(t *testing.T) {
	t.Parallel()
	for _, fresh := range []bool{false, true} {
		h, api := newServer(t, exportsim.Config{
			Events: 130, EndOfResults: exportsim.EmptyItems, FreshCursor: fresh,
		})
		second := api.get("/events", params("cursor", api.get("/events", nil).cursor()))
		checkSequence(t, second.Items, 100, 130)
		asked := second.cursor()
		for range 3 {
			p := api.get("/events", params("cursor", asked))
			if len(p.Items) != 0 || p.cursor() == "" {
				t.Fatalf("at the end: %d items, cursor %q", len(p.Items), p.cursor())
			}
			if (p.cursor() != asked) != fresh {
				t.Errorf("FreshCursor %v, but the cursor is another one: %v", fresh, p.cursor() != asked)
			}
			asked = p.cursor()
		}
		h.Grow(7)
		checkSequence(t, api.get("/events", params("cursor", asked)).Items, 130, 137)
	}
}

func TestEmptyExport(t *testing.T) {
	t.Parallel()
	for _, contract := range contracts {
		h, api := newServer(t, exportsim.Config{EndOfResults: contract})
		if p := api.get("/events", nil); len(p.Items) != 0 {
			t.Errorf("%s: %d items in an empty export", contract, len(p.Items))
		}
		h.Grow(3)
		checkSequence(t, api.get("/events", nil).Items, 0, 3)
	}
}

func TestPageSizeMayChangeBetweenPages(t *testing.T) {
	t.Parallel()
	_, api := newServer(t, exportsim.Config{Events: 50})
	p := api.get("/events", params("pageSize", "7"))
	checkSequence(t, p.Items, 0, 7)
	p = api.get("/events", params("pageSize", "31", "cursor", p.cursor()))
	checkSequence(t, p.Items, 7, 38)
}

// Windows that touch share no event and leave none out, ties included: 40
// events share a millisecond here.
func TestWindowsAreHalfOpen(t *testing.T) {
	t.Parallel()
	const events = 2000
	h, api := newServer(t, exportsim.Config{Events: events, Every: 25 * time.Microsecond})
	var all []json.RawMessage
	from, end := start, start.Add(51*time.Millisecond)
	for from.Before(end) {
		to := from.Add(9 * time.Millisecond)
		items, _ := api.drain("/events", params("start", millis(from), "end", millis(to), "pageSize", "50"))
		for _, item := range items {
			i, _ := exportsim.IndexOf(item)
			if at := h.EventTime(i); at.Before(from) || !at.Before(to) {
				t.Fatalf("event %d at %s is outside %s to %s", i, at, from, to)
			}
		}
		all = append(all, items...)
		from = to
	}
	checkSequence(t, all, 0, events)
}

func TestWindowsOfSessionsAndUsers(t *testing.T) {
	t.Parallel()
	_, api := newServer(t, exportsim.Config{Events: 6400, Every: time.Second})
	middle := millis(start.Add(time.Hour))
	for path, field := range map[string]string{"/session": "closeTime", "/user": "lastModifiedTime"} {
		whole, _ := api.drain(path, params("pageSize", "1000"))
		before, _ := api.drain(path, params("end", middle, "pageSize", "1000"))
		after, _ := api.drain(path, params("start", middle, "pageSize", "1000"))
		if len(before) == 0 || len(after) == 0 || len(before)+len(after) != len(whole) {
			t.Errorf("%s: %d and %d items, %d in all", path, len(before), len(after), len(whole))
		}
		for i, item := range append(before, after...) {
			var at map[string]any
			if err := json.Unmarshal(item, &at); err != nil {
				t.Fatal(err)
			}
			early := at[field].(float64) < float64(start.Add(time.Hour).UnixMilli())
			if early != (i < len(before)) {
				t.Fatalf("%s %d: %s %v is on the wrong side of %s", path, i, field, at[field], middle)
			}
		}
	}
}

// A window that lies ahead is empty until events reach it.
func TestStartInTheFuture(t *testing.T) {
	t.Parallel()
	h, api := newServer(t, exportsim.Config{Events: 10, Every: time.Second})
	query := params("start", millis(start.Add(20*time.Second)))
	if p := api.get("/events", query); len(p.Items) != 0 {
		t.Fatalf("%d items from the future", len(p.Items))
	}
	h.Grow(15)
	checkSequence(t, api.get("/events", query).Items, 20, 25)
}

func TestEventFilter(t *testing.T) {
	t.Parallel()
	for _, schema := range schemas {
		_, api := newServer(t, exportsim.Config{Events: 2000, Schema: schema, ScanLimit: 40})
		member := "type"
		if schema != exportsim.Schema08 {
			member = "@type"
		}
		query := params("events", "leadGenerated", "events", "orderPlaced", "pageSize", "20")
		var got []json.RawMessage
		short, empty := 0, 0
		for {
			p := api.get("/events", query)
			got = append(got, p.Items...)
			if p.cursor() == "" {
				break
			}
			if len(p.Items) == 0 {
				empty++
			} else if len(p.Items) < 20 {
				short++
			}
			query.Set("cursor", p.cursor())
		}
		if short == 0 || empty == 0 {
			t.Errorf("%s: %d short and %d empty pages that go on, want some of both", schema, short, empty)
		}
		everything, _ := api.drain("/events", params("pageSize", "1000"))
		var want []json.RawMessage
		for _, item := range everything {
			switch payloadType(t, item, member) {
			case "leadGenerated", "orderPlaced":
				want = append(want, item)
			}
		}
		if !slices.EqualFunc(want, got, sameBytes) || len(want) < 50 {
			t.Errorf("%s: %d filtered events, want the same %d as in the whole export", schema, len(got), len(want))
		}
	}
}

// Where a page without items is the end of the results, none comes before it.
func TestEventFilterUnderEmptyItems(t *testing.T) {
	t.Parallel()
	_, api := newServer(t, exportsim.Config{Events: 2000, ScanLimit: 40, EndOfResults: exportsim.EmptyItems})
	query := params("events", "leadGenerated", "pageSize", "20")
	n := 0
	for p := api.get("/events", query); len(p.Items) > 0; p = api.get("/events", query) {
		n += len(p.Items)
		query.Set("cursor", p.cursor())
	}
	_, other := newServer(t, exportsim.Config{Events: 2000, ScanLimit: 40})
	all, _ := other.drain("/events", params("events", "leadGenerated", "pageSize", "20"))
	if n != len(all) || n < 10 {
		t.Errorf("%d events before the first empty page, want all %d", n, len(all))
	}
}

// The tail of a filtered page grows in place like any other.
func TestFilteredTail(t *testing.T) {
	t.Parallel()
	h, api := newServer(t, exportsim.Config{Events: 100, ScanLimit: 1000})
	query := params("events", "pageOpened", "pageSize", "1000")
	before := api.get("/events", query)
	h.Grow(500)
	after := api.get("/events", query)
	if len(after.Items) <= len(before.Items) {
		t.Fatalf("%d items, %d before the growth", len(after.Items), len(before.Items))
	}
	if !slices.EqualFunc(before.Items, after.Items[:len(before.Items)], sameBytes) {
		t.Error("the items that were there have changed")
	}
}

func TestConcurrentClients(t *testing.T) {
	t.Parallel()
	const events = 1500
	h, api := newServer(t, exportsim.Config{
		Seed: 3, Events: events, Gzip: true, OnRequest: func(*http.Request) {},
		Faults: exportsim.Faults{{Kind: "503", Probability: 0.1}},
	})
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			query, seen := params("pageSize", "100"), 0
			for {
				response, body, err := api.do("/events?" + query.Encode())
				if err != nil {
					t.Error(err)
					return
				}
				if response.StatusCode == http.StatusServiceUnavailable {
					continue
				}
				var p page
				if err := json.Unmarshal(body, &p); err != nil {
					t.Error(err)
					return
				}
				for _, item := range p.Items {
					if i, _ := exportsim.IndexOf(item); i != seen || !bytes.Equal(item, h.Event(i)) {
						t.Errorf("got event %d, want %d", i, seen)
						return
					}
					seen++
				}
				if p.cursor() == "" {
					break
				}
				query.Set("cursor", p.cursor())
				h.Stats()
			}
			if seen < events {
				t.Errorf("a client saw %d events, want at least %d", seen, events)
			}
		})
	}
	h.Grow(250)
	clients.Wait()
	stats := h.Stats()
	if stats.Requests != stats.ByStatus[200]+stats.ByStatus[503] || stats.Faults["503"] != stats.ByStatus[503] {
		t.Errorf("stats do not add up: %+v", stats)
	}
}

func sameBytes(a, b json.RawMessage) bool { return bytes.Equal(a, b) }

func payloadType(t *testing.T, item []byte, member string) string {
	t.Helper()
	var event struct {
		Payload map[string]any `json:"payload"`
	}
	if err := json.Unmarshal(item, &event); err != nil {
		t.Fatalf("event: %v: %s", err, item)
	}
	name, _ := event.Payload[member].(string)
	return name
}
