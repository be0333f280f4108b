package exportapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/nextlink"
)

// SampleSize is the number of items that shows how an export is read.
const SampleSize = 100

// Sample describes how the items of one page are read.
type Sample struct {
	// Items are all items of the page: more than Asked if the API ignores the page size.
	Items []SampledItem
	// Asked is the page size that was asked for.
	Asked int
	// Next is the cursor of the next page, as in bridge.Page.
	Next string
	// Beyond is the cursor of a page whose MoreField says that nothing follows.
	Beyond string
	// EndsFull is set if the page is full and names no next one.
	EndsFull bool
	// Unread is as in bridge.Page.
	Unread bridge.Unread
	// Elsewhere is the pointer to a list of objects on a page without items, "" for none.
	Elsewhere string
}

// SampledItem describes how one item is read. Its texts are copies, empty if the item has
// none.
type SampledItem struct {
	ID, Type, Subject, Key string
	// Time is as in bridge.Event, and Ingested as IngestedAt returns it.
	Time, Ingested int64

	Defect bridge.Defect
	// Route is as in bridge.Event.
	Route uint8
	// Why says what is wrong with the item, or seems wrong if it has no Defect. Remedy says
	// which setting to change. Both are empty if nothing is wrong.
	Why, Remedy string
	// Raw is the item itself, with Config.KeepItems.
	Raw []byte

	digest [sha256.Size]byte // of its bytes
}

// Sample requests one page of at most size items, or of Config.PageSize if that is less,
// and decodes all items that the API lists. It returns the errors of Fetch and Decode, and
// changes nothing.
func (i Inspector) Sample(ctx context.Context, at bridge.Position, size int) (Sample, error) {
	c := i.Client
	s := Sample{Asked: min(size, c.cfg.PageSize)}
	read := func(c *Client, p *bridge.Page, asked *url.URL, resp *http.Response) *bridge.Fault {
		return c.receive(p, asked, resp, func(d *pageDecoder) { s.Beyond = c.pages.beyond(p, d, asked, resp.Header) })
	}
	page, err := c.fetch(ctx, at, s.Asked, read)
	if err != nil {
		return Sample{}, fmt.Errorf("read items: %w", err)
	}
	defer page.Release()
	if err := c.Decode(page); err != nil {
		return Sample{}, fmt.Errorf("read items: %w", err)
	}
	s.Next, s.Unread = page.Next, page.Unread
	s.EndsFull = page.Next == "" && c.cfg.MoreField == "" && page.Items >= s.Asked
	if page.Items == 0 {
		object := objectIn(page.Body)
		delete(object, c.cfg.ItemsField) // an empty list is at the expected place
		s.Elsewhere = nextlink.Elsewhere(object, c.cfg.ItemsField, c.cfg.metadata())
	}
	for n := range page.Events {
		e := &page.Events[n]
		item := SampledItem{
			ID: string(e.ID), Type: string(e.Type), Subject: string(e.Subject), Key: string(e.Key),
			Time: e.Time, Ingested: c.IngestedAt(e.Raw), Defect: e.Defect, Route: e.Route, digest: sha256.Sum256(e.Form()),
		}
		if c.cfg.KeepItems {
			item.Raw = bytes.Clone(e.Raw)
		}
		item.Why, item.Remedy = c.decoders.V.mapping.diagnose(e)
		s.Items = append(s.Items, item)
	}
	return s, nil
}

// beyond returns the cursor of a page that says that nothing follows, "" for none.
func (r *pageReader) beyond(p *bridge.Page, d *pageDecoder, asked *url.URL, h http.Header) string {
	if !d.ended || d.cursor.take() != nil {
		return ""
	}
	next, fault := r.named(p, d, asked, h)
	if fault != nil || r.requests.leaked(next) != nil || next == p.At.Cursor {
		return ""
	}
	return next
}

// Has reports whether the page has an item with the same id and bytes.
func (s *Sample) Has(item *SampledItem) bool {
	return slices.ContainsFunc(s.Items, item.is)
}

// Begins reports whether another page begins with the same item.
func (s *Sample) Begins(other *Sample) bool {
	return len(s.Items) > 0 && len(other.Items) > 0 && s.Items[0].is(other.Items[0])
}

func (i *SampledItem) is(other SampledItem) bool { return i.digest == other.digest && i.ID == other.ID }

// Border returns how many items of the page are also on the page before, with the same bytes.
// ids is false if one of them has no id: the engine publishes such an item twice.
func (s *Sample) Border(before *Sample) (items int, ids bool) {
	ids = true
	for i := range s.Items {
		if before.Has(&s.Items[i]) {
			items++
			ids = ids && s.Items[i].ID != ""
		}
	}
	return items, ids
}

// Repeats reports whether the page begins with all items of the page before, because the
// API ignores the cursor. It is false if chance explains the same items: one item can be
// the last of a page and the first of the next, and items without ids can be equal.
func (s *Sample) Repeats(before *Sample) bool {
	n := len(before.Items)
	if n == 0 || n > len(s.Items) || n == 1 && (len(s.Items) > 1 || s.Next == "" || s.Next == before.Next) {
		return false
	}
	first, last := &before.Items[0], &before.Items[n-1]
	return (first.ID != "" || first.digest != last.digest) &&
		slices.EqualFunc(s.Items[:n], before.Items, func(a, b SampledItem) bool { return a.digest == b.digest })
}
