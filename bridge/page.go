package bridge

import (
	"crypto/sha256"
	"encoding/base32"
	"hash/maphash"
	"math"
	"time"
)

// Position is where one request reads in the export.
type Position struct {
	// Cursor is the opaque token of the page, byte for byte as the API returned it.
	// Empty requests the first page.
	Cursor string
	// Start and End bound the export in milliseconds since the epoch, start inclusive,
	// end exclusive; 0 means unbounded. A Source sends them if Cursor is empty, and
	// with every request if Window is set.
	Start, End int64
	// Window marks a stateless window: every cursor is sent with the same bounds.
	Window bool
	// Floor and Held are for a Source that follows windows. Floor is Listing.Lowest. Held
	// has the items in the topic that the Source may list again. When Held changes, all
	// that the Source remembers of published items is out of date.
	Floor int64
	Held  PublishedIndex
}

// Event is one item of a page. Its slices point into the page's body and are valid until
// the page is released.
type Event struct {
	// Raw is the item, byte for byte as received, or the rest of it after the rules for
	// private data. It is nil if a rule could not be applied; see Withheld.
	Raw []byte
	// ID is the event's own id, Key the record key, Type the payload's type, and Subject
	// the user of the event. Each is nil if the item has none.
	ID, Key, Type, Subject []byte
	// Time is the event time in milliseconds since the epoch, NoTime if the item has
	// none and its resource requires none. It is undefined if Defect is DefectTime.
	Time int64
	// Defect is why the item cannot be published as an event, or empty. A Sink diverts
	// such an item to the dead letters or rejects the page.
	Defect Defect
	// Index is the item's index in its page as received, from 0.
	Index int
	// Shared is set if another item of the page has the same id and other bytes. Then the
	// id alone does not identify the event.
	Shared bool
	// Republished marks an event that a rewind publishes again.
	Republished bool
	// AtBorder marks an item that was at the end of the page before, with the same bytes.
	AtBorder bool
	// Route is RouteDrop, or the place in Routes.Topics, from 1, of the topic that gets
	// the event; 0 is the default topic. An unreadable item has no route.
	Route uint8
	// Late is the time from the event to the listing of its window, if an earlier window
	// ended after the event: the API showed the event late, or no process was listing.
	// Otherwise it is 0.
	Late time.Duration
	// Mismatch is how the event differs from the schema of its topic; nil if it fits, or is
	// not checked. A Sink counts such an event, and publishes it or treats it as a defect.
	Mismatch *Mismatch
	// Sums identify the item if there are rules for private data, otherwise nil.
	Sums *Sums
}

// NoTime is the Time of an event without a time: an open session, a user that was never
// changed, any item of an export without times. NoTime is before all times, so such an
// event never advances a position in time. The timestamp of its record is the publish time.
const NoTime int64 = math.MinInt64

// Defect is a stable code for what makes an item unpublishable.
type Defect string

// The defects. The engine sets DefectSharedID, a Sink DefectTooLarge and DefectMismatch, a
// Source the others.
const (
	DefectNone      Defect = ""
	DefectNotObject Defect = "not-an-object"
	DefectTime      Defect = "bad-timestamp"
	// DefectBadText is an item whose end is certain, but that is not valid JSON: it has
	// invalid UTF-8, control characters, unknown escapes or NaN.
	DefectBadText  Defect = "bad-text"
	DefectTooLarge Defect = "too-large"
	DefectSharedID Defect = "shared-id"
	// DefectPrivate is an item to which a rule for private data cannot be applied with
	// certainty.
	DefectPrivate Defect = "private-data"
	// DefectMismatch is an event with a Mismatch, if such events are not published.
	DefectMismatch Defect = "schema-mismatch"
)

// Unreadable reports whether the Source could not read the item as the settings say.
func (d Defect) Unreadable() bool {
	return d == DefectNotObject || d == DefectTime || d == DefectBadText || d == DefectPrivate
}

// Identity identifies an item across requests: 12 bytes of the SHA-256 of its id, or of its
// bytes if it has no id. With rules for private data, see Sums. The chance of a collision
// within a full page is about 6e-24.
type Identity [12]byte

// Identity returns the event's identity.
func (e *Event) Identity() Identity {
	if e.Sums != nil {
		return e.Sums.Identity()
	}
	named := e.Raw
	if e.ID != nil {
		named = e.ID
	}
	sum := sha256.Sum256(named)
	return Identity(sum[:12])
}

var recordIDEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// AppendRecordID appends the id of the event's record (ce_id), which never changes. It is
// the event's own id, or else the first 128 bits of Sums.Keyed, or of the SHA-256 of its
// bytes, in base32.
func (e *Event) AppendRecordID(to []byte) []byte {
	if e.ID != nil {
		return append(to, e.ID...)
	}
	return appendSumID(to, e.sum())
}

// SourceIdentity is the tenant in the metadata of a page. The zero value means that the
// metadata names none.
type SourceIdentity struct {
	Organization string `json:"organization,omitempty"`
	Workspace    string `json:"workspace,omitempty"`
	Application  string `json:"application,omitempty"`
}

// Conflict returns a Permanent Fault if a page belongs to another source than the stream;
// nil if both sources are equal or one is unknown.
func (s SourceIdentity) Conflict(page SourceIdentity) error {
	none := SourceIdentity{}
	if s == none || page == none || s == page {
		return nil
	}
	return BlockHintf("source", ReasonSource, HintSource, "the page belongs to %s, the stream to %s", page, s)
}

// String returns ORGANIZATION/WORKSPACE/APPLICATION.
func (s SourceIdentity) String() string {
	return s.Organization + "/" + s.Workspace + "/" + s.Application
}

// Unread is a part of a response that no setting selects. It looks like the next cursor, or
// says that more pages follow. The zero value is none.
type Unread struct {
	// Where is the JSON pointer or the header of the part. Hint is the setting that selects
	// it.
	Where, Hint string
	// Says is what the part says if it is not a cursor, for example "is true".
	Says string
}

// Fault returns a Permanent Fault unless u is zero. It is for callers that need a certain
// end of the results.
func (u Unread) Fault() error {
	if u.Where == "" {
		return nil
	}
	text := "has " + u.Where + ", which looks like a next cursor"
	if u.Says != "" {
		text = "its " + u.Where + " " + u.Says
	}
	return Blockf("unread-cursor", ReasonConfig, u.Hint, "the page names no next page, but %s", text)
}

// SmallBody is the size of a body, in bytes, below which a page may be empty. A larger
// page is assumed to have items until it is decoded.
const SmallBody = 4 << 10

// Page is one response of the export API.
//
// One goroutine owns a page at a time: the fetcher, the decoder, the commit loop, then
// the Sink, which releases the page.
type Page struct {
	// At is the requested position.
	At Position
	// Next is the cursor of the next page, byte for byte, or empty if the API returned
	// none (null, empty or absent).
	Next string
	// Unread may be set on a page with an empty Next.
	Unread Unread
	// Gap is set if a list without bounds had none of the events known before. Then events
	// before those of the page may be missing.
	Gap bool
	// Known is set if the list had an event of Position.Held.
	Known bool
	// Events are the items in the API's order, set by Decode. The engine drops those
	// already published.
	Events []Event
	// Items is the number of items received, set by Decode.
	Items int
	// Source is the identity in the page's metadata, set by Decode.
	Source SourceIdentity
	// Body is the decompressed page. Events point into it.
	Body []byte
	// Extra is the size of the events' texts beside the body, in bytes, known after Decode:
	// texts with escapes, and types, which a Sink copies. Fetch sets it to the memory that
	// rules for private data take.
	Extra int64
	// RequestedAt is when the request was sent, ArrivedAt when the last byte of the
	// body arrived.
	RequestedAt, ArrivedAt time.Time
	// ServerTime is the response's Date header, zero if absent.
	ServerTime time.Time
	// Traceparents are the W3C trace contexts of the page's records by Event.Route, none if
	// the page is not traced. A Sink adds them to the records.
	Traceparents []string
	// Notes are the Source's own, from Fetch to Decode. Their memory is that of the page.
	Notes any
	// Recycle, if not nil, reclaims the page's memory. Called by Release.
	Recycle func(*Page)
}

// Tail reports whether the page is the current end of the results: it names no next page,
// or itself.
func (p *Page) Tail() bool { return p.Next == "" || p.Next == p.At.Cursor }

// Time returns the time of the API's clock at the response, or that of our clock at the
// request.
func (p *Page) Time() time.Time {
	if p.ServerTime.IsZero() {
		return p.RequestedAt
	}
	return p.ServerTime
}

// AsOf returns the latest time, by the API's clock, for which the page is complete: its
// Date less the duration of the request, since the API may have read its list at any time
// during the request. Without a Date it is a time of our clock.
func (p *Page) AsOf() time.Time {
	if p.ServerTime.IsZero() {
		return p.RequestedAt
	}
	return p.ServerTime.Add(-max(0, p.ArrivedAt.Sub(p.RequestedAt)))
}

// Release returns the page's memory to its Source. Nobody may use the page afterwards.
// Only the first call has an effect.
func (p *Page) Release() {
	if r := p.Recycle; r != nil {
		p.Recycle = nil
		r(p)
	}
}

// fewItems is the number of items without ids that do not identify a page, because they may
// be equal by chance.
const fewItems = 8

var digestSeed = maphash.MakeSeed()

// Digest returns the same number for consecutive pages with the same items, as an API that
// ignores the cursor returns them. It is valid within a process. It covers three items with
// ids, or all items without ids. It is 0, which says nothing, for few items without ids. It
// is also 0 for a single item at the end of the results, because a cursor may include that
// item.
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
		_, _ = h.Write(p.Events[i].Form())
	}
	return h.Sum64() ^ uint64(n)
}

// ItemKey identifies an item that the API may list again, by the id of its record and its
// time. A changed item keeps both. The id alone is not enough: if EXPORT_ITEM_ID is wrong,
// different items would count as one.
type ItemKey [16]byte

// ItemKeyOf returns the key of a record with this ce_id and ce_time, which may be empty.
func ItemKeyOf(id, at []byte) ItemKey {
	named := make([]byte, 0, 128)
	named = append(append(append(named, id...), 0), at...)
	sum := sha256.Sum256(named)
	return ItemKey(sum[:16])
}

// ItemKey returns the key of the event's record.
func (e *Event) ItemKey() ItemKey {
	at, _ := new(EventTimes).Append(nil, e)
	return ItemKeyOf(e.AppendRecordID(nil), at)
}
