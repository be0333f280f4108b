package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/pageread"
)

// loadedAtOnce is how many dead letters are in memory at a time.
const loadedAtOnce = 64

// Source is the export API.
type Source interface {
	bridge.Source
	// DecodeItem returns a page that holds nothing but one item, given as its
	// bytes.
	DecodeItem(item []byte) (*bridge.Page, error)
}

// Publisher publishes events beside the live stream, with a mark in the same
// transaction.
type Publisher interface {
	// Marks returns what earlier retries, and this one, have left behind.
	Marks() map[string][]byte
	// Publish publishes the page's events and puts the mark, all or nothing. An
	// error that is a bridge.ErrRefused says that the topic cannot take them. The
	// page stays the caller's.
	Publish(ctx context.Context, page *bridge.Page, mark string, value []byte) (bridge.Receipt, error)
}

// Outcome is what became of a letter, or would. Its words are part of the
// commands' output.
type Outcome string

// The outcomes. A Duplicate is a letter of an event that another letter holds,
// and that is published from there.
const (
	Published       Outcome = "published"
	WouldPublish    Outcome = "would be published"
	PublishedBefore Outcome = "published before"
	Duplicate       Outcome = "duplicate"
	Refused         Outcome = "cannot be published"
)

// Retried is a letter that was retried.
type Retried struct {
	Letter string        `json:"letter"`
	Reason bridge.Defect `json:"reason"`
	ID     string        `json:"id,omitempty"`
	// From says where the item came from: bytes or cursor.
	From   string  `json:"from"`
	Result Outcome `json:"result"`
	Detail string  `json:"detail,omitempty"`
}

// Retry publishes dead letters of one stream after all.
type Retry struct {
	Topic     *Topic
	Source    Source
	Publisher Publisher
	// Rehearsal is set where the Publisher publishes nothing.
	Rehearsal bool
	// Origin is what the stream asks the API for: a page without a cursor may
	// have letters too, and a window's bounds go with every cursor.
	Origin bridge.Origin
	// By is who retries, for the marks.
	By string
	// Done is told of each letter. Its error ends the retry.
	Done func(Retried) error

	items map[string]string // which letter each event is published from, by itemOf
}

// Run publishes the letters one after the other, each in a transaction of its
// own with a mark that it was retried: however often that is interrupted, no
// letter is published twice, nor is an event that is in several of them. An
// error ends it; what is published until then has its mark.
func (r *Retry) Run(ctx context.Context, places []Place) error {
	r.items = itemsOf(r.Publisher.Marks())
	for some := range slices.Chunk(places, loadedAtOnce) {
		records, err := r.Topic.Load(ctx, some)
		if err != nil {
			return err
		}
		for _, rec := range records {
			l := Read(rec)
			one, err := r.one(ctx, &l)
			if err != nil {
				return fmt.Errorf("letter %s: %w", l.Place, err)
			}
			if err := r.Done(one); err != nil {
				return err
			}
		}
	}
	return nil
}

// one publishes a letter. Its error is one that ends the retry.
func (r *Retry) one(ctx context.Context, l *DeadLetter) (Retried, error) {
	one := Retried{Letter: l.String(), Reason: l.Reason, ID: l.ID, From: "bytes", Result: Published}
	if r.Rehearsal {
		one.Result = WouldPublish
	}
	if !l.Whole {
		one.From = "cursor"
	}
	if at := r.Topic.RetriedAt(r.Publisher.Marks(), l); !at.IsZero() {
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
	item := itemOf(e, l)
	if other, ok := r.items[item]; ok {
		one.Result, one.Detail = Duplicate, "of letter "+other
		return one, nil
	}
	value, err := json.Marshal(mark{
		Version: 1, Topic: r.Topic.Log.Topic(), Written: l.Time.UnixMilli(), ID: cutID(one.ID), Item: item, At: time.Now().UnixMilli(), By: r.By,
	})
	if err != nil {
		return one, fmt.Errorf("encode its mark: %w", err)
	}
	switch _, err := r.Publisher.Publish(ctx, page, l.mark(), value); {
	case errors.Is(err, bridge.ErrRefused):
		one.Result, one.Detail = Refused, refusal(err)
	case err != nil:
		return one, err
	default:
		r.items[item] = one.Letter
	}
	return one, nil
}

// refusal is why the topic cannot take an event.
func refusal(err error) string {
	if fault, ok := errors.AsType[*bridge.Fault](err); ok {
		return fault.Error()
	}
	return err.Error()
}

// unusable says why there is nothing to publish of a letter.
type unusable struct{ why string }

func (e *unusable) Error() string { return e.why }

// page returns a page with only the letter's item, and what there is to say
// about it. The caller releases the page.
func (r *Retry) page(ctx context.Context, l *DeadLetter) (page *bridge.Page, note string, err error) {
	switch {
	case l.Whole:
		page, err = r.Source.DecodeItem(l.Item)
		if err != nil {
			return nil, "", &unusable{"its bytes are not an item: " + err.Error()}
		}
		page.Source = l.Source
		return page, "", nil
	case l.CursorLost:
		return nil, "", &unusable{"its cursor was too long for the letter"}
	}
	at := bridge.Position{Cursor: l.Cursor, Start: r.Origin.Start, End: r.Origin.End, Window: r.Origin.End != 0}
	page, err = pageread.Fetch(ctx, r.Source, at)
	if fault, ok := errors.AsType[*bridge.Fault](err); ok && fault.Class == bridge.BadCursor {
		return nil, "", &unusable{"the API refuses its cursor: " + fault.Error()}
	}
	if err != nil {
		return nil, "", err
	}
	if !keepOnly(page, l, true) {
		if !keepOnly(page, l, false) {
			page.Release()
			return nil, "", &unusable{fmt.Sprintf("the page at its cursor does not have it any more (it was item %d)", l.Index)}
		}
		note = "the API serves other bytes of it now"
	}
	return page, note, nil
}

// keepOnly drops all events of the page but the letter's, and reports whether
// that was there: with the same bytes, or only with the same id.
func keepOnly(page *bridge.Page, l *DeadLetter, exactly bool) bool {
	for i := range page.Events {
		if same, unchanged := l.Names(&page.Events[i]); same && (unchanged || !exactly) {
			page.Events = page.Events[i : i+1]
			return true
		}
	}
	return false
}
