//go:build unix

package e2e_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/exportapi/exportsim"
)

// redacted is an independent redactor: it decodes an item, and applies the rules of
// TestE2EPrivate with a key.
func redacted(t *testing.T, item, key []byte) (want map[string]any) {
	t.Helper()
	if err := json.Unmarshal(item, &want); err != nil {
		t.Fatal(err)
	}
	if context, ok := want["context"].(map[string]any); ok {
		delete(context, "url")
		delete(context, "metadata")
	}
	if user, ok := want["userId"].(string); ok {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(user))
		want["userId"] = base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}
	return want
}

// encoded returns an item with sorted members.
func encoded(t *testing.T, item map[string]any) string {
	t.Helper()
	text, err := json.Marshal(item)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestE2EPrivate: events without ids are published once each while rules are turned on and a
// key is rotated. What an independent redactor leaves is in the topic. An item that the rules
// do not suit is a dead letter without its value, and is fetched again. verify compares
// records of all rules. Another first key, and none, block the stream.
func TestE2EPrivate(t *testing.T) {
	t.Parallel()
	const n, on, rotated, odd = 410, 170, 290, 320
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n, Schema: exportsim.Schema05})
	s.settings["EXPORT_PAGE_SIZE"] = "50"
	s.serveAltered(func(i int, item []byte) []byte {
		if i == odd {
			return bytes.Replace(item, []byte(`"context":`), []byte(`"context":"secret","was":`), 1)
		}
		return item
	})
	keys := [][]byte{bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)}
	line := func(id string, key []byte) string { return id + " " + base64.StdEncoding.EncodeToString(key) + "\n" }
	file := filepath.Join(t.TempDir(), "keys")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.truth.SetStock(on)
	s.finish()
	s.settings["EVENT_DROP"], s.settings["EVENT_HASH"] = "/context/url,/context/metadata", "/userId"
	s.settings["EVENT_HASH_KEY_FILE"] = file
	write(line("k1", keys[0]))
	s.truth.SetStock(rotated)
	s.finish()
	write(line("k1", keys[0]) + line("k2", keys[1]))
	s.truth.SetStock(n)
	s.finish()

	known := make(map[string]bool) // what an event becomes, with each key
	for i := range n {
		for _, key := range keys {
			known[encoded(t, redacted(t, s.truth.Event(i), key))+string(key)] = true
		}
	}
	found := 0
	s.eachRecord(s.topic, func(r *kgo.Record) {
		h := make(map[string]string)
		for _, header := range r.Headers {
			h[header.Key] = string(header.Value)
		}
		found++
		if rules := h["eb-redacted"]; rules != "" {
			key := keys[0]
			if strings.HasSuffix(rules, "/k2") {
				key = keys[1]
			}
			var got map[string]any
			if err := json.Unmarshal(r.Value, &got); err != nil {
				t.Fatal(err)
			}
			if got["userId"] != string(r.Key) || h["ce_subject"] != string(r.Key) {
				t.Errorf("record with key %q and subject %q: %s", r.Key, h["ce_subject"], r.Value)
			}
			if !known[encoded(t, got)+string(key)] {
				t.Errorf("no event becomes %s", r.Value)
			}
		}
	})
	if found != n-1 {
		t.Errorf("%d records, want %d", found, n-1)
	}
	s.eachRecord("dlq."+s.topic, func(r *kgo.Record) {
		if text := string(r.Value) + string(r.Key); strings.Contains(text, "secret") || len(r.Key) > 0 {
			t.Errorf("dead letter %q", text)
		}
	})
	from, to := s.times()
	if got := s.verify(0, from, to); got.API != n || got.Held != n-1 || got.DeadLettered != 1 || got.Missing != 0 ||
		got.Extra != 0 || got.Again != 0 {
		t.Errorf("%+v, want all but one held", got)
	}
	if letters := s.letters(); len(letters) != 1 || letters[0].Reason != "private-data" || letters[0].Holds != "position" {
		t.Errorf("letters %+v, want one without its value", letters)
	}
	if got := results(s.retry(1, "--all", "--execute")); got["cannot be published"] != 1 {
		t.Errorf("the item is as it was: %v", got)
	}
	s.settings["EVENT_DROP"] = "/context"
	if got := results(s.retry(0, "--all", "--execute")); got["published"] != 1 {
		t.Errorf("with a rule that suits the item: %v", got)
	}
	if got := s.verify(0, from, to); got.Held != n || got.Missing != 0 || got.Extra != 0 || got.Again != 0 {
		t.Errorf("%+v, want all held", got)
	}

	write(line("k2", keys[1]))
	s.run("--once").wantExit(5, time.Minute)
	delete(s.settings, "EVENT_DROP")
	delete(s.settings, "EVENT_HASH")
	delete(s.settings, "EVENT_HASH_KEY_FILE")
	s.run("--once").wantExit(5, time.Minute)
}
