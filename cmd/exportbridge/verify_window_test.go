package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
)

// TestWindowCircles: a circle of empty pages ends a window, as the end of the
// results, one with items is an error.
func TestWindowCircles(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		items, want string
	}{
		"empty pages": {"", ""},
		"with items":  {`{"eventId":"1","timestamp":1000}`, "leads in a circle"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next := "a"
				if r.URL.Query().Get("cursor") == "a" {
					next = "b"
				}
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"items":[%s],"nextCursor":%q}`, test.items, next)
			}))
			defer server.Close()
			cfg := exportapi.DefaultConfig()
			cfg.URL, cfg.APIKey, cfg.Resource, cfg.PageSize = server.URL, "key", "events", 10
			api, err := exportapi.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer api.Close()
			window := exportWindow{api: api, emptyPages: 5}
			err = window.each(t.Context(), 0, 2000, func(*bridge.Page) error { return nil })
			if got := fmt.Sprint(err); (err != nil) != (test.want != "") || !strings.Contains(got, test.want) {
				t.Errorf("the window ends with %v, want %q", err, test.want)
			}
		})
	}
}
