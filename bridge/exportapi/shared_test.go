package exportapi_test

import (
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi"
)

// connections counts the connections of a server.
type connections struct {
	mu             sync.Mutex // guards the rest
	opened, closed int
	changed        chan struct{} // each change closes and replaces it
}

func (c *connections) note(_ net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.opened++
	case http.StateClosed:
		c.closed++
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// want fails the test unless that many connections were opened. It waits until that many
// are closed.
func (c *connections) want(t *testing.T, opened, closed int) {
	t.Helper()
	for {
		c.mu.Lock()
		now, then, changed := c.opened, c.closed, c.changed
		c.mu.Unlock()
		if now != opened || then > closed {
			t.Fatalf("%d connections opened and %d closed, want %d and %d", now, then, opened, closed)
		}
		if then == closed {
			return
		}
		<-changed
	}
}

// Clients of a process with the same TLS settings share connections. The last of them
// closes the connections. A client with another setting has its own.
func TestSharedConnections(t *testing.T) {
	t.Parallel()
	seen := connections{changed: make(chan struct{})}
	arrived, release := make(chan struct{}), make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("cursor") == "held" {
			arrived <- struct{}{}
			<-release
		}
		answer(emptyPage)(w, r)
	}))
	server.Config.ConnState = seen.note
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	var shared exportapi.Shared
	client := func(ca, path, key string) *exportapi.Client {
		cfg := config(t, map[string]string{"EXPORT_URL": server.URL, "EXPORT_TLS_CA": ca, "EXPORT_PATH": path,
			"EXPORT_API_KEY": key})
		cfg.Shared = &shared
		c := must.Get(exportapi.New(cfg))(t)
		return c
	}
	fetch := func(c *exportapi.Client, cursor string) {
		if p, err := c.Fetch(t.Context(), bridge.Position{Cursor: cursor}); err != nil {
			t.Errorf("at cursor %q: %v", cursor, err)
		} else {
			p.Release()
		}
	}
	clients := []*exportapi.Client{client(ca, "/a", "a"), client(ca, "/b", "b"), client(ca, "/c", "c")}
	for range 3 {
		for _, c := range clients {
			fetch(c, "")
		}
	}
	seen.want(t, 1, 0)
	other := client(ca+ca, "/a", "a")
	fetch(other, "")
	seen.want(t, 2, 0)
	other.Close()
	seen.want(t, 2, 1)

	var held sync.WaitGroup
	held.Go(func() { fetch(clients[0], "held") })
	<-arrived
	fetch(clients[1], "") // at the same time
	seen.want(t, 3, 1)
	clients[1].Close()
	fetch(clients[2], "")
	close(release)
	held.Wait()
	seen.want(t, 3, 1)
	clients[2].Close()
	fetch(clients[0], "")
	seen.want(t, 3, 1)
	clients[0].Close()
	seen.want(t, 3, 3)
}
