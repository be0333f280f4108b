package kafkasink_test

import (
	"bytes"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/kafkastream"
)

// TestPrivateRecords: records name the rules that they have, and a dead letter has nothing
// of an item that is withheld but where it was.
func TestPrivateRecords(t *testing.T) {
	t.Parallel()
	for _, headers := range []string{"cloudevents", "minimal"} {
		cfg, s := ready(t, withHeaders(headers), func(c *kafkastream.Config) { c.Redacted = "rules/k1" })
		sums := bridge.NewSums(func([]byte) [32]byte { return [32]byte{1} }, nil, nil, false)
		withheld := bridge.Event{Sums: &sums, Defect: bridge.DefectPrivate, Time: bridge.NoTime}
		good := event("a", "u")
		publish(t, s, page(good, withheld))
		for _, topic := range cfg.Needs().Topics.Published() {
			records := consume(t, cfg, topic)
			if len(records) != 1 || deadletter.Header(records[0], "eb-redacted") != "rules/k1" {
				t.Fatalf("%s: topic %s has %v, want a record with the name of the rules", headers, topic, records)
			}
			if topic == cfg.Topic {
				continue
			}
			l := deadletter.Read(records[0])
			if l.Whole || l.Redacted != "rules/k1" || l.Cursor != "c+1/=" || l.Index != 1 || len(records[0].Key) > 0 {
				t.Errorf("%s: dead letter %+v", headers, l)
			}
			if same, unchanged := l.Names(&withheld); !same || !unchanged || bytes.Contains(records[0].Value, good.Raw) {
				t.Errorf("%s: dead letter %s does not name its item", headers, records[0].Value)
			}
		}
	}
	none := config(t, []string{"127.0.0.1:1"}, withHeaders("none"),
		func(c *kafkastream.Config) { c.Redacted = "rules/k1" })
	if err := none.Validate(); err == nil {
		t.Error("records without headers are accepted, which cannot name their rules")
	}
}
