//go:build unix

package e2e_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/bridge/kafkarecord"
)

// privacy is a set of rules for private data, as an independent redactor applies it.
type privacy struct {
	drop, hash, mask string // as the settings have them
	keys             int    // of privateKeys, in the key file; the last one hashes
	encrypt          string // as the setting has it
	masters          int    // of masterKeys, in the file of master keys
}

var (
	privateKeys = [][]byte{bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)}
	masterKeys  = [][]byte{bytes.Repeat([]byte{3}, 32), bytes.Repeat([]byte{4}, 32)}
)

func decodeExactly(t *testing.T, item []byte) (value any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(item))
	d.UseNumber()
	must.Do(t, d.Decode(&value))
	return value
}

// redacted decodes an item, applies the rules but for those that encrypt, and encodes it with
// sorted members.
func (p *privacy) redacted(t *testing.T, item []byte) string {
	t.Helper()
	all := decodeExactly(t, item)
	for _, rule := range []struct {
		pointers string
		do       func(text string) string
	}{{p.drop, nil}, {p.hash, p.sum}, {p.mask, starred}} {
		for at := range strings.SplitSeq(rule.pointers, ",") {
			pointer, some := strings.CutSuffix(at, ":last4")
			do := rule.do
			if some {
				do = masked
			}
			changeMember(all, strings.Split(pointer, "/")[1:], do)
		}
	}
	text := must.Get(json.Marshal(all))(t)
	return string(text)
}

func changeMember(v any, names []string, do func(text string) string) {
	object, ok := v.(map[string]any)
	if !ok || len(names) == 0 {
		return
	}
	value, ok := object[names[0]]
	switch text := fmt.Sprint(value); {
	case !ok:
	case len(names) > 1:
		changeMember(value, names[1:], do)
	case do == nil:
		delete(object, names[0])
	case value != nil && text != "":
		object[names[0]] = do(text)
	}
}

func (p *privacy) sum(text string) string {
	mac := hmac.New(sha256.New, privateKeys[p.keys-1])
	mac.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func starred(text string) string { return strings.Repeat("*", utf8.RuneCountInString(text)) }

func masked(text string) string {
	runes := []rune(text)
	hidden := len(runes) - min(4, len(runes)/2)
	return strings.Repeat("*", hidden) + string(runes[hidden:])
}

// hide sets the rules for the next process.
func (s *stage) hide(p privacy) {
	s.t.Helper()
	s.settings["EVENT_DROP"], s.settings["EVENT_HASH"], s.settings["EVENT_MASK"] = p.drop, p.hash, p.mask
	s.settings["EVENT_ENCRYPT"] = p.encrypt
	s.settings["EVENT_HASH_KEY_FILE"] = s.keyFile("k", privateKeys[:p.keys])
	s.settings["EVENT_ENCRYPT_KEY_FILE"] = s.keyFile("m", masterKeys[:p.masters])
}

// keyFile writes a file with keys, and returns its name. It is empty without keys.
func (s *stage) keyFile(prefix string, keys [][]byte) string {
	s.t.Helper()
	if len(keys) == 0 {
		return ""
	}
	var lines strings.Builder
	for i, key := range keys {
		fmt.Fprintf(&lines, "%s%d %s\n", prefix, i+1, base64.StdEncoding.EncodeToString(key))
	}
	file := filepath.Join(s.dir, "keys-"+prefix)
	must.Do(s.t, os.WriteFile(file, []byte(lines.String()), 0o600))
	return file
}

// redactions judges the records of a stream whose rules change.
type redactions struct {
	t    *testing.T
	sets []privacy
	// named has the sets that agree with all records so far, by eb-redacted.
	named map[string][]privacy
	// seals opens encrypted values; nil without.
	seals *unsealer
}

func newRedactions(t *testing.T) *redactions {
	const drop, user = "/context/url,/context/metadata", "/userId"
	return &redactions{t: t, named: make(map[string][]privacy), sets: []privacy{
		{}, {drop: drop, hash: user, keys: 1}, {hash: user, mask: "/sessionId:last4", keys: 1},
		{hash: user, mask: "/sessionId:last4", keys: 2}, {drop: drop, mask: "/sessionId:last4", hash: user, keys: 2},
		{drop: drop, hash: user, keys: 2},
		{drop: drop, mask: "/sessionId:last4", hash: user, keys: 2, encrypt: "/context/tabId", masters: 1},
		{hash: user, keys: 2, encrypt: "/context,/sessionId", masters: 1},
		{drop: drop, hash: user, keys: 2, encrypt: "/sessionId", masters: 2},
	}}
}

// agree reports whether a record is what some set makes of the event, the same set for all
// records that name it. Without sets, the value is the event.
func (r *redactions) agree(event []byte, record *kgo.Record) bool {
	if r == nil {
		return bytes.Equal(event, record.Value)
	}
	r.seals.note(event, record.Value)
	name := deadletter.Header(record, kafkarecord.HeaderRedacted)
	sets, known := r.named[name]
	if !known {
		sets = r.sets
	}
	r.named[name] = slices.DeleteFunc(slices.Clone(sets), func(p privacy) bool {
		return (name == "") != (p.keys == 0) || !r.seals.opens(r.t, &p, event, record.Value)
	})
	return len(r.named[name]) > 0
}

// wantAll wants records of all sets, each with a name of its own.
func (r *redactions) wantAll() {
	r.t.Helper()
	seen := make(map[privacy]bool)
	for name, sets := range r.named {
		if len(sets) != 1 {
			r.t.Errorf("the name %q of rules may be of %d sets", name, len(sets))
			continue
		}
		seen[sets[0]] = true
	}
	if len(seen) != len(r.sets) || len(r.named) != len(r.sets) {
		r.t.Errorf("%d names of %d sets of rules, want all %d", len(r.named), len(seen), len(r.sets))
	}
}

var (
	anID  = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	aUser = regexp.MustCompile(`"userId":"([^"]+)"`)
)

// only has the stage run with one set of rules from its start on.
func (s *stage) only(p privacy) {
	s.t.Helper()
	s.hide(p)
	s.private = newRedactions(s.t)
	s.private.sets = []privacy{p}
}

// wantHidden wants no user of the first n events in any topic of the stage, in Redis and in
// what the processes said.
func (s *stage) wantHidden(n int) {
	s.t.Helper()
	users := make(map[string]bool)
	for i := range n {
		if found := aUser.FindSubmatch(s.truth.Event(i)); found != nil {
			users[string(found[1])] = true
		}
	}
	if searched := s.wantNowhere(users); len(users) == 0 || searched < n/2 {
		s.t.Errorf("%d users were searched for in %d texts", len(users), searched)
	}
}

// wantNowhere wants none of some ids in any topic of the stage, in Redis and in what the
// processes said. It returns the number of texts.
func (s *stage) wantNowhere(ids map[string]bool) (searched int) {
	s.t.Helper()
	search := func(where string, text []byte) {
		searched++
		for _, id := range anID.FindAll(text, -1) {
			if ids[string(id)] {
				s.t.Errorf("%s has %s", where, id)
				return
			}
		}
	}
	topics := must.Get(s.admin().ListTopics(s.t.Context()))(s.t)
	for _, topic := range topics.Names() {
		if strings.Contains(topic, s.topic) {
			s.eachRecord(topic, func(r *kgo.Record) {
				search("topic "+topic, fmt.Appendf(nil, "%s %s %s", r.Key, r.Value, r.Headers))
			})
		}
	}
	store := s.redis()
	for _, key := range store.Keys(s.t.Context(), "*"+s.topic+"*").Val() {
		pipe := store.Pipeline()
		pipe.Get(s.t.Context(), key)
		pipe.HGetAll(s.t.Context(), key)
		pipe.LRange(s.t.Context(), key, 0, -1)
		pipe.ZRange(s.t.Context(), key, 0, -1)
		all, _ := pipe.Exec(s.t.Context()) // one of them is of the key's kind
		search("key "+key, fmt.Append(nil, key, all))
	}
	s.eachOutput(func(name string, content []byte) { search(name, content) })
	return searched
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
	private := newRedactions(t)
	private.sets = []privacy{{}, {drop: "/context/url,/context/metadata", hash: "/userId", mask: "/sessionId", keys: 1},
		{drop: "/context/url,/context/metadata", hash: "/userId", keys: 2}}
	for i, stock := range []int{on, rotated, n} {
		s.truth.SetStock(stock)
		s.hide(private.sets[i])
		s.finish()
	}
	found := 0
	s.eachRecord(s.topic, func(r *kgo.Record) {
		found++
		i, _ := exportsim.IndexOf(r.Value)
		if !private.agree(s.truth.Event(i), r) {
			t.Errorf("no rules make %s of event %d", r.Value, i)
		}
		if subject := deadletter.Header(r, "ce_subject"); subject != string(r.Key) || !bytes.Contains(r.Value, r.Key) {
			t.Errorf("record with key %q and subject %q: %s", r.Key, subject, r.Value)
		}
	})
	private.wantAll()
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
	suits := privacy{drop: "/context", hash: "/userId", keys: 2}
	s.hide(suits)
	s.command(2, "dlq", "retry", "--all", "--execute") // not yet the rules of the stream
	s.finish()
	if got := results(s.retry(0, "--all", "--execute")); got["published"] != 1 {
		t.Errorf("with a rule that suits the item: %v", got)
	}
	if got := s.verify(0, from, to); got.Held != n || got.Missing != 0 || got.Extra != 0 || got.Again != 0 {
		t.Errorf("%+v, want all held", got)
	}

	must.Do(t, os.WriteFile(s.settings["EVENT_HASH_KEY_FILE"], fmt.Appendf(nil, "k2 %s\n",
		base64.StdEncoding.EncodeToString(privateKeys[1])), 0o600))
	s.run("--once").wantExit(5, time.Minute)
	s.hide(privacy{})
	s.run("--once").wantExit(5, time.Minute)
}
