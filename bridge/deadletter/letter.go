package deadletter

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkasink"
)

// keptID is how much of an id a dead letter, and a mark, holds, in bytes.
const keptID = 256

// Reasons are the words for what can be wrong with an item.
var Reasons = []string{string(bridge.DefectNotObject), string(bridge.DefectTime), string(bridge.DefectTooLarge), string(bridge.DefectSharedID)}

// Place names a dead letter: a partition of their topic and an offset there.
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

// String is PARTITION:OFFSET.
func (p Place) String() string { return fmt.Sprintf("%d:%d", p.Partition, p.Offset) }

// mark is the letter's name among the marks.
func (p Place) mark() string { return fmt.Sprintf("%d/%d", p.Partition, p.Offset) }

func (p Place) compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Partition, q.Partition), cmp.Compare(p.Offset, q.Offset))
}

func placeOf(r *kgo.Record) Place { return Place{r.Partition, r.Offset} }

// DeadLetter is a dead letter as its topic has it.
type DeadLetter struct {
	Place
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
	// Whole is true where the letter holds the item. Item is that then, byte for
	// byte as it came, but in a list; it is part of the record.
	Whole bool
	Item  []byte
	// CursorHash is the hash of the cursor that asks for the page which the item
	// was on, Index its place on that page, from 0.
	CursorHash string
	Index      int
	// Cursor and SHA256, of the item's bytes in hexadecimal digits, are only set
	// where Whole is false. The cursor is lost where it was too long for the
	// letter.
	Cursor     string
	CursorLost bool
	SHA256     string

	index string // the header
}

// Read reads a record of the dead letters' topic. What the record does not say
// stays empty.
func Read(r *kgo.Record) DeadLetter {
	l := DeadLetter{Place: placeOf(r), Time: r.Timestamp, Size: len(r.Value)}
	for _, h := range r.Headers {
		value := string(h.Value)
		switch h.Key {
		case kafkasink.HeaderStream:
			l.Stream = value
		case kafkasink.HeaderReason:
			l.Reason = bridge.Defect(value)
		case kafkasink.HeaderErrorMessage:
			l.Message = value
		case kafkasink.HeaderID:
			l.ID = value[:min(len(value), keptID)]
		case kafkasink.HeaderSource:
			l.Source = identityOf(value)
		case kafkasink.HeaderCursorHash:
			l.CursorHash = value
		case kafkasink.HeaderIndex:
			l.index = value
		}
	}
	l.Index, _ = strconv.Atoi(l.index) // 0 where it is not ours
	sub, ok := kafkasink.ReadSubstitute(r)
	if !ok {
		l.Whole, l.Item = true, r.Value
		return l
	}
	l.ID, l.Size, l.Cursor, l.SHA256 = sub.ID, sub.Size, sub.Cursor, sub.SHA256
	l.CursorLost = sub.Cursor == "" && l.CursorHash != ""
	return l
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
func (l *DeadLetter) Names(e *bridge.Event) (same, unchanged bool) {
	id := e.AppendRecordID(nil)
	if string(id[:min(len(id), keptID)]) != l.ID {
		return false, false
	}
	sum := sha256.Sum256(e.Raw)
	return true, l.SHA256 == hex.EncodeToString(sum[:])
}
