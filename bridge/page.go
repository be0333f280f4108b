package bridge

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"time"
)

// Position is where one request reads in the export.
type Position struct {
	// Cursor is the opaque token of the page, byte for byte as the API returned
	// it. Empty requests the first page.
	Cursor string
	// Start and End bound the export in milliseconds since the epoch, start
	// inclusive, end exclusive; 0 means unbounded. A Source sends them when
	// Cursor is empty, and with every request when Window is set.
	Start, End int64
	// Window marks a stateless window: every cursor is sent with the same
	// bounds.
	Window bool
}

// Event is one item of a page. Its slices point into the page's body and are
// valid until the page is released.
type Event struct {
	// Raw is the item, byte for byte as received.
	Raw []byte
	// ID is the event's own id, nil where the resource or the item has none.
	ID []byte
	// Key is the record key, nil where the item has none.
	Key []byte
	// Type is the payload's type, nil where the item has none.
	Type []byte
	// Subject is the user the event is about, nil where the item has none.
	Subject []byte
	// Time is the event time in milliseconds since the epoch, NoTime if the
	// item has none and its resource does not require one. It is undefined if
	// Defect is DefectTime.
	Time int64
	// Defect is why the item cannot be published as an event, or empty. A Sink
	// diverts such an item to the dead letters or refuses the page.
	Defect Defect
	// Index is the item's index in its page as received, from 0.
	Index int
	// Shared is set if another item of the page has the same id and other
	// bytes: the id alone does not identify the event.
	Shared bool
	// Republished marks an event that a rewind publishes once more.
	Republished bool
	// AtBorder marks an item that ended the page before, with the same bytes.
	AtBorder bool
}

// NoTime is the Time of an event without one: a session that is still open, a
// user that was never changed, any item of an export without times. It is before all times, so such an event never
// advances a position in time. Its record carries the time of publishing.
const NoTime int64 = math.MinInt64

// Defect is a stable code for what makes an item unpublishable.
type Defect string

// The defects. The engine sets DefectSharedID and a Sink DefectTooLarge; a
// Source sets the others.
const (
	DefectNone      Defect = ""
	DefectNotObject Defect = "not-an-object"
	DefectTime      Defect = "bad-timestamp"
	// DefectBadText is an item with bytes that are no text, though its end is
	// certain: not UTF-8, control characters, unknown escapes, NaN.
	DefectBadText  Defect = "bad-text"
	DefectTooLarge Defect = "too-large"
	DefectSharedID Defect = "shared-id"
)

// Unreadable reports whether the Source could not read the item.
func (d Defect) Unreadable() bool {
	return d == DefectNotObject || d == DefectTime || d == DefectBadText
}

// Identity identifies an item across requests: 12 bytes of the SHA-256 of its
// id, or of its bytes if it has no id. The chance of a collision within a full
// page is about 6e-24.
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

// AppendRecordID appends the id of the event's record (ce_id), which never
// changes: the event's own id, else the first 128 bits of the SHA-256 of its
// bytes in base32.
func (e *Event) AppendRecordID(to []byte) []byte {
	if e.ID != nil {
		return append(to, e.ID...)
	}
	sum := sha256.Sum256(e.Raw)
	return recordIDEncoding.AppendEncode(to, sum[:16])
}

// SourceIdentity is the tenant that a page belongs to, from the page's
// metadata. The zero value means that the metadata names none.
type SourceIdentity struct {
	// Organization, Workspace and Application are as in the page.
	Organization string `json:"organization,omitempty"`
	Workspace    string `json:"workspace,omitempty"`
	Application  string `json:"application,omitempty"`
}

// Conflict returns a Permanent Fault that names both if a page belongs to another
// source than the stream's; nil if they are equal or one is unknown.
func (s SourceIdentity) Conflict(page SourceIdentity) error {
	none := SourceIdentity{}
	if s == none || page == none || s == page {
		return nil
	}
	return &Fault{Class: Permanent, Code: "source", Reason: ReasonSource, HintCode: HintSource, Err: fmt.Errorf("the page belongs to %s, the stream to %s", page, s)}
}

// String is ORGANIZATION/WORKSPACE/APPLICATION.
func (s SourceIdentity) String() string {
	return s.Organization + "/" + s.Workspace + "/" + s.Application
}

// Unread is a part of a response that looks like the next cursor, and that no
// setting selects, or that says that more follow. The zero value is none.
type Unread struct {
	// Where is its JSON pointer or header, Hint says how to have it read.
	Where, Hint string
	// Says is what a part says that is no cursor, such as "is true".
	Says string
}

// Fault returns the Permanent Fault of a page that has one, where the end of the
// results must be certain.
func (u Unread) Fault() error {
	if u.Where == "" {
		return nil
	}
	text := "has " + u.Where + ", which looks like a next cursor"
	if u.Says != "" {
		text = "its " + u.Where + " " + u.Says
	}
	return &Fault{Class: Permanent, Code: "unread-cursor", Reason: ReasonConfig, Hint: u.Hint, Err: errors.New("the first page names no next page, but " + text)}
}

// SmallBody is the size of a body, in bytes, below which a page may be empty. A
// larger page is assumed to have items until it is decoded.
const SmallBody = 4 << 10

// Page is one response of the export API.
//
// One goroutine owns a page at a time: the fetcher, the decoder, the commit loop,
// then the Sink, which releases it once.
type Page struct {
	// At is the requested position.
	At Position
	// Next is the cursor of the next page, byte for byte, or empty if the API
	// returned none (null, empty or absent).
	Next string
	// Unread is what else looks like the next cursor on a first page that has items
	// and an empty Next.
	Unread Unread
	// Events are the items in the API's order, set by Decode; the engine drops
	// those already published.
	Events []Event
	// Items is the number of items received, set by Decode.
	Items int
	// Source is the identity in the page's metadata, set by Decode.
	Source SourceIdentity
	// Body is the decompressed page. Events point into it.
	Body []byte
	// Extra is what the events' texts take beside the body, in bytes, set by Decode:
	// those that had escapes, and types, which a Sink copies.
	Extra int64
	// RequestedAt is when the request was sent, ArrivedAt when the last byte of
	// the body arrived.
	RequestedAt, ArrivedAt time.Time
	// ServerTime is the response's Date header, zero if absent.
	ServerTime time.Time
	// Traceparent is the page's W3C trace context, empty if it is not traced. A
	// Sink adds it to each record.
	Traceparent string
	// Recycle, if not nil, reclaims the page's memory. Called by Release.
	Recycle func(*Page)
}

// Tail reports whether the page is the current end of the results: the API
// named no next page, or the same one again.
func (p *Page) Tail() bool { return p.Next == "" || p.Next == p.At.Cursor }

// Time is the API's clock when it answered, or ours when it was asked.
func (p *Page) Time() time.Time {
	if p.ServerTime.IsZero() {
		return p.RequestedAt
	}
	return p.ServerTime
}

// AsOf is the latest time, by the API's clock, of which the page shows all that was
// listed: its Date less the duration of the request, for it may have read its list at
// any time in between. It is by our clock where the response has no Date.
func (p *Page) AsOf() time.Time {
	if p.ServerTime.IsZero() {
		return p.RequestedAt
	}
	return p.ServerTime.Add(-max(0, p.ArrivedAt.Sub(p.RequestedAt)))
}

// Release returns the page's memory to its Source. The page must not be used
// afterwards. Only the first call has an effect.
func (p *Page) Release() {
	if r := p.Recycle; r != nil {
		p.Recycle = nil
		r(p)
	}
}

// fewItems without ids do not tell a page from another: they may be equal by
// chance.
const fewItems = 8

var digestSeed = maphash.MakeSeed()

// Digest tells, within a process, whether two pages in a row have the same
// items, as they do where the API ignores the cursor; 0 says nothing, which is
// also the answer for a single item at the end of the results: a cursor may
// include it. It looks at three items with ids, or at all where they have none.
func (p *Page) Digest() uint64 {
	n, step := len(p.Events), 1
	if n == 0 || n == 1 && p.Tail() || n < fewItems && p.Events[0].ID == nil {
		return 0
	}
	if p.Events[0].ID != nil {
		step = max(1, (n-1)/2)
	}
	var h maphash.Hash
	h.SetSeed(digestSeed)
	for i := 0; i < n; i += step {
		_, _ = h.Write(p.Events[i].Raw)
	}
	return h.Sum64() ^ uint64(n)
}
