//go:build browser

package ui_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"

	"sync"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/control"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/ops"
	roles "exportbridge/bridge/ops/door"
	"exportbridge/bridge/ops/metrics"
	"exportbridge/bridge/ops/ui"
)

// door is a stream behind the real API.
type door struct {
	ops.Jobs

	mu   sync.Mutex // guards jobs
	jobs []backfill.Listed
}

func (d *door) Status() bridge.Status { return *running("events").Live }
func (d *door) Alive() bool           { return true }

func (d *door) Plan(_ context.Context, stream string, r *backfill.Spec) (*backfill.Plan, error) {
	if err := r.Validate(time.Now()); err != nil {
		return nil, err
	}
	return &backfill.Plan{Job: backfill.Job{
		ID: cmp.Or(r.ID, "k3xq7a"), Kind: r.Kind, Stream: stream, Topic: "export.events.replay.k3xq7a", From: r.From,
		To: r.To, Windows: backfill.Split(r.From, r.To, r.Windows),
		Parallel: 1, Who: r.Who, Reason: r.Reason, State: backfill.Running,
	}}, nil
}

func (d *door) Start(_ context.Context, p *backfill.Plan) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.jobs = append(d.jobs, backfill.Listed{Job: p.Job})
	return nil
}

func (d *door) Trouble(*backfill.Listed) string { return "" }

// doorRecords are what the door's stream has in Kafka.
type doorRecords struct{ *door }

func (r doorRecords) DeadLetters(context.Context, string, int) ([]deadletter.DeadLetter, error) {
	return nil, nil
}

func (r doorRecords) Jobs(context.Context) ([]backfill.Listed, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.jobs), nil
}

// doorController pauses.
type doorController struct{ ops.Controller }

func (doorController) Status(context.Context) control.Report {
	live := *running("events").Live
	r := control.NewReport("events", bridge.ExactlyOnce)
	r.Live = &live
	return r
}

func (doorController) History(context.Context, bridge.HistoryQuery) (control.History, error) {
	return control.History{}, nil
}

func (doorController) Pause(context.Context, control.Request, time.Duration) (control.Done, error) {
	return control.Done{Answer: bridge.Answer{Applied: true, By: "bridge-0", Version: bridge.Version{Epoch: 4},
		At: time.Now().UnixMilli()}}, nil
}

// newDoor serves the page and the real API.
func newDoor(t *testing.T, cfg ops.Config) *fakeBridge {
	t.Helper()
	d := new(door)
	server := httptest.NewServer(ops.Handler(cfg, ops.Parts{
		Version: "v1", Metrics: metrics.New(metrics.Build{Version: "1"}, metrics.DetailAuto, []string{"events"},
			func() []bridge.Status { return []bridge.Status{d.Status()} }),
		Streams:    func() []ops.Stream { return []ops.Stream{d} },
		Controller: func(string) ops.Controller { return doorController{} }, Records: doorRecords{d}, Jobs: d,
		Page: ui.Handler(),
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &fakeBridge{URL: server.URL}
}

// proxied is a bridge behind a proxy that changes requests.
func proxied(t *testing.T, f *fakeBridge, change func(*http.Request)) *fakeBridge {
	t.Helper()
	to := must.Get(url.Parse(f.URL))(t)
	server := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to) // and Host
		change(r.Out)
	}})
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &fakeBridge{URL: server.URL}
}

// A replay can be started: the API rejects one that allows an overlap, which only a
// backfill has.
func TestReplay(t *testing.T) {
	p := open(t, newDoor(t, ops.Config{}), 1280)
	p.click("#jobs-begin")
	p.set("#job-form [name=from]", "2026-02-01 00:00:00Z") // as this program prints it
	p.set("#job-form [name=until]", "2026-02-02")
	p.click("#job-form [name=overlap]")
	p.click("#job-form [value=replay]")
	if read[bool](p, `((box) => box.checked || !box.disabled)(document.querySelector('#job-form [name=overlap]'))`) {
		t.Error("a replay can allow an overlap")
	}
	p.write("#job-form [name=reason]", "fraud review")
	p.click("#job-submit")
	p.sees("#job-rows", "replay k3xq7a")
	p.sees("#job-rows", "2026-02-01 – 2026-02-02")
	p.write("#job-form [name=confirm]", "events")
	p.click("#job-submit")
	p.sees("#toast", "replay k3xq7a of events started.")
	p.sees("#jobs-rows", "k3xq7a")
	p.click("#jobs-begin")
	p.click("#job-form [name=overlap]")
	if !read[bool](p, `document.querySelector('#job-form [name=overlap]').checked`) {
		t.Error("a backfill cannot allow an overlap")
	}
}

// The fields take the times that the program prints.
func TestTimeForms(t *testing.T) {
	p := open(t, newFakeBridge(t, running("events")), 1280)
	p.click("#move")
	p.click("#move-form [value=datetime]")
	for text, want := range map[string]string{
		"2026-11-20 13:00:00": "2026-11-20T13:00:00Z", "2026-11-20 13:00": "2026-11-20T13:00:00Z",
		"2026-11-20":           "2026-11-20T00:00:00Z",
		"2026-11-20T13:00:00Z": "2026-11-20T13:00:00Z", "2026-11-20 13:00:00Z": "2026-11-20T13:00:00Z",
		"2026-11-20 13:00Z":        "2026-11-20T13:00:00Z",
		"2026-11-20T13:00:00.250Z": "2026-11-20T13:00:00.250Z", "2026-11-20T13:00:00+02:00": "2026-11-20T11:00:00Z",
		" 2026-11-20 ": "2026-11-20T00:00:00Z",
		"20.11.2026":   "", "1:05 PM": "", "2026-11-20 1 PM": "", "-2h": "",
	} {
		p.set("#move-form [name=datetime]", text)
		if valid := read[bool](p, `document.querySelector('#move-form [name=datetime]').validity.valid`); valid != (want != "") {
			t.Errorf("%q is valid: %v", text, valid)
		}
		if want == "" {
			continue
		}
		p.wait(fmt.Sprintf(`import('./dialogs.js').then((m) => { window.utcOf = m.utc(%q); }) && window.utcOf === %q`, text,
			want))
	}
}

// Where reading requires a token, the page asks for one first, and the live connection
// sends it. A token that may only read unlocks no action.
func TestLogin(t *testing.T) {
	reader, line, err := roles.New(roles.Identity{Name: "bob", Role: roles.Read})
	if err != nil {
		t.Fatal(err)
	}
	p := visit(t, newDoor(t, ops.Config{Tokens: bridge.Secret(line)}), 1280, "status of 401")
	p.write("#token", "wrong")
	p.click("#token-dialog [type=submit]")
	p.sees("#token-dialog .problem", "Invalid token.")
	p.set("#token", reader)
	p.click("#token-dialog [type=submit]")
	p.sees("#link", "Live")
	p.sees("#state-name", "Running")
	p.click("#pause")
	p.set("#token", reader)
	p.click("#token-dialog [type=submit]")
	p.sees("#token-dialog .problem", "This token may only read.")
}
