package command

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/keyring"
	"exportbridge/bridge/seal"
)

// TestReloadSealed: a reload takes a new line of the file of master keys, another pointer, and rules
// without encryption, while a subject is forgotten. Each event is published once, each subject keeps
// its key, and the other stream does not restart.
func TestReloadSealed(t *testing.T) {
	t.Parallel()
	const held = "X-Held"
	dir := t.TempDir()
	masters, hashes := filepath.Join(dir, "masters"), filepath.Join(dir, "hashes")
	line := func(id string, b byte) string {
		return id + " " + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)) + "\n"
	}
	must.Do(t, os.WriteFile(masters, []byte(line("m1", 1)), 0o600))
	must.Do(t, os.WriteFile(hashes, []byte(line("k1", 3)), 0o600))
	describe := func(pointers string) string {
		return fmt.Sprintf("settings: {EXPORT_PAGE_SIZE: 10}\nstreams:\n  steady:\n  sealed:\n    EXPORT_HEADERS: %q\n"+
			"    EVENT_HASH: /context/tabId\n    EVENT_ENCRYPT: %q\n    EVENT_ENCRYPT_KEY_FILE: %s\n    EVENT_HASH_KEY_FILE: %s\n",
			held+": yes", pointers, masters, hashes)
	}
	// Each run of the sealed stream has pages of its own, however slow the machine is.
	pages := make(chan struct{}, 400)
	allow := func(n int) {
		for range n {
			pages <- struct{}{}
		}
	}
	r := startReloading(t, 4000, describe("/sessionId"), func(req *http.Request) {
		if req.Header.Get(held) != "" {
			select {
			case <-pages:
			case <-req.Context().Done():
			}
		}
	})
	next := func(pointers string, runs int) {
		r.reload(describe(pointers), "settings reloaded")
		r.await("the stream to restart", func() bool { return r.metric(acquired("sealed")) == runs })
		had := r.metric(published("sealed"))
		allow(100)
		r.await("events of the new run", func() bool { return r.metric(published("sealed")) > had })
	}
	allow(10)
	r.await("events", func() bool { return r.metric(published("sealed")) > 0 })
	both := line("m1", 1) + line("m2", 2)
	must.Do(t, os.WriteFile(masters, []byte(both), 0o600))
	next("/sessionId", 2)
	cfg := keyring.Config{Kafka: kafkaclient.DefaultConfig(), Topic: "export.sealed.keys",
		Master: must.Get(seal.ParseMaster(both))(t)}
	cfg.Kafka.Brokers = r.kafka.ListenAddrs()
	var first struct{ UserID string }
	client := reader(t, r.kafka, "export.sealed")
	must.Do(t, json.Unmarshal(client.PollRecords(t.Context(), 1).Records()[0].Value, &first))
	client.Close()
	must.Get(keyring.Forget(t.Context(), cfg, first.UserID, true))(t)
	next("/sessionId,/context/metadata", 3)
	next("", 4)
	close(pages)
	if n := r.metric(acquired("steady")); n != 1 {
		t.Errorf("the steady stream has started %d times", n)
	}
	r.wantAll("steady", "sealed")
	wantSealed(t, r, cfg, first.UserID)
}

// wantSealed wants events of a forgotten subject, of others that can be read, and plain ones, each
// subject with one key, and keys that the second master key wraps.
func wantSealed(t *testing.T, r *reloading, cfg keyring.Config, forgotten string) {
	t.Helper()
	keys := must.Get(keyring.NewReader(t.Context(), cfg))(t)
	defer keys.Close()
	all := must.Get(keyring.Rewrap(t.Context(), cfg, false))(t)
	count, ids := make(map[string]int), make(map[string]string)
	client := reader(t, r.kafka, "export.sealed")
	defer client.Close()
	for n := 0; n < r.events; {
		client.PollFetches(t.Context()).EachRecord(func(rec *kgo.Record) {
			n++
			var e struct{ UserID, SessionID string }
			must.Do(t, json.Unmarshal(rec.Value, &e))
			_, err := keys.Open(t.Context(), "/sessionId", e.SessionID)
			switch {
			case errors.Is(err, seal.ErrNotSealed):
				count["plain"]++
				return
			case e.UserID == forgotten && errors.Is(err, seal.ErrForgotten):
				count["forgotten"]++
				return
			case err != nil || e.UserID == forgotten:
				t.Fatalf("%s: %v", rec.Value, err)
			}
			count["sealed"]++
			id := strings.Split(e.SessionID, ":")[1]
			if was, known := ids[e.UserID]; known && was != id {
				t.Errorf("subject %s has the keys %s and %s", e.UserID, was, id)
			}
			ids[e.UserID] = id
		})
	}
	if len(count) != 3 || all.Keys["m1"] == 0 || all.Keys["m2"] == 0 {
		t.Errorf("values %v, keys by master key %v: want some of each", count, all.Keys)
	}
}
