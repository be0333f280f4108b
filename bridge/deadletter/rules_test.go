package deadletter_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/fakelog"
	"exportbridge/bridge/deadletter"
)

// TestRetryOtherRules: a letter under other rules for private data is refused. Rules that encrypt have the same name in
// older versions, without the subject.
func TestRetryOtherRules(t *testing.T) {
	t.Parallel()
	for rules, want := range map[string]deadletter.Outcome{
		"a" + bridge.EncryptedFor("/u") + bridge.IDsChanged: deadletter.Published,
		"a+enc+ids": deadletter.Published,
		"a" + bridge.EncryptedFor("/v") + bridge.IDsChanged: deadletter.Refused,
		"a+enc": deadletter.Refused, "b+enc+ids": deadletter.Refused, "a+ids": deadletter.Refused,
	} {
		w := newWorld(t)
		place := w.add(item("a"), "eb-reason", string(bridge.DefectMismatch), "eb-redacted", rules, "ce_id", "a")
		var got deadletter.Outcome
		r := w.retrying(func(one deadletter.Retried) error { got = one.Result; return nil })
		r.Redacted = "a" + bridge.EncryptedFor("/u") + bridge.IDsChanged
		if err := r.Run(t.Context(), []deadletter.Place{place}); err != nil || got != want {
			t.Errorf("a letter under %s: %s, %v; want %s", rules, got, err, want)
		}
	}
}

// TestRetryChanged: a changed event is another one than that of an earlier retry, unless rules for private data may have
// changed its bytes.
func TestRetryChanged(t *testing.T) {
	t.Parallel()
	encrypted := "a" + bridge.EncryptedFor("/u")
	for _, test := range []struct {
		before, now string
		want        deadletter.Outcome
	}{
		{"", "", deadletter.Published}, {"a", "a", deadletter.Published},
		{encrypted, encrypted, deadletter.Duplicate},
		{"", "a", deadletter.Duplicate}, {"", encrypted, deadletter.Duplicate},
		{"a", "", deadletter.Duplicate}, {encrypted, "", deadletter.Duplicate},
	} {
		w := newWorld(t)
		for form, want := range []deadletter.Outcome{deadletter.Published, test.want, deadletter.Duplicate} {
			letter := w.whole(fmt.Sprintf(`{"eventId":"s","timestamp":1,"form":%d}`, form%2), bridge.DefectTime)
			var got deadletter.Outcome
			r := w.retrying(func(one deadletter.Retried) error { got = one.Result; return nil })
			if r.Redacted = test.now; form == 0 {
				r.Redacted = test.before
			}
			if err := r.Run(t.Context(), []deadletter.Place{letter}); err != nil || got != want {
				t.Errorf("rules %q, then %q: letter %d is %s, %v; want %s", test.before, test.now, form, got, err, want)
			}
		}
	}
}

// keyless is a Source that cannot have the keys of encrypted values.
type keyless struct{ deadletter.Source }

var errKeys = &bridge.Fault{Class: bridge.Transient, Code: "event_keys", Err: errors.New("no keys")}

func (keyless) DecodeItem([]byte) (*bridge.Page, error) { return nil, errKeys }

// TestRetryWithoutKeys: without the keys of encrypted values nothing is known about an item. The retry ends: it neither
// refuses the letter, nor publishes an event again that it has not recognized in the topic.
func TestRetryWithoutKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	letter, hidden := w.letter("a"), w.add(item("b"), "eb-reason", string(bridge.DefectTime), "eb-redacted", "a", "ce_id", "b")
	try := func(source deadletter.Source, letter deadletter.Place) (results []deadletter.Outcome, err error) {
		w.publisher.open()
		r := w.retrying(func(one deadletter.Retried) error { results = append(results, one.Result); return nil })
		r.Source, r.Redacted = source, "a"
		return results, r.Run(t.Context(), []deadletter.Place{letter})
	}
	if got, err := try(keyless{w.source}, letter); !errors.Is(err, errKeys) || len(got) > 0 {
		t.Errorf("%v, %v; want the fault", got, err)
	}
	if got, err := try(keyless{w.source}, hidden); err != nil || !slices.Equal(got, []deadletter.Outcome{deadletter.Published}) {
		t.Errorf("a letter under the rules: %v, %v", got, err)
	}
	w.events.Append(0, fakelog.Record(written, item("b"))) // as of BRIDGE_HEADERS=none
	w.events.Delete(0, 1)
	if got, err := try(keyless{w.source}, hidden); !errors.Is(err, errKeys) || len(got) > 0 {
		t.Errorf("without headers: %v, %v; want the fault", got, err)
	}
}
