package dev

import (
	"bytes"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/engine"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/cmd/internal/config"
)

// startForm serves a form and reads the settings that simulate prints for it
// as a process would.
func startForm(t *testing.T, name string, sim exportsim.Config) (*exportsim.Handler, exportapi.Config) {
	t.Helper()
	must.Do(t, setForm(&sim, name))
	handler := must.Get(exportsim.New(sim))(t)
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		handler.Close()
		server.Close()
	})
	file := filepath.Join(t.TempDir(), "env")
	text := settingsOf(sim, server.URL) + "KAFKA_TOPIC=t\n"
	if sim.APIKey == "" && name != "last-item" {
		text += "EXPORT_API_KEY=any\n"
	}
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	s, err := config.Load(config.Sources{EnvFile: file}, config.UsesExport)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return handler, s.Streams[0].Export
}

func readForm(t *testing.T, cfg exportapi.Config, topic *bridgetest.Topic, store *bridgetest.Store) {
	t.Helper()
	client := must.Get(exportapi.New(cfg))(t)
	defer client.Close()
	e := must.Get(engine.New(engine.Config{
		Stream: "events", Mode: bridge.ExactlyOnce, Origin: bridge.Origin{Resource: "events"}, PageSize: cfg.PageSize,
		Owner:        "me",
		PollInterval: time.Second, PollIntervalMax: time.Second, PrefetchPages: 8, PrefetchBytes: 16 << 20,
		RetryMax:   time.Second,
		EmptyPages: 2, OnInvalidCursor: "stop", OnSharedID: "publish", OnCheckpointLoss: "kafka",
		ShutdownTimeout: time.Second,
		Limits:          engine.Limits{Once: true},
	}, engine.Ports{Source: client, Sink: topic.Open("events"), Store: store, Inbox: bridgetest.NewInbox(t)}))(t)
	must.Do(t, e.Run(t.Context()))
}

// The bridge reads each form with the settings that simulate prints: every
// event once, in order, byte for byte, before and after the export has grown.
func TestPrintedSettingsRead(t *testing.T) {
	t.Parallel()
	for _, name := range exportsim.FormNames() {
		if form, _ := exportsim.FormNamed(name); form.Backwards() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler, cfg := startForm(t, name, exportsim.Config{Seed: 5, Events: 130, TokenTTL: time.Hour})
			cfg.PageSize = 50
			topic, store := bridgetest.NewTopic(t, bridge.ExactlyOnce), bridgetest.NewStore(t, "events")
			for _, grow := range []int{0, 1, 19, 50, 133} { // 150 and 200 end with a full page
				handler.Grow(grow)
				readForm(t, cfg, topic, store)
				records := topic.Records()
				if len(records) != handler.Stock() {
					t.Fatalf("%d records of %d events", len(records), handler.Stock())
				}
				for i, r := range records {
					if !bytes.Equal(r.Value, handler.Event(i)) {
						t.Fatalf("record %d is %s", i, r.Value)
					}
				}
			}
		})
	}
}

// Adjacent windows have each event once, and all members of items are read.
func TestPrintedSettingsWindows(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for _, name := range exportsim.FormNames() {
		form, _ := exportsim.FormNamed(name)
		if form.EndParam == "none" || form.Backwards() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler, cfg := startForm(t, name, exportsim.Config{Events: 300, Start: start, Every: 40 * time.Millisecond})
			cfg.PageSize = 20
			client := must.Get(exportapi.New(cfg))(t)
			defer client.Close()
			bounds := []time.Time{start.Add(-time.Minute)}
			for i := 10; i < 300; i += 29 { // at an event
				bounds = append(bounds, handler.EventTime(i))
			}
			slices.SortFunc(bounds, time.Time.Compare)
			bounds = append(bounds, start.Add(time.Minute))
			var seen []int
			for n := range len(bounds) - 1 {
				at := bridge.Position{Start: bounds[n].UnixMilli(), End: bounds[n+1].UnixMilli(), Window: true}
				for {
					page, err := client.Fetch(t.Context(), at)
					if err != nil {
						t.Fatalf("%+v: %v", at, err)
					}
					must.Do(t, client.Decode(page))
					for _, e := range page.Events {
						i, _ := exportsim.IndexOf(e.Raw)
						want := handler.EventTime(i)
						if strings.Contains(string(e.Raw), `"created":`) {
							want = want.Truncate(time.Second)
						}
						if e.Time != want.UnixMilli() || len(e.ID) == 0 || len(e.Type) == 0 || len(e.Subject) == 0 {
							t.Fatalf("event %d at %s is read as %+v", i, want, e)
						}
						seen = append(seen, i)
					}
					at.Cursor = page.Next
					tail := page.Tail()
					page.Release()
					if tail {
						break
					}
				}
			}
			slices.Sort(seen)
			for i, got := range seen {
				if i != got {
					t.Fatalf("event %d where %d is due", got, i)
				}
			}
			if len(seen) != 300 {
				t.Errorf("%d events of 300", len(seen))
			}
		})
	}
}
