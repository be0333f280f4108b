package deadletter

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkarecord"
)

// keptHeader is the number of bytes that List keeps of a header.
const keptHeader = 256

// Reasons are the possible values of DeadLetter.Reason.
var Reasons = []string{
	string(bridge.DefectNotObject), string(bridge.DefectTime), string(bridge.DefectBadText),
	string(bridge.DefectTooLarge), string(bridge.DefectSharedID), string(bridge.DefectPrivate), string(bridge.DefectMismatch),
}

// Place is the partition and offset of a dead letter.
type Place struct {
	Partition int32
	Offset    int64
}

// ParsePlace reads PARTITION:OFFSET, or PARTITION@OFFSET as tail shows it.
func ParsePlace(text string) (Place, error) {
	partition, offset, ok := strings.Cut(strings.Replace(text, "@", ":", 1), ":")
	p, err1 := strconv.ParseUint(partition, 10, 31)
	o, err2 := strconv.ParseUint(offset, 10, 63)
	if !ok || err1 != nil || err2 != nil {
		return Place{}, fmt.Errorf("%q is not PARTITION:OFFSET, for example 0:17", text)
	}
	return Place{int32(p), int64(o)}, nil
}

// String returns PARTITION:OFFSET.
func (p Place) String() string { return fmt.Sprintf("%d:%d", p.Partition, p.Offset) }

func (p Place) compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Partition, q.Partition), cmp.Compare(p.Offset, q.Offset))
}

func placeOf(r *kgo.Record) Place { return Place{r.Partition, r.Offset} }

// DeadLetter is a record of the dead-letter topic.
type DeadLetter struct {
	Place
	// Time is when the dead letter was written.
	Time time.Time
	// Stream is the stream's name. Reason is one of Reasons, Message the reason as text.
	Stream, Message string
	Reason          bridge.Defect
	// ID is the bridge.CutID of the item's record id; empty if unknown.
	ID string
	// Size is the item's size in bytes.
	Size int
	// Source is the source of the item, zero if unknown.
	Source bridge.SourceIdentity
	// EventTime is the item's time in milliseconds since the epoch, NoTime if unknown.
	EventTime int64
	// Whole is true if the record holds the item. Then Item is the item, in the memory of
	// the record. List does not set Item.
	Whole bool
	Item  []byte
	// CursorHash is the hash of the cursor of the item's page, Index the item's index in
	// the page, from 0.
	CursorHash string
	Index      int
	// Headers are the record's headers without personal data: those about the failure,
	// ce_type, ce_time and ce_source. List sets them.
	Headers map[string]string
	// Cursor and SHA256, which is the Event.Sum of the item, are set if Whole is false.
	// CursorLost is true if the cursor was too long to be kept.
	Cursor     string
	CursorLost bool
	SHA256     string
	// Bounds has the Start and End of the request of the item's page; nil if Whole is true, and
	// in letters of older versions.
	Bounds *bridge.Position
	// Redacted names the rules for private data that were applied to the item, empty for
	// none.
	Redacted string

	topic string // of the record
	index string // the header HeaderIndex
}

// Read reads a record of the dead-letter topic. Missing values stay empty.
func Read(r *kgo.Record) DeadLetter {
	l := DeadLetter{Place: placeOf(r), Time: r.Timestamp, EventTime: bridge.NoTime, Size: len(r.Value), topic: r.Topic}
	for _, h := range r.Headers {
		value := string(h.Value)
		switch h.Key {
		case kafkarecord.HeaderStream:
			l.Stream = value
		case kafkarecord.HeaderReason:
			l.Reason = bridge.Defect(value)
		case kafkarecord.HeaderErrorMessage:
			l.Message = value
		case kafkarecord.HeaderID:
			l.ID = bridge.CutID(value)
		case kafkarecord.HeaderTime:
			if t, err := time.Parse(time.RFC3339Nano, value); err == nil {
				l.EventTime = t.UnixMilli()
			}
		case kafkarecord.HeaderSource:
			l.Source = identityOf(value)
		case kafkarecord.HeaderCursorHash:
			l.CursorHash = value
		case kafkarecord.HeaderIndex:
			l.index = value
		case kafkarecord.HeaderRedacted:
			l.Redacted = value
		}
	}
	l.Index, _ = strconv.Atoi(l.index) // 0 if another program wrote the record
	sub, ok := kafkarecord.ReadSubstitute(r)
	if !ok {
		l.Whole, l.Item = true, r.Value
		return l
	}
	l.ID, l.Size, l.Cursor, l.SHA256 = sub.ID, sub.Size, sub.Cursor, sub.SHA256
	l.CursorLost = sub.Cursor == "" && l.CursorHash != ""
	start, err1 := strconv.ParseInt(Header(r, kafkarecord.HeaderStart), 10, 64)
	end, err2 := strconv.ParseInt(Header(r, kafkarecord.HeaderEnd), 10, 64)
	if err1 == nil && err2 == nil {
		l.Bounds = &bridge.Position{Start: start, End: end}
	}
	return l
}

// openHeaders returns the headers of a record that have no personal data, each cut to 256
// bytes.
func openHeaders(r *kgo.Record) map[string]string {
	open := make(map[string]string)
	described := []string{kafkarecord.HeaderType, kafkarecord.HeaderTime, kafkarecord.HeaderSource,
		kafkarecord.HeaderContentType}
	for _, h := range r.Headers {
		own := strings.HasPrefix(h.Key, "__dlq.errors.") || strings.HasPrefix(h.Key, "eb-")
		if own || slices.Contains(described, h.Key) {
			open[h.Key] = strings.ToValidUTF8(string(h.Value[:min(len(h.Value), keptHeader)]), "\uFFFD")
		}
	}
	return open
}

// identityOf parses ce_source. It returns the zero value for an unknown form.
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

// Names reports whether an event is the item of a dead letter that lacks the item's bytes,
// and whether the bytes of the event are those of the item.
func (l *DeadLetter) Names(e *bridge.Event) (same, unchanged bool) {
	if !e.HasRecordID(l.ID) {
		return false, false
	}
	return true, e.HasSum(l.SHA256)
}
