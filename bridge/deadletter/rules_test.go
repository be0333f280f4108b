package deadletter_test

import (
	"testing"

	"exportbridge/bridge"
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
