package bridge

import (
	"crypto/sha256"
	"encoding/base32"
	"math"
	"time"
)

// Position is the place of one request in the export.
type Position struct {
	// Cursor is the opaque token of the page, byte for byte as the API gave
	// it. Empty asks for the first page.
	Cursor string
	// Start and End bound the export in milliseconds since the epoch, start
	// inclusive, end exclusive; 0 means unbounded. A Source sends them when
	// Cursor is empty, and with every request when Window is set.
	Start, End int64
	// Window marks a stateless window: the same bounds go with every cursor.
	Window bool
}

// Event is one item of a page. Its slices point into the page's body and are
// valid until the page is released.
type Event struct {
	// Raw is the item, byte for byte as the API sent it.
	Raw []byte
	// ID is the event's own id, nil where the resource or the item has none.
	ID []byte
	// Key is the record key, nil where the item has none.
	Key []byte
	// Type is the payload's type, nil where the item has none.
	Type []byte
	// Subject is the user the event is about, nil where the item has none.
	Subject []byte
	// Time is the event time in milliseconds since the epoch, NoTime where the
	// item has none and its resource does not demand one. It has no meaning when
	// Defect is set to DefectTime.
	Time int64
	// Defect says why the item cannot be published as an event, or is empty.
	// A Sink diverts such an item to the dead letters or refuses the page.
	Defect Defect
	// Index is the item's place in its page as the API sent it, from 0.
	Index int
	// Shared is set where another item of the page has the same id and other
	// bytes: the id alone does not tell them apart.
	Shared bool
	// Republished marks an event that a rewind publishes once more.
	Republished bool
}

// NoTime is the Time of an event without one: a session that is still open, a
// user who was never changed. It is before all times, so that such an event
// moves no position in time. A Sink gives its record the time of publishing.
const NoTime int64 = math.MinInt64

// Defect is the stable word for what makes an item unpublishable.
type Defect string

// The defects. A Source finds those of an item by itself, the engine finds
// DefectSharedID, and Sinks add DefectTooLarge.
const (
	DefectNone      Defect = ""
	DefectNotObject Defect = "not-an-object"
	DefectTime      Defect = "bad-timestamp"
	DefectTooLarge  Defect = "too-large"
	DefectSharedID  Defect = "shared-id"
)

// Identity names an item across requests: 12 bytes of the SHA-256 of its id,
// or of its bytes where it has no id. Two different items of a full page share
// one with a chance of about 6e-24.
type Identity [12]byte

// Identity returns the event's identity.
func (e *Event) Identity() Identity {
	named := e.Raw
	if e.ID != nil {
		named = e.ID
	}
	sum := sha256.Sum256(named)
	return Identity(sum[:12])
}

var recordIDEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// AppendRecordID appends the id that the event's record carries for ever
// (ce_id): the event's own id, else the first 128 bits of the SHA-256 of its
// bytes in base32.
func (e *Event) AppendRecordID(to []byte) []byte {
	if e.ID != nil {
		return append(to, e.ID...)
	}
	sum := sha256.Sum256(e.Raw)
	return recordIDEncoding.AppendEncode(to, sum[:16])
}

// SourceIdentity says whose export a page belongs to, as the page's metadata
// names it. The zero value means that the page did not say.
type SourceIdentity struct {
	// Organization, Workspace and Application are as in the page.
	Organization string `json:"organization,omitempty"`
	Workspace    string `json:"workspace,omitempty"`
	Application  string `json:"application,omitempty"`
}

// SmallBody is the size of a body, in bytes, below which a page may hold no
// items. A larger one is taken to hold some until it is decoded.
const SmallBody = 4 << 10

// Page is one answer of the export API.
//
// Its body has arrived when Fetch returns the page, or arrives behind it until
// Decode ends; see Source. One goroutine owns a page at a time: the fetcher,
// then the decoder, then the commit loop, then the Sink, which releases it once.
type Page struct {
	// At is the position that was asked for.
	At Position
	// Next is the cursor of the next page, byte for byte, or empty where the
	// API gave none (null, empty or absent).
	Next string
	// Events are the items, in the API's order, without those that Trim
	// dropped. Set by Decode.
	Events []Event
	// Items is the number of items the API sent, set by Decode.
	Items int
	// Source is the identity that the page's metadata names, set by Decode.
	Source SourceIdentity
	// Body is the page as it arrived, decompressed. Events point into it. Nil
	// while the page is arriving.
	Body []byte
	// Size is that of the body, in bytes. While the page is arriving it is what
	// can be expected of it, and at least SmallBody.
	Size int64
	// RequestedAt is when the request left, ArrivedAt when the last byte of
	// the body was there, zero while the page is arriving.
	RequestedAt, ArrivedAt time.Time
	// ServerTime is what the response's Date header said, zero if absent.
	ServerTime time.Time
	// Traceparent is the W3C trace context that the page travels under, empty
	// where it is not traced. A Sink passes it on with each record.
	Traceparent string
	// Recycle, if not nil, takes the page's memory back and ends what may
	// still be arriving. Called by Release.
	Recycle func(*Page)
}

// Tail reports whether the page is the end of the results for now: the API
// named no next page, or the same one again.
func (p *Page) Tail() bool { return p.Next == "" || p.Next == p.At.Cursor }

// Release gives the page's memory back to its Source. Nothing of the page may
// be used afterwards. Only the first call has an effect.
func (p *Page) Release() {
	if r := p.Recycle; r != nil {
		p.Recycle = nil
		r(p)
	}
}
