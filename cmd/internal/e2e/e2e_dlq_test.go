//go:build unix

package e2e_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/exportapi/exportsim"
)

// alteration returns an item as it is served, nil for not at all. i is the event's index.
type alteration func(i int, item []byte) []byte

// hiding leaves out events.
func hiding(hidden func(i int) bool) alteration {
	return func(i int, item []byte) []byte {
		if hidden(i) {
			return nil
		}
		return item
	}
}

// asServed serves all events as they are, and never is true of no event.
func asServed(_ int, item []byte) []byte { return item }
func never(int) bool                     { return false }

// padded makes an item larger.
func padded(item []byte, by int) []byte {
	return append([]byte(`{"pad":"`+strings.Repeat("x", by)+`",`), item[1:]...)
}

// withMember gives a member of an item another value.
func withMember(item []byte, member string, value any) []byte {
	return bytes.Replace(item, fmt.Appendf(nil, "%q:", member), fmt.Appendf(nil, `%q:%v,"was":`, member, value), 1)
}

// serve changes what is served.
func (h *altered) serve(change alteration) { h.change.Store(&change) }

// altered is a simulated export whose items a test changes or hides.
type altered struct {
	*exportsim.Handler
	change atomic.Pointer[alteration]
	// endless counts the requests with a cursor that named no end.
	endless atomic.Int64
}

// serveAltered serves the stage's export from the test process, in place of
// simulate.
func (s *stage) serveAltered(change alteration) *altered {
	s.t.Helper()
	h := &altered{Handler: s.truth}
	h.serve(change)
	server := httptest.NewServer(h)
	s.t.Cleanup(server.Close)
	s.api = server.URL
	s.settings["EXPORT_URL"] = s.api
	return h
}

func (h *altered) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	plain := r.Clone(r.Context())
	plain.Header.Del("Accept-Encoding")
	if query := r.URL.Query(); query.Has("cursor") && !query.Has("end") {
		h.endless.Add(1)
	}
	answer := httptest.NewRecorder()
	h.Handler.ServeHTTP(answer, plain)
	var page struct {
		Items                []json.RawMessage
		NextCursor, Metadata json.RawMessage
	}
	if answer.Code != http.StatusOK || json.Unmarshal(answer.Body.Bytes(), &page) != nil || page.Items == nil {
		w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
		w.WriteHeader(answer.Code)
		w.Write(answer.Body.Bytes()) // a client that is gone needs no answer
		return
	}
	var items [][]byte
	for _, item := range page.Items {
		i, ok := exportsim.IndexOf(item)
		if !ok {
			items = append(items, item)
		} else if changed := (*h.change.Load())(i, item); changed != nil {
			items = append(items, changed)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"items":[%s]`, bytes.Join(items, []byte(",")))
	for name, value := range map[string]json.RawMessage{"nextCursor": page.NextCursor, "metadata": page.Metadata} {
		if value != nil {
			fmt.Fprintf(w, `,%q:%s`, name, value)
		}
	}
	fmt.Fprint(w, "}")
}

// oneRecord is a record of the topic, as far as a repair decides it.
type oneRecord struct {
	origin, value, source, key string
}

// recordsByID reads the whole topic.
func (s *stage) recordsByID() map[string][]oneRecord {
	s.t.Helper()
	all := make(map[string][]oneRecord)
	s.eachRecord(s.topic, func(r *kgo.Record) {
		id := deadletter.Header(r, "ce_id")
		all[id] = append(all[id], oneRecord{deadletter.Header(r, "eb-origin"), string(r.Value),
			deadletter.Header(r, "ce_source"), string(r.Key)})
	})
	return all
}

// wantRepaired wants each of n events once, and of those that were repaired
// that they say so and are what the export serves.
func (s *stage) wantRepaired(n int, repaired func(i int) bool, served func(i int) []byte) {
	s.t.Helper()
	all := s.recordsByID()
	source := ""
	for i := range n {
		got, origin := all[exportsim.EventID(s.config.Seed, i)], "live"
		if repaired(i) {
			origin = "repair"
		}
		if served(i) == nil {
			if len(got) > 0 {
				s.t.Errorf("event %d is there %d times, want it nowhere", i, len(got))
			}
			continue
		}
		if source == "" && len(got) > 0 {
			source = got[0].source
		}
		if len(got) != 1 || got[0].origin != origin || got[0].value != string(served(i)) || got[0].source != source ||
			!strings.Contains(got[0].value, fmt.Sprintf("%q", got[0].key)) {
			s.t.Fatalf("event %d is there %d times, want it once with eb-origin %s: %.300v", i, len(got), origin, got)
		}
	}
}

// createTopic makes the stage's topic, before the bridge would.
func (s *stage) createTopic(configs map[string]string) {
	s.t.Helper()
	with := make(map[string]*string)
	for name, value := range configs {
		with[name] = &value
	}
	must.Get(s.admin().CreateTopic(s.t.Context(), 3, 1, with, s.topic))(s.t)
}

// aLetter is a line of dlq list and of dlq retry.
type aLetter struct {
	Letter, Reason, ID, Holds, Retried, From, Result, Detail string
	Size                                                     int
}

func (s *stage) letters(args ...string) (all []aLetter) {
	s.t.Helper()
	topic := cmp.Or(s.settings["KAFKA_DLQ_TOPIC"], "dlq."+s.topic)
	eventually(s.t, stepTimeout, "the marks of committed transactions, behind which letters are not visible",
		func() bool { return s.held(topic) == s.committed(topic) })
	p, _ := s.command(0, append([]string{"dlq", "list", "--json"}, args...)...)
	decode(s.t, p.stdout(), &all)
	return all
}

func (s *stage) retry(code int, args ...string) (all []aLetter) {
	s.t.Helper()
	p, _ := s.command(code, append([]string{"dlq", "retry", "--json"}, args...)...)
	decode(s.t, p.stdout(), &all)
	return all
}

// results counts what became of letters.
func results(all []aLetter) map[string]int {
	n := make(map[string]int)
	for _, one := range all {
		n[one.Result]++
	}
	return n
}

// TestE2EDeadLetters: events that were too large are fetched again when the
// topic takes them, also over kill -9; what has no readable time stays.
func TestE2EDeadLetters(t *testing.T) {
	t.Parallel()
	const n, pageSize = 300, 50
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
	s.settings["EXPORT_PAGE_SIZE"] = fmt.Sprint(pageSize)
	s.createTopic(map[string]string{"max.message.bytes": "20000"})
	large := func(i int) bool { return i%30 == 10 } // one is on the first page, which has no cursor
	broken := func(i int) bool { return i == 5 || i == 207 }
	serve := func(i int, item []byte) []byte {
		switch {
		case large(i):
			return padded(item, 30_000)
		case broken(i):
			return withMember(item, "timestamp", `"soon"`)
		}
		return item
	}
	s.serveAltered(serve)
	s.finish()

	all := s.letters()
	if len(all) != 12 || len(s.letters("--reason", "bad-timestamp")) != 2 ||
		len(s.letters("--limit", "3", "--since", "-1h")) != 3 {
		t.Fatalf("letters %+v, want 10 too large and 2 without a time", all)
	}
	var too aLetter
	for _, one := range all {
		if one.Retried != "" || (one.Holds == "bytes") != (one.Reason == "bad-timestamp") {
			t.Errorf("letter %+v", one)
		}
		shown, _ := s.command(0, "dlq", "show", one.Letter)
		if !bytes.Contains(shown.stdout(), []byte(one.Reason)) {
			t.Errorf("dlq show prints\n%s", shown.stdout())
		}
		if one.Holds == "position" {
			too = one
			s.command(1, "dlq", "show", one.Letter, "--raw")
			continue
		}
		i, _ := exportsim.Index(one.ID)
		raw, _ := s.command(0, "dlq", "show", one.Letter, "--raw")
		if want := serve(i, s.truth.Event(i)); !bytes.Equal(raw.stdout(), want) {
			t.Errorf("dlq show --raw prints\n%s\nwant\n%s", raw.stdout(), want)
		}
	}

	// Nothing can be published yet, and nothing is.
	published := func(i int) []byte {
		if large(i) || broken(i) {
			return nil
		}
		return serve(i, s.truth.Event(i))
	}
	if got := results(s.retry(1, "--all")); got["cannot be published"] != 12 {
		t.Errorf("a dry run says %v", got)
	}
	for _, one := range s.retry(1, "--all", "--execute") {
		if one.Result != "cannot be published" || one.Detail == "" {
			t.Errorf("letter %+v", one)
		}
	}
	s.wantRepaired(n, never, published)

	kafkatest.SetConfig(s.t, s.admin(), s.topic, "max.message.bytes", "200000")
	if got := results(s.retry(1, "--all")); got["would be published"] != 10 || got["cannot be published"] != 2 {
		t.Errorf("a dry run says %v", got)
	}
	s.wantRepaired(n, never, published)
	if got := results(s.retry(0, too.Letter, "--execute")); got["published"] != 1 {
		t.Errorf("one letter: %v", got)
	}
	killed := s.start("dlq", "retry", "--all", "--reason", "too-large", "--execute")
	eventually(t, stepTimeout, "a letter to be published",
		func() bool { return bytes.Count(killed.stdout(), []byte(" published\n")) > 2 })
	killed.kill()
	if got := results(s.retry(1, "--all", "--execute")); got["cannot be published"] != 2 ||
		got["published before"] < 4 || got["published"]+got["published before"] != 10 {
		t.Errorf("after a kill: %v", got)
	}
	if got := results(s.retry(0, "--all", "--reason", "too-large", "--execute")); got["published before"] != 10 {
		t.Errorf("once more: %v", got)
	}
	for _, one := range s.letters("--reason", "too-large") {
		if one.Retried == "" {
			t.Errorf("letter %+v is not marked as retried", one)
		}
	}
	s.finish() // the live stream goes on
	s.wantRepaired(n, large, func(i int) []byte {
		if broken(i) {
			return nil
		}
		return serve(i, s.truth.Event(i))
	})
}

// TestE2EDeadLettersOfAWrongResource: with the wrong resource no event has a
// readable time. With the right one they are published from the letters' bytes.
func TestE2EDeadLettersOfAWrongResource(t *testing.T) {
	t.Parallel()
	const n = 40
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
	s.settings["BRIDGE_STREAMS"], s.settings["STREAM_ORDERS_EXPORT_RESOURCE"], s.settings["EXPORT_PATH"] = "orders",
		"users", "/events"
	s.settings["BRIDGE_ON_BAD_EVENT"] = "dlq-all" // none of them can be read
	as := func(_ int, item []byte) []byte { return append([]byte(`{"lastModifiedTime":"noon",`), item[1:]...) }
	s.serveAltered(as)
	s.run("--once").wantExit(3, 10*time.Minute) // every item was a dead letter
	if all := s.letters(); len(all) != n || all[0].Holds != "bytes" {
		t.Fatalf("%d letters: %+v", len(all), all)
	}
	if got := results(s.retry(1, "--all", "--execute")); got["cannot be published"] != n {
		t.Errorf("by the wrong rules: %v", got)
	}
	s.settings["STREAM_ORDERS_EXPORT_RESOURCE"] = "events"
	for _, result := range []string{"published", "published before"} {
		if got := results(s.retry(0, "--all", "--execute")); got[result] != n {
			t.Errorf("by the right rules: %v, want %d %s", got, n, result)
		}
	}
	s.wantRepaired(n, func(int) bool { return true }, func(i int) []byte { return as(i, s.truth.Event(i)) })
	if got := s.recordsByID()[exportsim.EventID(s.config.Seed, 0)][0].source; got == "/orders" ||
		!strings.HasSuffix(got, "/events") {
		t.Errorf("ce_source is %q, want whose export it is, as the letters say", got)
	}
}
