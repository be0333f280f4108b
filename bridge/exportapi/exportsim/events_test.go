package exportsim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/exportsim"
)

func TestEventIDIsReversible(t *testing.T) {
	t.Parallel()
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for _, seed := range []uint64{0, 1, 42, math.MaxUint64} {
		for _, i := range []int{0, 1, 2, 63, 64, 999, 1_000_000, 1 << 40} {
			id := exportsim.EventID(seed, i)
			if !uuid.MatchString(id) || seen[id] {
				t.Errorf("id %s is not a UUID, or not the only one", id)
			}
			seen[id] = true
			if got, ok := exportsim.Index(id); !ok || got != i {
				t.Errorf("Index(%s) = %d, %v, want %d", id, got, ok, i)
			}
		}
	}
	valid := exportsim.EventID(1, 7)
	for _, id := range []string{
		"", "7", valid[:35], valid + "0", "00000000-0000-4000-8000-000000000000",
		"zzzzzzzz" + valid[8:], valid[:8] + "_" + valid[9:],
	} {
		if i, ok := exportsim.Index(id); ok {
			t.Errorf("Index(%q) = %d, want none", id, i)
		}
	}
}

func TestIndexOf(t *testing.T) {
	t.Parallel()
	for _, schema := range schemas {
		h := newHandler(t, exportsim.Config{Seed: 11, Events: 1, Schema: schema})
		for _, i := range []int{0, 1, 63, 64, 1_000_000, 123_456_789} {
			if got, ok := exportsim.IndexOf(h.Event(i)); !ok || got != i {
				t.Errorf("%s: IndexOf(event %d) = %d, %v", schema, i, got, ok)
			}
		}
		session := decodePage(t, recordStatus(newHandler(t, exportsim.Config{Events: 640, Schema: schema}),
			"/session").Body.Bytes()).Items[0]
		for _, raw := range [][]byte{nil, []byte(`{}`), []byte(`[1]`), []byte(`{"eventId":"x"}`), session} {
			if got, ok := exportsim.IndexOf(raw); ok {
				t.Errorf("%s: IndexOf(%.60s) = %d, want none", schema, raw, got)
			}
		}
	}
}

type event struct {
	EventID         string          `json:"eventId"`
	ID              string          `json:"id"`
	SessionID       string          `json:"sessionId"`
	UserID          string          `json:"userId"`
	Timestamp       int64           `json:"timestamp"`
	SystemTimestamp int64           `json:"systemTimestamp"`
	Context         json.RawMessage `json:"context"`
	Payload         map[string]any  `json:"payload"`
}

// Each event has what a consumer relies on, in each schema.
func TestEventForms(t *testing.T) {
	t.Parallel()
	const events = 3000
	for _, schema := range schemas {
		t.Run(string(schema), func(t *testing.T) {
			t.Parallel()
			h := newHandler(t, exportsim.Config{Seed: 2, Events: events, Schema: schema})
			userOfSession, lastOfUser := map[string]string{}, map[string]int64{}
			types, bytesTotal, nullContext := map[string]int{}, 0, 0
			var last int64
			for i := range events {
				raw := h.Event(i)
				bytesTotal += len(raw)
				var e event
				if err := json.Unmarshal(raw, &e); err != nil {
					t.Fatalf("event %d: %v: %s", i, err, raw)
				}
				checkIdentity(t, schema, i, e)
				if e.Timestamp < last || e.Timestamp != h.EventTime(i).UnixMilli() {
					t.Fatalf("event %d at %d, the one before at %d, EventTime %s", i, e.Timestamp, last, h.EventTime(i))
				}
				last = e.Timestamp
				if user, seen := userOfSession[e.SessionID]; seen && user != e.UserID {
					t.Fatalf("session %s has users %s and %s", e.SessionID, user, e.UserID)
				}
				userOfSession[e.SessionID] = e.UserID
				lastOfUser[e.UserID]++
				if string(e.Context) == "null" {
					nullContext++
				}
				types[typeOf(schema, e)]++
			}
			want := map[exportsim.Schema]int{exportsim.Schema05: 22, exportsim.Schema07: 25, exportsim.Schema08: 35}[schema]
			if len(types) != want || types[""] != 0 {
				t.Errorf("%d types of event, want %d: %v", len(types), want, types)
			}
			if mean := bytesTotal / events; mean < 950 || mean > 1250 {
				t.Errorf("events of %d bytes on average, want about 1100", mean)
			}
			if nullContext == 0 || nullContext > events/4 {
				t.Errorf("%d of %d contexts are null", nullContext, events)
			}
			if users := len(lastOfUser); users < events/100 || users > events/25 {
				t.Errorf("%d users among %d events", users, events)
			}
			if len(userOfSession) != events/64*8+8 {
				t.Errorf("%d sessions among %d events", len(userOfSession), events)
			}
		})
	}
}

func typeOf(schema exportsim.Schema, e event) string {
	member := "@type"
	if schema == exportsim.Schema08 {
		member = "type"
	}
	name, _ := e.Payload[member].(string)
	return name
}

func checkIdentity(t *testing.T, schema exportsim.Schema, i int, e event) {
	t.Helper()
	var want event
	switch id := exportsim.EventID(2, i); schema {
	case exportsim.Schema08:
		want.EventID = id
		if lag := e.SystemTimestamp - e.Timestamp; lag < 0 || lag > 1000 {
			t.Fatalf("event %d was ingested %d ms after it happened", i, lag)
		}
	case exportsim.Schema07:
		want.ID = id
	}
	if e.EventID != want.EventID || e.ID != want.ID || (e.SystemTimestamp != 0) != (schema == exportsim.Schema08) {
		t.Fatalf("event %d of %s: eventId %q, id %q, systemTimestamp %d", i, schema, e.EventID, e.ID, e.SystemTimestamp)
	}
}

// The events contain what a reader may get wrong.
func TestContentIsHard(t *testing.T) {
	t.Parallel()
	h := newHandler(t, exportsim.Config{Events: 1})
	var all bytes.Buffer
	for i := range 5000 {
		all.Write(h.Event(i))
	}
	for what, pattern := range map[string]string{
		"integer beyond 2^53":   `"(transaction|accountNumber)":[1-9]\d{18}`,
		"float with exponent":   `1\.0E-7`,
		"float with zeros":      `\d\.\d0[,}]`,
		"escaped unicode":       `\\u00e9`,
		"surrogate pair":        `\\ud83d\\ude80`,
		"plain unicode":         `スマートフォン`,
		"emoji":                 `🎉`,
		"escaped slash":         `https:\\/\\/`,
		"escaped quote":         `\\"`,
		"space between tokens":  `"items" : \[ \]`,
		"decoy of a cursor":     `"nextCursor" : "not the cursor"`,
		"decoy within a string": `\\"nextCursor\\":\\"neither`,
	} {
		if !regexp.MustCompile(pattern).Match(all.Bytes()) {
			t.Errorf("no %s in 5000 events", what)
		}
	}
}

func TestSessionsAndUsersAreJSON(t *testing.T) {
	t.Parallel()
	for _, schema := range schemas {
		h := newHandler(t, exportsim.Config{Seed: 4, Events: 13_000, Schema: schema})
		for _, path := range []string{"/session", "/user"} {
			p := decodePage(t, recordStatus(h, path+"?pageSize=400").Body.Bytes())
			ids := map[string]bool{}
			for _, item := range p.Items {
				var members map[string]any
				if err := json.Unmarshal(item, &members); err != nil {
					t.Fatalf("%s: %v: %s", path, err, item)
				}
				ids[fmt.Sprint(members["sessionId"], members["userId"])] = true
			}
			if len(ids) != 400 {
				t.Errorf("%s of %s: %d different ids among 400", path, schema, len(ids))
			}
		}
	}
}

func TestGrowthByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, exportsim.Config{Events: 100, Rate: 0.5})
		for _, step := range []struct {
			wait time.Duration
			want int
		}{{0, 100}, {time.Second, 100}, {time.Second, 101}, {10 * time.Minute, 401}} {
			pass(step.wait)
			if got := h.Stock(); got != step.want {
				t.Errorf("after another %s: %d events, want %d", step.wait, got, step.want)
			}
		}
		h.Grow(9)
		if got := h.Stock(); got != 410 {
			t.Errorf("after Grow: %d events, want 410", got)
		}
		h.SetStock(50)
		pass(20 * time.Second)
		if got := h.Stock(); got != 60 {
			t.Errorf("20 s after SetStock: %d events, want 60", got)
		}
		set := time.Now().Add(-20 * time.Second)
		for i, want := range map[int]time.Time{0: set, 49: set, 50: set.Add(2 * time.Second), 60: set.Add(22 * time.Second)} {
			if got := h.VisibleAt(i); !got.Equal(want) {
				t.Errorf("event %d is visible at %s, want %s", i, got, want)
			}
		}
		still := newHandler(t, exportsim.Config{Events: 10})
		if there, never := still.VisibleAt(9), still.VisibleAt(10); !there.Equal(time.Now()) || !never.IsZero() {
			t.Errorf("without growth the last event is visible at %s, the next at %s", there, never)
		}
	})
}

// Without a Start the initial events end now. Later events have the time at which they
// appear.
func TestTimesFollowTheClock(t *testing.T) {
	t.Parallel()
	before := time.Now().Truncate(time.Millisecond)
	h := must.Get(exportsim.New(exportsim.Config{Events: 1000, Rate: 50}))(t)
	after := time.Now()
	if at := h.EventTime(1000); at.Before(before) || at.After(after.Add(20*time.Millisecond)) {
		t.Errorf("the first event to come is at %s, want between %s and %s", at, before, after)
	}
	if at, want := h.EventTime(0), before.Add(-20*time.Second); at.Before(want) || at.After(want.Add(time.Second)) {
		t.Errorf("the first event is at %s, want %s", at, want)
	}
}
