package deadletter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkarecord"
)

// mark records a retry. Its JSON form is frozen.
type mark struct {
	Version int `json:"v"`
	// Topic is the dead letter's topic, Written its time in milliseconds since the epoch.
	// They tell it from the dead letters of a recreated topic, which have the same offsets.
	Topic   string `json:"topic"`
	Written int64  `json:"written"`
	ID      string `json:"id,omitempty"`
	// Item and Form are the results of itemOf; empty in marks of older versions.
	Item string `json:"item,omitempty"`
	Form string `json:"form,omitempty"`
	// Rules are the rules for private data by which the bytes of Form were made.
	Rules string `json:"rules,omitempty"`
	// Into is the id of the topic of the event; empty in marks of older versions.
	Into string `json:"into,omitempty"`
	// At is the time of publishing in milliseconds since the epoch.
	At int64  `json:"at"`
	By string `json:"by,omitempty"`
}

// markNames returns the names of the mark of a dead letter: the present one, and that of older
// versions, which letters at the same place of another topic, or of a recreated one, have too.
func markNames(l *DeadLetter) [2]string {
	place := fmt.Sprintf("%d/%d", l.Partition, l.Offset)
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", l.topic, l.Time.UnixMilli()))
	return [2]string{fmt.Sprintf("%s/%x", place, sum[:4]), place}
}

// RetriedAt returns when a retry published the dead letter, by the stream's marks; zero if
// none did.
func RetriedAt(marks map[string][]byte, l *DeadLetter) time.Time {
	for _, name := range markNames(l) {
		var m mark
		if json.Unmarshal(marks[name], &m) == nil && m.Topic == l.topic && m.Written == l.Time.UnixMilli() {
			return time.UnixMilli(m.At).UTC()
		}
	}
	return time.Time{}
}

// itemOf identifies the event of a dead letter across all its dead letters. It
// distinguishes equal events without an id by their place in the export, and events with one id
// by their bytes: a changed event is another one. With encryption, or after a change of the rules
// for private data, the bytes of one event can differ.
func (r *Retry) itemOf(e *bridge.Event, l *DeadLetter) (item, form string) {
	text := "id " + string(e.ID)
	switch {
	case e.ID == nil:
		text = fmt.Sprintf("at %s %s %s", l.CursorHash, l.index, e.AppendRecordID(nil))
	case l.Reason == bridge.DefectSharedID:
		text += " form " + e.Sum()
	case !strings.Contains(r.Redacted, bridge.ValuesEncrypted):
		form = itemName(string(e.Raw))
	}
	return itemName(text), form
}

func itemName(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// readMarks keeps the marks of the events that must not be published again. Such an event
// is still in its topic, may have been deleted by retention, or was found in a topic.
func (r *Retry) readMarks(ctx context.Context) error {
	kept, err := r.Events.Kept(ctx)
	if err != nil {
		return err
	}
	for i := range kept {
		if lost := bridge.TopicRecreated(r.Known, kept[i].Topic, kept[i].ID); lost != nil {
			return lost
		}
	}
	marks := maps.Clone(r.Publisher.Marks())
	doubtful := make(map[string][]string) // marks by id
	expired := slices.ContainsFunc(kept, func(k kafkaclient.Kept) bool { return k.Expired })
	for name, value := range marks {
		var m mark
		known := json.Unmarshal(value, &m) == nil && m.Into != "" && kept[0].ID != ""
		into := slices.IndexFunc(kept, func(k kafkaclient.Kept) bool { return k.ID == m.Into })
		switch {
		case known && into < 0:
			delete(marks, name)
		case known && (kept[into].Expired || kept[into].Whole), !known && expired, m.ID == "":
		default:
			doubtful[m.ID] = append(doubtful[m.ID], name)
		}
	}
	if len(doubtful) > 0 {
		err = r.find(ctx, doubtful)
	}
	for _, names := range doubtful {
		for _, name := range names {
			delete(marks, name)
		}
	}
	r.kept, r.marks, r.items = kept, marks, itemsOf(marks, r.Redacted)
	return err
}

// find reads the topics and removes the events found there from ids.
func (r *Retry) find(ctx context.Context, ids map[string][]string) error {
	spans, err := r.Events.Bounds(ctx)
	if err != nil {
		return err
	}
	ends, err := r.Events.Ends(ctx) // an open transaction may hide events
	if err != nil {
		return err
	}
	for id, s := range spans {
		spans[id] = kafkaclient.Span{From: s.From, To: max(s.To, ends[id])}
	}
	return r.Events.Read(ctx, spans, func(record *kgo.Record) error {
		id := Header(record, kafkarecord.HeaderID)
		if id == "" { // the record has no headers
			page, err := r.Source.DecodeItem(record.Value)
			if fault := KeysFault(err); fault != nil {
				return fault
			}
			if err == nil {
				id = string(page.Events[0].AppendRecordID(nil))
				page.Release()
			}
		}
		delete(ids, bridge.CutID(id))
		delete(ids, id)
		delete(ids, wasCutID(id))
		return nil
	})
}

// mostMarkedID is the length of the longest id that a mark of an older version surely holds whole.
const mostMarkedID = 255

// itemsOf returns the events that earlier retries published, each with its dead letter. An event
// that was published under other rules is named without its Form.
func itemsOf(marks map[string][]byte, rules string) map[string]string {
	items := make(map[string]string)
	for name, value := range marks {
		var m mark
		if json.Unmarshal(value, &m) != nil {
			continue
		}
		if m.Item == "" && m.ID != "" && len(m.ID) <= mostMarkedID {
			m.Item = itemName("id " + m.ID) // the mark is of an older version
		}
		if m.Rules != rules {
			m.Form = ""
		}
		place := strings.Split(name, "/")
		at := time.UnixMilli(m.At).UTC().Format(timeLayout)
		items[m.Item+m.Form] = strings.Join(place[:min(2, len(place))], ":") + ", at " + at
	}
	return items
}

const timeLayout = "2006-01-02 15:04:05Z"

// wasCutID shortens an id as marks of older versions have it: by characters.
func wasCutID(id string) string {
	r := []rune(id)
	if len(r) <= mostMarkedID+1 {
		return id
	}
	return string(r[:mostMarkedID]) + "…"
}
