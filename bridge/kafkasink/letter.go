package kafkasink

import (
	"bytes"
	"encoding/json"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
)

// Letter is a dead letter as its topic has it.
type Letter struct {
	// Partition and Offset are where it is in the topic of the dead letters.
	Partition int32
	Offset    int64
	// Time is when it was written.
	Time time.Time
	// Stream is whose letter it is, Reason the word for what was wrong with
	// its item, Message the same for people.
	Stream, Message string
	Reason          bridge.Defect
	// ID is the record id that the item has, its first 256 bytes at most; empty
	// where the letter does not say.
	ID string
	// Size is that of the item, in bytes.
	Size int
	// Source is whose export the item is of, zero where that is not known.
	Source bridge.SourceIdentity
	// Item is the item, byte for byte as it came; nil where the letter holds
	// only where it was. It is part of the record.
	Item []byte
	// Cursor asks for the page that the item was on. It is lost where it was
	// too long for the letter. Index is the item's place on that page, from 0,
	// and SHA256 that of its bytes in hexadecimal digits; both are only set
	// where Item is nil.
	Cursor     string
	CursorLost bool
	Index      int
	SHA256     string
}

// ReadLetter reads a record of the dead letters' topic. What the record does
// not say stays empty.
func ReadLetter(r *kgo.Record) Letter {
	l := Letter{Partition: r.Partition, Offset: r.Offset, Time: r.Timestamp, Size: len(r.Value)}
	var hash, index string
	for _, h := range r.Headers {
		value := string(h.Value)
		switch h.Key {
		case headerStream:
			l.Stream = value
		case headerReason:
			l.Reason = bridge.Defect(value)
		case headerErrorMessage:
			l.Message = value
		case headerID:
			l.ID = value[:min(len(value), maxKeptHeader)]
		case headerSource:
			l.Source = identityOf(value)
		case headerCursorHash:
			hash = value
		case headerIndex:
			index = value
		}
	}
	sub, ok := readSubstitute(r.Value)
	if !ok || index != strconv.Itoa(sub.Index) || sub.Cursor != "" && bridge.CursorHash(sub.Cursor) != hash {
		l.Item = r.Value
		return l
	}
	l.ID, l.Size, l.Cursor, l.Index, l.SHA256 = sub.ID, sub.Size, sub.Cursor, sub.Index, sub.SHA256
	l.CursorLost = sub.Cursor == "" && hash != ""
	return l
}

// readSubstitute reads what stands in a letter for an item. An item of the
// export is none: it lacks these members, or has others.
func readSubstitute(value []byte) (substitute, bool) {
	var s substitute
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, false
	}
	_, err := d.Token()
	return s, err == io.EOF && s.ID != "" && len(s.SHA256) == 64
}

// identityOf reads ce_source back, as far as it names somebody.
func identityOf(source string) bridge.SourceIdentity {
	parts := strings.Split(source, "/")
	if len(parts) != 4 || parts[0] != "" {
		return bridge.SourceIdentity{}
	}
	organization, err1 := url.PathUnescape(parts[1])
	application, err2 := url.PathUnescape(parts[2])
	if err1 != nil || err2 != nil {
		return bridge.SourceIdentity{}
	}
	return bridge.SourceIdentity{Organization: organization, Application: application}
}

// Names reports whether an event is the one that a letter without its bytes is
// about, and whether its bytes are what they were.
func (l *Letter) Names(e *bridge.Event) (same, unchanged bool) {
	id := e.AppendRecordID(nil)
	if string(id[:min(len(id), maxKeptHeader)]) != l.ID {
		return false, false
	}
	return true, l.SHA256 == sumOf(e.Raw)
}
