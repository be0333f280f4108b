package kafkasink

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// A stream whose KAFKA_CE_SOURCE is set while it runs knows its older records,
// and never those of another tenant.
func TestSourcesOfRecords(t *testing.T) {
	t.Parallel()
	shop, web := bridge.SourceIdentity{Organization: "acme", Application: "shop"}, bridge.SourceIdentity{Organization: "globex", Application: "web"}
	const set, ofShop, ofWeb, unnamed = "/acme/main/events", "/acme/shop/events", "/globex/web/events", "/events"
	for _, c := range []struct {
		setting      string
		of           bridge.SourceIdentity
		record       string
		mark, others bool
	}{
		{"", shop, ofShop, true, false}, {"", shop, ofWeb, false, true}, {"", shop, unnamed, false, false}, {"", shop, "", true, false},
		{"", bridge.SourceIdentity{}, ofShop, false, false}, {"", bridge.SourceIdentity{}, unnamed, true, false},
		{set, shop, set, true, false}, {set, shop, ofShop, true, false}, {set, shop, ofWeb, false, true}, {set, shop, unnamed, false, false},
		{set, web, ofShop, false, true}, {set, shop, "", true, false},
		{set, bridge.SourceIdentity{}, set, true, false}, {set, bridge.SourceIdentity{}, unnamed, true, false}, {set, bridge.SourceIdentity{}, ofShop, false, true},
	} {
		r := new(kgo.Record)
		if c.record != "" {
			r.Headers = []kgo.RecordHeader{{Key: HeaderSource, Value: []byte(c.record)}}
		}
		s := sourcesOf(Config{Stream: "events", Resource: "events", Source: c.setting}, c.of)
		if mark, others := s.mayHave(r), s.isOthers(r); mark != c.mark || others != c.others {
			t.Errorf("setting %q, source %+v, record %q: may be of it %t, another's %t", c.setting, c.of, c.record, mark, others)
		}
	}
}

// The header values of a page are in one piece of memory, however long they are: pieces
// that were outgrown and are pointed to took five times as much as the values.
func TestHeaderTextsShareMemory(t *testing.T) {
	t.Parallel()
	b := newBuilder(Config{Stream: "events", Resource: "events"})
	p, page := ownRecords(), &bridge.Page{}
	for range 500 {
		page.Events = append(page.Events, bridge.Event{Raw: []byte("{}"), Type: bytes.Repeat([]byte("t"), 3000), Time: 1})
	}
	if _, err := b.build(p, page, &session{topics: kafkaclient.Described{Events: &kafkaclient.Topic{Settings: kafkaclient.Settings{MaxMessage: 1 << 20}}}}); err != nil {
		t.Fatal(err)
	}
	if id := p.records[0].Headers[1]; id.Key != HeaderID || &id.Value[0] != &p.text[0] {
		t.Error("the memory of the first header's value was outgrown")
	}
}
