//go:build unix

package e2e_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// unsealer opens encrypted values as the documents say, by means of its own, and judges what can
// be opened.
type unsealer struct {
	errorf    func(format string, args ...any)
	forgotten map[string]bool   // the subjects
	keys      map[string][]byte // that the topic has, by id
	used      map[string]string // the id of the key of each subject
	// sealed are the session ids that some record has encrypted, plain those that one has as they are.
	sealed, plain map[string]bool

	readable, unreadable, constants int // values
}

func newUnsealer(t *testing.T) *unsealer {
	return &unsealer{errorf: t.Errorf, forgotten: make(map[string]bool), used: make(map[string]string),
		sealed: make(map[string]bool), plain: make(map[string]bool)}
}

// load reads the topic of keys.
func (u *unsealer) load(s *stage) {
	s.t.Helper()
	u.keys = make(map[string][]byte)
	masters := make(map[string][]byte)
	for i, key := range masterKeys {
		masters[fmt.Sprintf("m%d", i+1)] = key
	}
	s.eachRecord(s.topic+".keys", func(r *kgo.Record) {
		_, id, _ := strings.Cut(string(r.Key), "/")
		var e struct{ Master, Key string }
		if len(r.Value) == 0 {
			delete(u.keys, id)
		} else if decode(s.t, r.Value, &e); e.Key != "" {
			key, err := decrypted(masters[e.Master], e.Key, string(r.Key))
			if err != nil {
				s.t.Errorf("the data key %s: %v", r.Key, err)
			}
			u.keys[id] = key
		}
	})
}

func decrypted(key []byte, text, authenticated string) ([]byte, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil || len(sealed) < 12 {
		return nil, fmt.Errorf("%d bytes: %w", len(sealed), err)
	}
	return aead.Open(nil, sealed[:12], sealed[12:], []byte(authenticated))
}

var (
	aSealed  = regexp.MustCompile(`"eb1:([^":]*):?`)
	aSession = regexp.MustCompile(`"sessionId":"([^"]+)"`)
)

// note counts the values of a record of an event.
func (u *unsealer) note(event, value []byte) {
	if u == nil {
		return
	}
	subject, session := string(aUser.FindSubmatch(event)[1]), aSession.FindSubmatch(event)[1]
	switch {
	case bytes.Contains(value, session):
		u.plain[string(session)] = true
	case bytes.Contains(value, []byte(`"sessionId":"eb1:`)):
		u.sealed[string(session)] = true
	}
	for _, found := range aSealed.FindAllSubmatch(value, -1) {
		id := string(found[1])
		_, opens := u.keys[id]
		switch {
		case id == "forgotten":
			u.constants++
			continue
		case opens:
			u.readable++
		default:
			u.unreadable++
		}
		if was := u.used[subject]; was != "" && was != id {
			u.errorf("subject %s has the keys %s and %s", subject, was, id)
		}
		u.used[subject] = id
	}
}

// opens reports whether a value is an event after rules: what they encrypt opens as it was, and
// does not open if the subject is forgotten.
func (u *unsealer) opens(t *testing.T, p *privacy, event, value []byte) bool {
	t.Helper()
	if p.encrypt == "" {
		return new(privacy).redacted(t, value) == p.redacted(t, event)
	}
	want, got := decodeExactly(t, []byte(p.redacted(t, event))), decodeExactly(t, value)
	forgotten := u.forgotten[string(aUser.FindSubmatch(event)[1])]
	for at := range strings.SplitSeq(p.encrypt, ",") {
		names := strings.Split(at, "/")[1:]
		in, out, last := parentOf(want, names), parentOf(got, names), names[len(names)-1]
		if in == nil || in[last] == nil || in[last] == "" {
			continue
		}
		text, _ := out[last].(string)
		parts := strings.Split(text, ":")
		switch key, found := u.keys[parts[min(1, len(parts)-1)]]; {
		case parts[0] != "eb1" || found == forgotten:
			return false
		case forgotten:
			in[last], out[last] = nil, nil
		case len(parts) != 3:
			return false
		default:
			plain, err := decrypted(key, parts[2], "eb1\x00"+parts[1]+"\x00"+at)
			if err != nil || !bytes.Contains(event, plain) || !json.Valid(plain) {
				return false
			}
			out[last] = decodeExactly(t, plain)
		}
	}
	return reflect.DeepEqual(want, got)
}

// parentOf returns the object with the last of some names, nil if there is none.
func parentOf(v any, names []string) map[string]any {
	object, _ := v.(map[string]any)
	if len(names) == 1 {
		return object
	}
	return parentOf(object[names[0]], names[1:])
}

// forgetter forgets subjects while a bridge runs and dies.
type forgetter struct {
	s      *stage // of its own
	random *rand.Rand
	seals  *unsealer
	kills  int
}

func newForgetter(s *stage, seed uint64, seals *unsealer) *forgetter {
	own := *s
	own.started = 9000
	return &forgetter{s: &own, random: rand.New(rand.NewPCG(seed, 11)), seals: seals}
}

// during forgets the subject of an event that is published about now, while keys are wrapped again.
// The command is killed too, and repeated.
func (f *forgetter) during(settings map[string]string, next int, do func()) {
	f.s.settings = maps.Clone(settings)
	subject := string(aUser.FindSubmatch(f.s.truth.Event(next + f.random.IntN(200)))[1])
	f.seals.forgotten[subject] = true
	before, dies, until := f.random.IntN(500), f.random.IntN(2) == 0, f.random.IntN(500)
	var running sync.WaitGroup
	running.Go(func() {
		passes(time.Duration(before) * time.Millisecond)
		rewrap := f.s.start("keys", "rewrap", "--execute")
		if dies {
			p := f.s.start("forget", subject, "--execute")
			passes(time.Duration(until) * time.Millisecond)
			p.kill()
			f.kills++
		}
		for _, p := range []*program{f.s.start("forget", subject, "--execute"), rewrap} {
			if code := p.wait(outageTimeout); code != 0 {
				f.s.t.Errorf("%s ended with exit code %d\n%s", p.name, code, tail(p.stderr()))
			}
		}
	})
	do()
	running.Wait()
}

// wantForgotten wants values that are readable, and values of the forgotten: unreadable ones,
// constants, or both, by the moment at which they were forgotten. It wants no session id in any
// place if each record with it has it encrypted.
func (u *unsealer) wantForgotten(s *stage) {
	s.t.Helper()
	maps.DeleteFunc(u.sealed, func(id string, _ bool) bool { return u.plain[id] })
	searched := s.wantNowhere(u.sealed)
	if u.readable == 0 || u.unreadable+u.constants == 0 || len(u.sealed) == 0 || searched == 0 {
		s.t.Errorf("%d values are readable, %d are not, %d are constants, %d session ids were searched for in %d texts: "+
			"want some readable, some of the forgotten, and some searched for", u.readable, u.unreadable, u.constants, len(u.sealed), searched)
	}
}
