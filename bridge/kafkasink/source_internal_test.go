package kafkasink

import (
	"bytes"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkarecord"
)

// The header values of a page are in one piece of memory, however long they are: pieces
// that were outgrown and are pointed to took five times as much as the values.
func TestHeaderTextsShareMemory(t *testing.T) {
	t.Parallel()
	b := newBuilder(Config{Stream: "events", Resource: "events"})
	p, page := ownRecords(), &bridge.Page{}
	for range 500 {
		page.Events = append(page.Events, bridge.Event{Raw: []byte("{}"), Type: bytes.Repeat([]byte("t"), 3000), Time: 1})
	}
	topics := kafkaclient.Described{Events: &kafkaclient.Topic{Settings: kafkaclient.Settings{MaxMessage: 1 << 20}}}
	must.Get(b.build(p, page, &topics))(t)
	if id := p.records[0].Headers[1]; id.Key != kafkarecord.HeaderID || &id.Value[0] != &p.text[0] {
		t.Error("the memory of the first header's value was outgrown")
	}
}
