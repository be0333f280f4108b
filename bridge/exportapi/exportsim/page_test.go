package exportsim_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/exportsim"
)

var contracts = []exportsim.EndOfResults{
	exportsim.EmptyCursor, exportsim.NullCursor, exportsim.NoCursor, exportsim.EmptyItems,
}

var schemas = []exportsim.Schema{exportsim.Schema08, exportsim.Schema07, exportsim.Schema05}

// A page that is not full grows for the same request. It keeps its items, and names a next
// cursor once it is full.
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
			// Nothing follows yet: the next page is empty, and the new tail.
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
	h, api := newServer(t, exportsim.Config{Events: 130, EndOfResults: exportsim.EmptyItems})
	second := api.get("/events", params("cursor", api.get("/events", nil).cursor()))
	checkSequence(t, second.Items, 100, 130)
	at := params("cursor", second.cursor())
	for range 3 {
		if p := api.get("/events", at); len(p.Items) != 0 || p.cursor() != second.cursor() {
			t.Fatalf("at the end: %d items, cursor %q", len(p.Items), p.cursor())
		}
	}
	h.Grow(7)
	checkSequence(t, api.get("/events", at).Items, 130, 137)
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

// Adjacent windows share no event and omit none, also if events have equal times: here 40
// events share a millisecond.
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
			must.Do(t, json.Unmarshal(item, &at))
			early := at[field].(float64) < float64(start.Add(time.Hour).UnixMilli())
			if early != (i < len(before)) {
				t.Fatalf("%s %d: %s %v is on the wrong side of %s", path, i, field, at[field], middle)
			}
		}
	}
}

// A window in the future is empty until events reach it.
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

// If a page without items is the end of the results, no page before it is empty.
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

// The last page of a filtered list grows like any other.
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
			}
			if seen < events {
				t.Errorf("a client saw %d events, want at least %d", seen, events)
			}
		})
	}
	h.Grow(250)
	clients.Wait()
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
