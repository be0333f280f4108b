package door_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
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

// TestIssuerKeyKinds: only public keys for signatures verify tokens, and none that takes long.
func TestIssuerKeyKinds(t *testing.T) {
	t.Parallel()
	server := servers.StartIssuer(t, false)
	server.Lock()
	n := server.Public().N.Bytes()
	server.Unlock()
	key := func(n []byte, more string) string {
		return fmt.Sprintf(`{"kty":"RSA","kid":"1","e":"AQAB","n":%q%s}`, base64.RawURLEncoding.EncodeToString(n), more)
	}
	secret, long := `{"kty":"oct","kid":"1","k":"AAAA"}`, key(bytes.Repeat([]byte{255}, 4<<10), "")
	for name, tc := range map[string]struct {
		keys    string
		failure error
	}{
		"for signatures":       {key(n, `,"use":"sig"`), nil},
		"beside others":        {`null,1,{},` + secret + "," + long + "," + key(n, ""), nil},
		"for encryption":       {key(n, `,"use":"enc"`), door.ErrNoKeys},
		"a secret":             {secret, door.ErrNoKeys},
		"of too many bits":     {long, door.ErrNoKeys},
		"without a public key": {"", door.ErrNoKeys},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/keys" {
					fmt.Fprintf(w, `{"keys":[%s]}`, tc.keys)
					return
				}
				fmt.Fprintf(w, `{"issuer":"http://%s","jwks_uri":"http://%[1]s/keys"}`, r.Host)
			}))
			defer keys.Close()
			server.Lock()
			token := server.Sign(nil, map[string]any{"iss": keys.URL, "roles": "viewer"})
			server.Unlock()
			cfg := door.DefaultOIDC()
			cfg.Issuer, cfg.Audience, cfg.ReadRoles = keys.URL, "kafka", []string{"viewer"}
			issuer := door.NewIssuer(cfg, slog.New(slog.DiscardHandler))
			if who, err := issuer.Identify(t.Context(), token); !errors.Is(err, tc.failure) || (who.Name == "bridge") != (err == nil) {
				t.Errorf("%+v, %v, want %v", who, err, tc.failure)
			}
		})
	}
}

// TestIssuerWatchStops: the end of Watch ends an attempt, which is no outage of the issuer.
func TestIssuerWatchStops(t *testing.T) {
	t.Parallel()
	server, asked := servers.StartIssuer(t, false), make(chan struct{}, 1)
	server.Discovered = func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}
	cfg := door.DefaultOIDC()
	cfg.Issuer = server.URL()
	var log bytes.Buffer
	issuer := door.NewIssuer(cfg, slog.New(slog.NewTextHandler(&log, nil)))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		issuer.Watch(ctx)
		close(ended)
	}()
	<-asked
	stop()
	<-ended
	if log.Len() > 0 {
		t.Errorf("the log has %s", log.String())
	}
}
