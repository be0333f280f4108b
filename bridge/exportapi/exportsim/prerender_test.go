package exportsim_test

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"maps"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/exportsim"
)

func TestPrerendered(t *testing.T) {
	t.Parallel()
	config := exportsim.Config{Events: 450, Gzip: true, CursorFirst: true}
	ahead, asked := newHandler(t, config), newHandler(t, config)
	if n := ahead.Prerender(100, 1<<20); n != 4 {
		t.Errorf("%d pages rendered ahead, want the 4 full ones", n)
	}
	if n := newHandler(t, config).Prerender(100, 200_000); n != 1 {
		t.Errorf("%d pages of 100 kB and more within 200 kB, want 1", n)
	}
	for range 2 { // the second time with fewer events
		for _, query := range []url.Values{{}, {"pageSize": {"50"}}, {"events": {"pageOpened"}}, {"end": {"1793491210000"}}} {
			walkBoth(t, ahead, asked, query)
		}
		ahead.SetStock(250)
		asked.SetStock(250)
	}
}

// walkBoth follows the cursor of both. It fails the test if the answers differ in more than
// their compression.
func walkBoth(t *testing.T, one, other *exportsim.Handler, query url.Values) {
	t.Helper()
	query = maps.Clone(query)
	for {
		path := "/events?" + query.Encode()
		got, want := recordStatus(one, path), recordStatus(other, path)
		if diff := cmp.Diff(want.Header(), got.Header()); diff != "" || got.Body.String() != want.Body.String() {
			t.Fatalf("%s: %d bytes, want %d; %s", path, got.Body.Len(), want.Body.Len(), diff)
		}
		small, large := recordStatus(one, path, "Accept-Encoding", "gzip"),
			recordStatus(other, path, "Accept-Encoding", "gzip")
		if small.Body.Len() > large.Body.Len() || small.Header().Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: compressed ahead %d bytes, else %d", path, small.Body.Len(), large.Body.Len())
		}
		unzip := must.Get(gzip.NewReader(small.Body))(t)
		if text, err := io.ReadAll(unzip); err != nil || string(text) != want.Body.String() {
			t.Fatalf("%s: compressed %d bytes, want %d, %v", path, len(text), want.Body.Len(), err)
		}
		var p page
		must.Do(t, json.Unmarshal(want.Body.Bytes(), &p))
		if p.cursor() == "" {
			return
		}
		query.Set("cursor", p.cursor())
	}
}

func TestNothingIsPrerendered(t *testing.T) {
	t.Parallel()
	if n := newHandler(t, exportsim.Config{Events: 450, CursorTTL: time.Hour}).Prerender(100, 1<<20); n != 0 {
		t.Errorf("%d pages rendered ahead although cursors expire", n)
	}
	for name, want := range map[string]int{"nested": 4, "integer-cursor": 4, "next-url": 0, "link": 0, "post": 0,
		"newest-first": 0} {
		if n := newHandler(t, exportsim.Config{Form: named(t, name), Events: 450}).Prerender(100, 1<<20); n != want {
			t.Errorf("%s: %d pages rendered ahead, want %d", name, n, want)
		}
	}
	h := newHandler(t, exportsim.Config{Events: 5000})
	for _, size := range []int{0, -1, 1001} {
		if n := h.Prerender(size, 1<<30); n != 0 {
			t.Errorf("%d pages of %d events rendered ahead", n, size)
		}
	}
}
