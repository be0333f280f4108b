package kafkarecord

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
)

// A stream whose KAFKA_CE_SOURCE is set while it runs knows its older records,
// and never those of another tenant.
func TestSourcesOfRecords(t *testing.T) {
	t.Parallel()
	shop := bridge.SourceIdentity{Organization: "acme", Application: "shop"}
	web := bridge.SourceIdentity{Organization: "globex", Application: "web"}
	var none bridge.SourceIdentity
	const set, ofShop, ofWeb, unnamed = "/acme/main/events", "/acme/shop/events", "/globex/web/events", "/events"
	for _, c := range []struct {
		setting      string
		of           bridge.SourceIdentity
		record       string
		mark, others bool
	}{
		{"", shop, ofShop, true, false}, {"", shop, ofWeb, false, true},
		{"", shop, unnamed, false, false}, {"", shop, "", true, false},
		{"", none, ofShop, false, false}, {"", none, unnamed, true, false},
		{set, shop, set, true, false}, {set, shop, ofShop, true, false},
		{set, shop, ofWeb, false, true}, {set, shop, unnamed, false, false},
		{set, web, ofShop, false, true}, {set, shop, "", true, false},
		{set, none, set, true, false}, {set, none, unnamed, true, false}, {set, none, ofShop, false, true},
	} {
		r := new(kgo.Record)
		if c.record != "" {
			r.Headers = []kgo.RecordHeader{{Key: HeaderSource, Value: []byte(c.record)}}
		}
		n := Naming{Stream: "events", Resource: "events", Source: c.setting}
		s := n.sourcesOf(c.of)
		if mark, others := s.mayHave(r), s.isOthers(r); mark != c.mark || others != c.others {
			t.Errorf("setting %q, source %+v, record %q: may be of it %t, another's %t", c.setting, c.of, c.record, mark, others)
		}
	}
}
