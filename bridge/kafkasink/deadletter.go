package kafkasink

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkarecord"
)

// maxKeptHeader bounds the key and header values of an event in a small dead
// letter.
const maxKeptHeader = 256

// deadLetter is an event that cannot be published to the topic.
type deadLetter struct {
	page   *bridge.Page
	event  *bridge.Event
	defect bridge.Defect
	size   int                // of the record, if it is too large
	to     *kafkaclient.Topic // that the event is for
}

// divert builds a dead letter, or rejects the page.
func (b *builder) divert(made *builtPage, l deadLetter) error {
	if made.letters == nil {
		hint := "set BRIDGE_ON_BAD_EVENT=dlq to send such events to topic " + b.cfg.DeadTopic()
		if l.defect == bridge.DefectMismatch {
			hint = "correct EVENT_SCHEMA, or set BRIDGE_ON_SCHEMA_MISMATCH=publish, or " + hint
		}
		return bridge.Blockf(string(l.defect), bridge.ReasonEvent, hint,
			"%s: %s", nameItem(l.page, l.event), l.message(b.cfg.TimePointer))
	}
	rec := b.deadLetter(made, l)
	if l.defect == bridge.DefectTooLarge || l.event.Withheld() ||
		recordSize(&rec) > made.letters.Settings.MaxMessage {
		rec = smallDeadLetter(made.letters, l, rec)
	}
	b.to.records = append(b.to.records, rec)
	if made.receipt.DeadLettered == nil {
		made.receipt.DeadLettered = make(map[bridge.Defect]int)
	}
	made.receipt.DeadLettered[l.defect]++
	return nil
}

func text(key, value string) kgo.RecordHeader {
	return kgo.RecordHeader{Key: key, Value: []byte(value)}
}

// deadLetter returns a record with the unmodified item. Its timestamp is the
// publish time: with an old event time retention might delete it unread.
func (b *builder) deadLetter(made *builtPage, l deadLetter) kgo.Record {
	stage := "decode"
	if l.defect == bridge.DefectTooLarge {
		stage = "publish"
	}
	headers := []kgo.RecordHeader{
		text(kafkarecord.HeaderErrorTopic, l.to.Name),
		text(kafkarecord.HeaderErrorMessage, l.message(b.cfg.TimePointer)),
		text(kafkarecord.HeaderStage, stage),
		text(kafkarecord.HeaderReason, string(l.defect)),
		text(kafkarecord.HeaderCursorHash, bridge.CursorHash(l.page.At.Cursor)),
		text(kafkarecord.HeaderIndex, strconv.Itoa(l.event.Index)),
	}
	headers = append(headers, b.eventHeaders(l.event)...)
	if b.cfg.Headers == headersNone {
		headers = append(headers, b.constants.stream) // by which Holds finds the stream's letters
	}
	value := l.event.Raw
	if value == nil {
		value = []byte{} // nil would be a tombstone
	}
	return kgo.Record{
		Topic: made.letters.Name, Key: slices.Clip(l.event.Key), Value: value, Timestamp: made.now, Headers: headers,
	}
}

// smallDeadLetter returns a dead letter without long headers, and with a substitute for the
// item: it fits any usable topic, and has none of the item's private data.
func smallDeadLetter(to *kafkaclient.Topic, l deadLetter, rec kgo.Record) kgo.Record {
	if len(rec.Key) > maxKeptHeader {
		rec.Key = nil
	}
	kept := rec.Headers[:0]
	for _, h := range rec.Headers {
		if len(h.Value) <= maxKeptHeader {
			kept = append(kept, h)
		}
	}
	at := &l.page.At
	kept = append(kept, text(kafkarecord.HeaderStart, strconv.FormatInt(at.Start, 10)),
		text(kafkarecord.HeaderEnd, strconv.FormatInt(at.End, 10)))
	rec.Headers = kept
	sub := kafkarecord.Substitute{
		ID: bridge.CutID(string(l.event.AppendRecordID(nil))), Size: len(l.event.Raw), SHA256: l.event.Sum(),
		Cursor: l.page.At.Cursor, Index: l.event.Index,
	}
	rec.Value = sub.Encode()
	if recordSize(&rec) > to.Settings.MaxMessage {
		sub.Cursor = "" // its hash is in the headers
		rec.Value = sub.Encode()
	}
	return rec
}

// message describes the defect of the event, whose time should be at timePointer.
func (d *deadLetter) message(timePointer string) string {
	switch d.defect {
	case bridge.DefectTooLarge:
		return fmt.Sprintf("the record takes %d bytes, topic %s takes %d", d.size, d.to.Name, d.to.Settings.MaxMessage)
	case bridge.DefectMismatch:
		return "the event differs from EVENT_SCHEMA: " + d.event.Mismatch.String()
	}
	return cmp.Or(map[bridge.Defect]string{
		bridge.DefectNotObject: "the item is not a JSON object",
		bridge.DefectTime:      strings.TrimSuffix("the item has no readable time at "+timePointer, " at "),
		bridge.DefectBadText:   "the item has invalid UTF-8, a control character, an unknown escape or NaN",
		bridge.DefectSharedID:  "another item of its page has the same id",
		bridge.DefectPrivate: "a rule of EVENT_DROP, EVENT_HASH, EVENT_MASK or EVENT_ENCRYPT cannot be applied with " +
			"certainty: a member occurs twice, a value on its way is of another kind, or values to encrypt have no subject; " +
			"the item is not kept",
	}[d.defect], string(d.defect))
}

// nameItem identifies an item in messages, by its place: its id may be personal data. A
// page without a cursor is the first one, or a dead letter's item alone.
func nameItem(page *bridge.Page, ev *bridge.Event) string {
	if page.At.Cursor == "" {
		return fmt.Sprintf("item %d", ev.Index)
	}
	return fmt.Sprintf("item %d of the page at cursor %q", ev.Index, bridge.CursorHash(page.At.Cursor))
}
