package door_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/ops/door"
)

// TestIssuerKeys: keys are replaced and withdrawn, and the issuer is away meanwhile.
func TestIssuerKeys(t *testing.T) {
	t.Parallel()
	server := servers.StartIssuer(t, false)
	synctest.Test(t, func(t *testing.T) {
		cfg := door.DefaultOIDC()
		cfg.Issuer, cfg.Audience, cfg.ReadRoles = server.URL(), "kafka", []string{"viewer"}
		var log bytes.Buffer
		issuer := door.NewIssuer(cfg, slog.New(slog.NewTextHandler(&log, nil)))
		token := func() string {
			server.Lock()
			defer server.Unlock()
			return server.Sign(nil, map[string]any{"roles": "viewer", "exp": time.Now().Add(time.Hour).Unix()})
		}
		away := func(is bool) {
			server.Lock()
			defer server.Unlock()
			if server.Discovered = nil; is {
				server.Discovered = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }
			}
		}
		rotate := func() {
			server.Lock()
			defer server.Unlock()
			server.Rotate()
		}
		want := func(when, token, name string, failure error) {
			t.Helper()
			if who, err := issuer.Identify(t.Context(), token); who.Name != name || !errors.Is(err, failure) {
				t.Errorf("%s: %+v, %v, want %q, %v", when, who, err, name, failure)
			}
		}
		away(true)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			issuer.Watch(ctx)
			close(ended)
		}()
		first := token()
		want("away at the start", first, "", door.ErrNoKeys)
		away(false)
		<-time.After(11 * time.Second)
		away(true) // Watch has asked again
		want("asked again", first, "bridge", nil)
		rotate()
		second := token()
		want("a new key while the issuer is away", second, "", nil)
		away(false)
		<-time.After(5 * time.Second)
		want("a new key", second, "bridge", nil)
		rotate()
		third := token()
		want("another new key at once", third, "", nil)
		<-time.After(5 * time.Second)
		want("another new key", third, "bridge", nil)
		want("a withdrawn key", second, "", nil)
		rotate()
		want("until the next reading", third, "bridge", nil)
		<-time.After(5 * time.Minute)
		away(true)
		want("a key withdrawn long ago", third, "", nil)
		last := token()
		want("the newest key while the issuer is away", last, "bridge", nil)
		<-time.After(24 * time.Minute)
		want("the issuer is away for long", last, "bridge", nil)
		stop()
		<-ended
		if away, back := strings.Count(log.String(), "unreadable"), strings.Count(log.String(), "read again"); away != 2 || back != 1 {
			t.Errorf("%d outages, %d ends, want 2 and 1:\n%s", away, back, log.String())
		}
	})
}
