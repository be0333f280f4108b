package kafkasink_test

import (
	"errors"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/kafkarecord"
	"exportbridge/bridge/kafkastream"
)

// An event that differs from its schema is published and counted, or it is a bad event.
func TestMismatch(t *testing.T) {
	t.Parallel()
	events := func() *bridge.Page {
		return page(
			bridge.Event{Raw: []byte(`{"id":"1"}`), ID: []byte("1"), Time: bridge.NoTime},
			bridge.Event{Raw: []byte(`{"id":2}`), ID: []byte("2"), Time: bridge.NoTime,
				Mismatch: bridge.NewMismatch([]bridge.Difference{{Pointer: "/id", Text: "is number, want string"}})})
	}
	const message = "differs from EVENT_SCHEMA: /id is number, want string"
	for name, tc := range map[string]struct {
		onMismatch, onBad  string
		published, letters int
	}{
		"published":    {"publish", "stop", 2, 0},
		"dead letters": {"bad-event", "dlq", 1, 1},
		"rejected":     {"bad-event", "stop", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, s := ready(t, func(c *kafkastream.Config) { c.OnMismatch, c.OnBadEvent = tc.onMismatch, tc.onBad })
			if tc.published == 0 {
				err := s.Send(t.Context(), events())
				f := bridge.FaultOf(err)
				if !errors.Is(err, bridge.ErrRejected) || f.Reason != bridge.ReasonEvent || !strings.Contains(f.Error(), message) ||
					!strings.Contains(f.Hint, "BRIDGE_ON_SCHEMA_MISMATCH=publish") {
					t.Errorf("%v, hint %q", err, f.Hint)
				}
				return
			}
			r := publish(t, s, events())
			if r.Published != tc.published || r.DeadLettered[bridge.DefectMismatch] != tc.letters || r.Mismatched != 1 {
				t.Errorf("receipt %+v", r)
			}
			letters := consume(t, cfg, cfg.DeadTopic())
			if len(letters) != tc.letters {
				t.Fatalf("%d letters, want %d", len(letters), tc.letters)
			}
			for _, l := range letters {
				if got := deadletter.Header(l, kafkarecord.HeaderErrorMessage); !strings.Contains(got, message) ||
					string(l.Value) != `{"id":2}` {
					t.Errorf("the letter of %s says %q", l.Value, got)
				}
			}
		})
	}
}
