package bench

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge/bridgetest/faultproxy"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/dev/embedded"
)

func serveKafka(_ context.Context, a *cli.App, p *part) error {
	k, err := embedded.StartKafka(anyPort, p.Dir)
	if err != nil {
		return err
	}
	return serveParent(a, k.Addr, k)
}

func serveRedis(_ context.Context, a *cli.App, _ *part) error {
	r, err := embedded.StartRedis(anyPort)
	if err != nil {
		return err
	}
	return serveParent(a, r.Addr, r)
}

func serveProxy(_ context.Context, a *cli.App, p *part) error {
	if p.Plain {
		proxy, err := faultproxy.LaunchTCPProxy(p.To)
		if err != nil {
			return err
		}
		proxy.Delay(p.Delay)
		return serveParent(a, proxy.Addr(), proxy)
	}
	rule := faultproxy.KafkaRule{Fault: faultproxy.DelayReply, Delay: p.Delay, Spread: p.Spread, Times: -1}
	if p.Commits {
		rule.Keys = []kmsg.Key{kmsg.EndTxn}
	}
	proxy := faultproxy.NewKafkaProxy()
	proxy.Add(rule)
	addr, err := proxy.Before(p.To)
	if err != nil {
		return err
	}
	return serveParent(a, addr.String(), proxy)
}

// The events of a benchmark: the pages of every run are the same bytes.
var exportStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const exportEvery = 100 * time.Millisecond // between events, unless the export grows

// prerenderLimit bounds the memory of the pages that an API renders in advance.
// Each further page takes the API half a millisecond.
const prerenderLimit = 512 << 20

func serveAPI(_ context.Context, a *cli.App, p *part) (err error) {
	api := new(timedAPI)
	config := exportsim.Config{
		Seed: 1, Start: exportStart, Every: exportEvery, Events: p.Events, OnRequest: api.note,
		Latency: p.API.Latency, BandwidthBits: int64(p.API.Mbit) * 1e6, Gzip: p.API.Gzip,
	}
	if p.Growing {
		config.Rate, config.Start, config.Every = growthRate, time.Now(), 0
	}
	if api.Handler, err = exportsim.New(config); err != nil {
		return err
	}
	defer api.Close()
	if !p.Growing {
		api.Prerender(pageEvents, prerenderLimit)
	}
	server, err := embedded.StartSimulator(api, anyPort)
	if err != nil {
		return err
	}
	return serveParent(a, server.URL, server)
}

// clockPath is where the API of a benchmark returns its clock.
const clockPath = "/bench/clock"

// apiClock has the requests of an API since its clock was last reset.
type apiClock struct {
	First    time.Time `json:"first"` // arrival of the first request
	Requests int       `json:"requests"`
	// Grew is when the first event became visible, if the export grows.
	Grew time.Time `json:"grew"`
	// Pages are numbered from 0, in the order of their first requests. Earliest is the
	// lowest requested number. Next is the number after the highest delivered one.
	Earliest int `json:"earliest"`
	Next     int `json:"next"`
}

// timedAPI is the simulator with a clock.
type timedAPI struct {
	*exportsim.Handler
	mu    sync.Mutex
	clock apiClock       // guarded by mu
	pages map[string]int // their numbers by cursor; guarded by mu
}

// note notes a request for a page. It skips the request that checks an API before a
// job begins, which asks for one event.
func (t *timedAPI) note(r *http.Request) {
	if r.URL.Query().Get("pageSize") == "1" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	page := t.page(r)
	if t.clock.Requests == 0 {
		t.clock.First, t.clock.Earliest = time.Now(), page
	}
	t.clock.Requests++
	t.clock.Earliest = min(t.clock.Earliest, page)
}

// page returns the number of the page that is requested. The caller holds mu.
func (t *timedAPI) page(r *http.Request) int {
	cursor := r.URL.Query().Get("cursor")
	number, known := t.pages[cursor]
	if !known {
		if t.pages == nil {
			t.pages = make(map[string]int)
		}
		number = len(t.pages)
		t.pages[cursor] = number
	}
	return number
}

// delivered notes that the client has received the page.
func (t *timedAPI) delivered(r *http.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clock.Next = max(t.clock.Next, t.page(r)+1)
}

// ServeHTTP serves the simulator and, at clockPath, the clock. POST also resets the
// clock and, with a number of events, starts another export of so many events.
func (t *timedAPI) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path != clockPath {
		t.Handler.ServeHTTP(rw, r)
		if r.Context().Err() == nil {
			t.delivered(r)
		}
		return
	}
	t.mu.Lock()
	clock := t.clock
	if r.Method == http.MethodPost {
		t.clock = apiClock{}
		if events, err := strconv.Atoi(r.URL.Query().Get("events")); err == nil {
			t.SetStock(events)
			t.pages = nil
		}
	}
	t.mu.Unlock()
	clock.Grew = t.VisibleAt(0)
	_ = json.NewEncoder(rw).Encode(clock) // the client may have gone
}
