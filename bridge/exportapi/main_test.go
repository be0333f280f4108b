package exportapi_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/sethvargo/go-envconfig"
	"go.uber.org/goleak"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi"
)

const (
	testKey    = "sk-test/Key+93=%41"
	testCursor = "eyJ0IjoxNz+/=%2B&# ?ü"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// config returns the defaults with some variables set, as the command reads them.
func config(t testing.TB, vars map[string]string) exportapi.Config {
	t.Helper()
	all := map[string]string{"EXPORT_API_KEY": testKey, "EXPORT_URL": "http://127.0.0.1:1"}
	maps.Copy(all, vars)
	cfg := exportapi.DefaultConfig()
	err := envconfig.ProcessWith(context.Background(),
		&envconfig.Config{Target: &cfg, DefaultOverwrite: true, Lookuper: envconfig.MapLookuper(all)})
	if err != nil {
		t.Fatalf("read configuration: %v", err)
	}
	return cfg
}

func connect(t testing.TB, cfg exportapi.Config) *exportapi.Client {
	t.Helper()
	c, err := exportapi.New(cfg)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

// serve starts an API and a client for it.
func serve(t testing.TB, api http.HandlerFunc, vars map[string]string) *exportapi.Client {
	t.Helper()
	all := map[string]string{"EXPORT_URL": listen(t, api).URL}
	maps.Copy(all, vars)
	return connect(t, config(t, all))
}

// listen starts an API.
func listen(t testing.TB, api http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	return server
}

// listenTLS starts an API over TLS, and returns the certificate to trust. settings may be nil.
func listenTLS(t testing.TB, api http.Handler, settings *tls.Config) (server *httptest.Server, ca string) {
	t.Helper()
	server = httptest.NewUnstartedServer(api)
	server.TLS, server.Config.ErrorLog = settings, log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// answer is an API that always gives the same page.
func answer(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body))
	}
}

// fetchAll fetches and decodes one page, which is released at the end of the test.
func fetchAll(t testing.TB, c *exportapi.Client, at bridge.Position) (*bridge.Page, error) {
	t.Helper()
	p, err := c.Fetch(t.Context(), at)
	if err != nil {
		if p != nil {
			t.Error("Fetch returned a page and an error")
		}
		return nil, err
	}
	t.Cleanup(p.Release)
	return p, c.Decode(p)
}

func mustFetch(t testing.TB, c *exportapi.Client, at bridge.Position) *bridge.Page {
	t.Helper()
	p := must.Get(fetchAll(t, c, at))(t)
	return p
}

// wantFault fails the test unless err is a fault without key and cursor whose hint names a
// setting or says that it retries.
func wantFault(t testing.TB, err error) *bridge.Fault {
	t.Helper()
	f, ok := errors.AsType[*bridge.Fault](err)
	if !ok {
		t.Fatalf("got %v, want a fault", err)
	}
	wantClean(t, err)
	if strings.ContainsAny(f.Error()+f.Hint, "\r\n\t\x00\x1b") {
		t.Errorf("control characters in %q", f.Error())
	}
	if f.Code == "" || !strings.Contains(f.Hint, "EXPORT_") && !strings.Contains(f.Hint, "persists") &&
		!strings.Contains(f.Hint, "delay") && f.HintCode == "" || strings.HasPrefix(f.Hint, "retrying") {
		t.Errorf("fault without code or useful hint: %q %q %q", f.Code, f.Hint, f.HintCode)
	}
	if (f.Class == bridge.Permanent || f.Class == bridge.Malformed || f.Class == bridge.BadCursor) == (f.Reason == "") {
		t.Errorf("class %v with reason %q", f.Class, f.Reason)
	}
	return f
}

// wantClean searches the whole chain of an error for secrets.
func wantClean(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		return
	}
	for _, secret := range []string{testKey, "sk-test", "Key+93", testCursor, "eyJ0IjoxNz", "cursor=", "?"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%q in %q", secret, err)
		}
	}
	switch inner := err.(type) { //nolint:errorlint // it walks the chain
	case interface{ Unwrap() error }:
		wantClean(t, inner.Unwrap())
	case interface{ Unwrap() []error }:
		for _, e := range inner.Unwrap() {
			wantClean(t, e)
		}
	}
}

// recorder keeps the requests of a handler.
type recorder struct {
	mu       sync.Mutex
	requests []*http.Request
}

func (r *recorder) saw(req *http.Request) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, req.Clone(context.Background()))
	return len(r.requests)
}

func (r *recorder) all() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}
