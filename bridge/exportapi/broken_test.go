package exportapi_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"exportbridge/bridge"
)

// A page that begins with its cursor is a fault without events if the rest is wrong or
// missing.
func TestBrokenBehindItsCursor(t *testing.T) {
	t.Parallel()
	head := `{"nextCursor":"c9","items":[` +
		strings.TrimSuffix(strings.Repeat(`{"eventId":"1","timestamp":1,"pad":"`+noise(1, 2000)+`"},`, 30), ",")
	limited := map[string]string{"EXPORT_MAX_RESPONSE_BYTES": "200000"}
	const cut, never = "cut", "never"
	for name, tc := range map[string]struct {
		encoding, rest string
		vars           map[string]string
		class          bridge.Class
		code           string
		reason         bridge.Reason
		say            string
	}{
		"cursor twice":   {"", `],"nextCursor":"c8"}`, nil, bridge.Malformed, "schema", bridge.ReasonSchema, "twice"},
		"the same twice": {"", `],"nextCursor":"c9"}`, nil, bridge.Malformed, "schema", bridge.ReasonSchema, "twice"},
		"twice, one escaped": {"gzip", `],"next\u0043ursor":"c8"}`, nil, bridge.Malformed, "schema", bridge.ReasonSchema,
			"twice"},
		"then null":   {"", `],"nextCursor":null}`, nil, bridge.Malformed, "schema", bridge.ReasonSchema, "twice"},
		"items twice": {"", `],"items":[]}`, nil, bridge.Malformed, "schema", bridge.ReasonSchema, "twice"},
		"not JSON behind": {"", `]} and more`, nil, bridge.Malformed, "schema", bridge.ReasonSchema,
			"unexpected data after"},
		"not UTF-8 behind":     {"", "],\"x\":\"\xff\"}", nil, bridge.Malformed, "schema", bridge.ReasonSchema, "UTF-8"},
		"ends in an item":      {"", `,{"timestamp":`, nil, bridge.Transient, "decode", "", "truncated"},
		"connection cut":       {"", cut, nil, bridge.Transient, "network", "", "ended after"},
		"connection cut, gzip": {"gzip", cut, nil, bridge.Transient, "network", "", "ended after"},
		"connection cut, zstd": {"zstd", cut, nil, bridge.Transient, "network", "", "ended after"},
		"too large": {"", strings.Repeat(" ", 1<<20), limited, bridge.Permanent, "size", bridge.ReasonSize,
			"200000"},
		"too large, gzip": {"gzip", strings.Repeat(" ", 4<<20), limited, bridge.Permanent, "size", bridge.ReasonSize,
			"200000"},
		"too large, zstd": {"zstd", strings.Repeat(" ", 4<<20), limited, bridge.Permanent, "size", bridge.ReasonSize,
			"200000"},
		"too late": {"", never, map[string]string{"EXPORT_TIMEOUT": "3s"}, bridge.Transient, "timeout", "",
			"body not complete within 3s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := []byte(head + tc.rest)
			if tc.encoding != "" {
				body = compress(tc.encoding, body)
			}
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if tc.encoding != "" {
					w.Header().Set("Content-Encoding", tc.encoding)
				}
				if tc.rest != cut && tc.rest != never {
					_, _ = w.Write(body)
					return
				}
				_, _ = w.Write(body[:len(body)/2])
				_ = http.NewResponseController(w).Flush()
				if tc.rest == never {
					<-r.Context().Done()
				}
				panic(http.ErrAbortHandler)
			}, tc.vars)
			p, err := c.Fetch(t.Context(), bridge.Position{Cursor: testCursor})
			if err == nil {
				defer p.Release()
				if err = c.Decode(p); len(p.Events) != 0 || p.Items != 0 {
					t.Errorf("%d events of a broken page", len(p.Events))
				}
			}
			f := wantFault(t, err)
			if f.Class != tc.class || f.Code != tc.code || f.Reason != tc.reason || !strings.Contains(f.Error(), tc.say) {
				t.Errorf("got class %v code %q reason %q %q, want %v %q %q %q", f.Class, f.Code, f.Reason, f, tc.class,
					tc.code, tc.reason, tc.say)
			}
			if !strings.Contains(f.Error(), "fetch page at cursor "+bridge.CursorHash(testCursor)) ||
				errors.Is(f, context.DeadlineExceeded) {
				t.Errorf("got %q, want a fault of its own that names the page", f)
			}
		})
	}
}
