package exportapi

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/bridge/exportapi/internal/scan"
)

// ruledClient returns a client with three rules for private data, and changes of its settings.
func ruledClient(t testing.TB, changes ...func(*Config)) *Client {
	t.Helper()
	cfg := DefaultConfig()
	cfg.URL, cfg.APIKey = "http://127.0.0.1:1", "k3y"
	cfg.Private.Drop, cfg.Private.Hash = []string{"/context/url"}, []string{"/userId"}
	cfg.Private.Mask = []string{"/sessionId:last4"}
	cfg.Private.Keys = bridge.Secret("k1 " + base64.StdEncoding.EncodeToString(make([]byte, 32)))
	for _, change := range changes {
		change(&cfg)
	}
	c := must.Get(New(cfg))(t)
	t.Cleanup(c.Close)
	return c
}

// pageOf returns a page with memory of the client.
func (c *Client) pageOf(body []byte) *bridge.Page {
	kept, _ := c.memory.Take()
	cursor, _ := scan.TailCursor(body, "nextCursor", nil)
	c.memory.Measure(c.private.room(len(body)))
	return &bridge.Page{Body: append(kept.Room(c.private.room(len(body))), body...), Next: string(cursor),
		Events: kept.Events, Notes: kept.Notes, Recycle: c.recycle}
}

// TestPrivateExtents: what the rules leave does not depend on what the decoder noted, and notes
// of another page are not used.
func TestPrivateExtents(t *testing.T) {
	t.Parallel()
	c := ruledClient(t)
	body := simulatorPage(t, exportsim.Schema08, "/events", 1000)
	read := func(change func(p *bridge.Page)) *bridge.Page {
		p := c.pageOf(body)
		must.Do(t, c.decode(p))
		change(p)
		must.Do(t, c.private.hide(p, c.decoders.V))
		return p
	}
	want := read(func(p *bridge.Page) { p.Notes = nil })
	for name, change := range map[string]func(p *bridge.Page){
		"noted":                func(*bridge.Page) {},
		"a part of the events": func(p *bridge.Page) { p.Events = p.Events[500:] },
		"another index": func(p *bridge.Page) {
			for i := range p.Events {
				p.Events[i].Index = (i + 1) % 1000
			}
		},
		"no room": func(p *bridge.Page) { p.Body = slices.Clip(p.Body) },
	} {
		got := read(change)
		all := want.Events[len(want.Events)-len(got.Events):]
		for i := range got.Events {
			g, w := &got.Events[i], &all[i]
			if !bytes.Equal(g.Raw, w.Raw) || !bytes.Equal(g.Key, w.Key) || g.Defect != w.Defect {
				t.Fatalf("%s, item %d: %+v, want %+v", name, i, g, w)
			}
		}
	}
}

// TestPrivateReadsOnce: what the decoder has read and no rule names is not read again.
func TestPrivateReadsOnce(t *testing.T) {
	t.Parallel()
	c := ruledClient(t)
	long := strings.Repeat("long", 20)
	const item = `{"eventId":"1","timestamp":1,"userId":"u","context":{"url":1,"x":["LONG"]},"payload":{"type":"t","x":"LONG"}}`
	body := []byte(`{"items":[` + strings.ReplaceAll(item, "LONG", long) + `],"nextCursor":null}`)
	for _, noted := range []bool{true, false} {
		p := c.pageOf(body)
		must.Do(t, c.decode(p))
		if !noted {
			p.Notes = nil
		}
		for from := range len(body) - len(long) {
			if string(body[from:from+len(long)]) == long {
				p.Body[from] = 0 // not JSON any more
			}
		}
		must.Do(t, c.private.hide(p, c.decoders.V))
		if withheld := p.Events[0].Withheld(); withheld == noted {
			t.Errorf("noted %t: withheld %t", noted, withheld)
		}
		p.Release()
	}
}

// TestPrivateAllocations: rules take no memory for an item once the page has its memory, apart
// from that of Sums, for one page at a time.
func TestPrivateAllocations(t *testing.T) { //nolint:paralleltest // counts allocations
	c := ruledClient(t)
	body := simulatorPage(t, exportsim.Schema08, "/events", 1000)
	read := func() {
		p := c.pageOf(body)
		must.Do(t, c.Decode(p))
		p.Release()
	}
	read()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const pages = 20
	for range pages {
		read()
	}
	runtime.ReadMemStats(&after)
	if n := (after.Mallocs - before.Mallocs) / pages; n > 10 {
		t.Errorf("%d allocations a page of 1000 items, want a few", n)
	}
	if n := (after.TotalAlloc - before.TotalAlloc) / pages; n > uint64(len(body)/2) {
		t.Errorf("%d bytes allocated for a page of %d", n, len(body))
	}
}

// TestPrivateMemory: the memory that rules take is part of the page from Fetch on, its size counts
// in Extra, and pages of about the same size use it again.
func TestPrivateMemory(t *testing.T) {
	t.Parallel()
	size := 0
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body := `{"items":[{"eventId":"1","timestamp":1,"x":"` + strings.Repeat("x", size) + `"}],"nextCursor":"c"}`
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(api.Close)
	c := ruledClient(t, func(cfg *Config) { cfg.URL = api.URL })
	for size = 400_000; size < 440_000; size += 1000 {
		p := must.Get(c.Fetch(t.Context(), bridge.Position{}))(t)
		body, fetched := p.Body, p.Extra
		must.Do(t, c.Decode(p))
		if raw := p.Events[0].Raw; &raw[:1][0] != &body[:len(body)+1][len(body)] {
			t.Fatalf("%d bytes: the item is not behind the body, in %d", len(body), cap(body))
		}
		if fetched < int64(len(p.Events[0].Raw)) || p.Extra != fetched {
			t.Fatalf("%d bytes, then an item of %d: Extra %d, then %d", len(body), len(p.Events[0].Raw), fetched, p.Extra)
		}
		p.Release()
	}
}
