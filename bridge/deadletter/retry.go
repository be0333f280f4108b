package deadletter

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/pageread"
	"exportbridge/bridge/kafkaclient"
)

// loadedAtOnce is the number of dead letters in memory at a time.
const loadedAtOnce = 64

// Source is the export API.
type Source interface {
	bridge.Source
	// DecodeItem returns a page with a single item, given as bytes. DecodeRecord does the
	// same for the value of a record with this ce_id, to which the rules for private data
	// were already applied. An error that is a bridge.Fault is that of the keys of encrypted
	// values; others mean that the bytes are no item.
	DecodeItem(item []byte) (*bridge.Page, error)
	DecodeRecord(value []byte, id string) (*bridge.Page, error)
}

// Publisher publishes events beside the live stream, each page with a mark in the same
// transaction. It is opened before the retry or the repair.
type Publisher interface {
	// Marks returns the marks of all retries, or of all repairs, by key.
	Marks() map[string][]byte
	// Publish publishes the page's events and the mark, all or nothing. A
	// bridge.ErrRejected means that the topic rejects one of the events. If the topic
	// was recreated since the Publisher was opened, or another process has added
	// marks, Publish publishes nothing and returns an error. The caller keeps the page.
	Publish(ctx context.Context, page *bridge.Page, mark string, value []byte) (bridge.Receipt, error)
}

// Outcome is the outcome of a retry, or the expected one. Its values are part of the
// output.
type Outcome string

// The outcomes. The event of a Duplicate was published from another dead letter.
const (
	Published       Outcome = "published"
	WouldPublish    Outcome = "would be published"
	PublishedBefore Outcome = "published before"
	Duplicate       Outcome = "duplicate"
	Refused         Outcome = "cannot be published"
)

// Retried is the result of retrying one dead letter.
type Retried struct {
	Letter string        `json:"letter"`
	Reason bridge.Defect `json:"reason"`
	ID     string        `json:"id,omitempty"`
	// From is where the item was read: bytes or cursor.
	From   string  `json:"from"`
	Result Outcome `json:"result"`
	Detail string  `json:"detail,omitempty"`
}

// Retry publishes dead letters of one stream.
type Retry struct {
	Topic  *Topic
	Source Source
	// Ranges reads ranges of a Source without a lasting cursor; nil for any other Source.
	Ranges    bridge.Source
	Publisher Publisher
	// Events are the topics of the events. An event that an earlier retry published and
	// that its topic has lost is published again.
	Events EventLog
	// Rehearsal is set if the Publisher publishes nothing.
	Rehearsal bool
	// Origin has the stream's bounds, for letters of older versions, which lack DeadLetter.Bounds.
	Origin bridge.Origin
	// Bounded is set if the Source can list a range. Then an item that is not on its page is
	// listed by its time.
	Bounded bool
	// Live is the stream's source; the zero value is unknown.
	Live bridge.SourceIdentity
	// Known are the topics in the live stream's checkpoint. If a topic of Events was
	// recreated after that, the retry is rejected with a bridge.TopicFault.
	Known []bridge.TopicState
	// Elsewhere is not empty if the settings request another list than the live stream
	// does: see bridge.RequestChange. Then no page is fetched.
	Elsewhere []string
	// Redacted names the rules for private data that the Source applies, empty for none.
	Redacted string
	// Check, if not nil, sets Event.Mismatch of decoded bytes; a Source does for what it fetches.
	Check func(*bridge.Page)
	// FetchTimeout is how long a call of the Source may take; see engine.Config.
	FetchTimeout time.Duration
	// By is the operator, recorded in the marks.
	By string
	// Done is called with each result. Its error ends the retry.
	Done func(Retried) error

	kept  []kafkaclient.Kept // the Kept of Events
	marks map[string][]byte  // of this retry, and of earlier retries whose events are in their topics
	items map[string]string  // the dead letter of each published event, by Item and Form of its mark
}

// Run publishes the dead letters one by one, each in a transaction of its own with its
// mark. If it is interrupted and repeated, it publishes each dead letter and each event
// once. After an error, all published events have marks.
func (r *Retry) Run(ctx context.Context, places []Place) error {
	if err := r.readMarks(ctx); err != nil {
		return err
	}
	for some := range slices.Chunk(places, loadedAtOnce) {
		records, err := r.Topic.Load(ctx, some)
		if err != nil {
			return err
		}
		for _, rec := range records {
			l := Read(rec)
			one, err := r.one(ctx, &l)
			if err != nil {
				return fmt.Errorf("dead letter %s: %w", l.Place, err)
			}
			if err := r.Done(one); err != nil {
				return err
			}
		}
	}
	return nil
}

// one publishes a dead letter. An error ends the retry.
func (r *Retry) one(ctx context.Context, l *DeadLetter) (Retried, error) {
	one := Retried{Letter: l.String(), Reason: l.Reason, ID: l.ID, From: "bytes", Result: Published}
	if r.Rehearsal {
		one.Result = WouldPublish
	}
	if !l.Whole {
		one.From = "cursor"
	}
	if at := RetriedAt(r.marks, l); !at.IsZero() {
		one.Result, one.Detail = PublishedBefore, "at "+at.Format(timeLayout)
		return one, nil
	}
	page, note, err := r.page(ctx, l)
	if reason, ok := errors.AsType[*unusable](err); ok {
		one.Result, one.Detail = Refused, reason.Error()
		return one, nil
	}
	if err != nil {
		return one, err
	}
	defer page.Release()
	e := &page.Events[0]
	one.ID, one.Detail = string(e.AppendRecordID(nil)), note
	item, form := r.itemOf(e, l)
	if other := cmp.Or(r.items[item+form], r.items[item]); other != "" { // an earlier one without a form
		one.Result, one.Detail = Duplicate, "of dead letter "+other
		return one, nil
	}
	if e.Route == bridge.RouteDrop {
		one.Result, one.Detail = Refused, "a route of KAFKA_ROUTES drops it"
		return one, nil
	}
	value, err := json.Marshal(mark{
		Version: 1, Topic: l.topic, Written: l.Time.UnixMilli(), ID: bridge.CutID(one.ID), Item: item, Form: form,
		Rules: r.Redacted, Into: r.kept[e.Route].ID, At: time.Now().UnixMilli(), By: r.By,
	})
	if err != nil {
		return one, fmt.Errorf("encode its mark: %w", err)
	}
	name := markNames(l)[0]
	switch _, err := r.Publisher.Publish(ctx, page, name, value); {
	case errors.Is(err, bridge.ErrRejected):
		one.Result, one.Detail = Refused, Rejection(err)
	case err != nil:
		return one, err
	default:
		r.items[item+form] = one.Letter
		if !r.Rehearsal {
			r.marks[name] = value
		}
	}
	return one, nil
}

// Rejection returns why the topic rejects an event: the text of the fault, without its
// wrapping.
func Rejection(err error) string {
	if fault, ok := errors.AsType[*bridge.Fault](err); ok {
		return fault.Error()
	}
	return err.Error()
}

// unusable is the error of a dead letter that has nothing to publish.
type unusable struct{ why string }

func (e *unusable) Error() string { return e.why }

// page returns a page with only the dead letter's item, and a note for the result.
// The caller releases the page.
func (r *Retry) page(ctx context.Context, l *DeadLetter) (page *bridge.Page, note string, err error) {
	switch {
	case l.Whole:
		switch {
		case l.Redacted == "":
			page, err = r.Source.DecodeItem(l.Item)
		case bridge.SameRules(l.Redacted, r.Redacted):
			page, err = r.Source.DecodeRecord(l.Item, l.ID)
		default:
			return nil, "", &unusable{"it was written under other rules for private data"}
		}
		if fault := KeysFault(err); fault != nil {
			return nil, "", fault
		}
		if err != nil {
			return nil, "", &unusable{"its bytes are not an item: " + err.Error()}
		}
		page.Source, page.Events[0].Index = l.Source, l.Index
		if r.Check != nil {
			r.Check(page)
		}
		return page, "", nil
	case len(r.Elsewhere) > 0:
		return nil, "", fmt.Errorf("the settings request another list than the stream's: %s changed",
			strings.Join(r.Elsewhere, ", "))
	}
	if bridge.Listed(l.Cursor) || r.Ranges != nil && l.Cursor == "" {
		return r.listed(ctx, l)
	}
	page, note, err = r.paged(ctx, l)
	if gone, ok := errors.AsType[*unusable](err); ok && r.Bounded {
		if page, note, err = r.listed(ctx, l); errors.As(err, new(*unusable)) {
			err = gone
		}
	}
	return page, note, err
}

// KeysFault returns an error of Source.DecodeItem that says nothing about the item; nil for others.
func KeysFault(err error) error {
	if _, ok := errors.AsType[*bridge.Fault](err); ok {
		return err
	}
	return nil
}

// paged returns a page with the item that is on the page of the dead letter.
func (r *Retry) paged(ctx context.Context, l *DeadLetter) (page *bridge.Page, note string, err error) {
	if l.CursorLost {
		return nil, "", &unusable{"its cursor was too long to be kept"}
	}
	at := bridge.Position{Start: r.Origin.Start, End: r.Origin.End}
	if l.Bounds != nil {
		at = *l.Bounds
	}
	at.Cursor, at.Window = l.Cursor, at.End != 0
	page, err = pageread.Fetch(ctx, r.Source, at, r.FetchTimeout)
	if fault, ok := errors.AsType[*bridge.Fault](err); ok && fault.Class == bridge.BadCursor {
		return nil, "", &unusable{"the API rejects its cursor: " + fault.Error()}
	}
	if err != nil {
		return nil, "", err
	}
	if err := r.Live.Conflict(page.Source); err != nil {
		page.Release()
		return nil, "", err
	}
	note, ok := keepOnly(page, l)
	if !ok {
		page.Release()
		return nil, "", &unusable{fmt.Sprintf("it is no longer on the page at its cursor (it was item %d)", l.Index)}
	}
	return page, note, nil
}

// listed returns a page with the item, which it lists from a second before to a second after
// the item's time.
func (r *Retry) listed(ctx context.Context, l *DeadLetter) (page *bridge.Page, note string, err error) {
	if l.EventTime == bridge.NoTime {
		return nil, "", &unusable{"it has no time to list it by"}
	}
	ranges := cmp.Or(r.Ranges, bridge.Source(r.Source)) // nil if the stream now follows a cursor
	at := bridge.Position{Start: max(0, l.EventTime-1000), End: l.EventTime + 1000, Window: true}
	for range mostListed {
		page, err := pageread.Fetch(ctx, ranges, at, r.FetchTimeout)
		if err != nil {
			return nil, "", err
		}
		if err := r.Live.Conflict(page.Source); err != nil {
			page.Release()
			return nil, "", err
		}
		if note, ok := keepOnly(page, l); ok {
			return page, note, nil
		}
		next, last := page.Next, page.Tail()
		page.Release()
		if last {
			break
		}
		at.Cursor = next
	}
	return nil, "", &unusable{"the API does not list it any more"}
}

// mostListed bounds the pages that are read for an item.
const mostListed = 1000

// keepOnly drops all events of the page except the dead letter's, if the page has that event: the one
// with its bytes, else the one with its id, which note says. Where events share the id, only the
// bytes tell which one it is.
func keepOnly(page *bridge.Page, l *DeadLetter) (note string, ok bool) {
	at, shared := -1, l.Reason == bridge.DefectSharedID
	for i := range page.Events {
		switch same, unchanged := l.Names(&page.Events[i]); {
		case same && unchanged:
			page.Events = page.Events[i : i+1]
			return "", true
		case same && at < 0:
			at = i
		case same && !bytes.Equal(page.Events[at].Raw, page.Events[i].Raw):
			shared = true
		}
	}
	if at < 0 || shared {
		return "", false
	}
	page.Events = page.Events[at : at+1]
	return "its bytes in the API have changed", true
}
