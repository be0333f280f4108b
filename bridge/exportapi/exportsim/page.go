package exportsim

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// pages renders the pages of the export. Its methods may be called concurrently.
type pages struct {
	config    Config // with defaults
	form      Form   // with defaults
	world     *world
	resources []resource
	cursors   cursors
	stock     growth
	ahead     sync.Map // a readyPage by its span: full pages that were rendered ahead and never change
}

// extent is the items of a page, from low to high-1. next is where the following page
// begins, and more is set if that page can be named.
type extent struct {
	low, high, next int
	more            bool
	order           []int // the items by number; nil if they are the numbers
}

func (e extent) item(n int) int {
	if e.order != nil {
		n = e.order[n]
	}
	return n
}

// extent returns where a page ends, and whether the next page can be named: if the page is
// full, or if the filter has examined ScanLimit items.
func (p *pages) extent(q query, stock int) extent {
	if p.form.Late > 0 && q.end > 0 {
		order := p.world.byOwnTime(q.start, q.end, stock)
		low := min(q.from, len(order))
		high := min(low+q.size, len(order))
		return extent{low, high, high, high-low == q.size, order}
	}
	if p.form.Clocked {
		return p.listed(q, stock)
	}
	last := max(q.from, min(q.to, stock))
	if q.newest {
		low := max(q.from, last-q.size)
		return extent{low, last, low, low > q.from, nil}
	}
	if q.filter == 0 {
		end := min(q.from+q.size, last)
		more := end-q.from == q.size
		if p.form.ExactEnd || p.form.MoreField != "" {
			more = end < last
		}
		return extent{q.from, end, end, more, nil}
	}
	matches := 0
	for i := q.from; i < last; i++ {
		// If a page without items is the end, no page before it may be empty.
		if i-q.from >= p.config.ScanLimit && (matches > 0 || p.contract(q) != EmptyItems) {
			return extent{q.from, i, i, true, nil}
		}
		if p.matches(q, i) {
			if matches++; matches == q.size {
				return extent{q.from, i + 1, i + 1, true, nil}
			}
		}
	}
	return extent{q.from, last, last, false, nil}
}

func (p *pages) matches(q query, i int) bool {
	return q.filter == 0 || q.filter>>p.world.eventTemplate(i).kind&1 == 1
}

// append renders the page for a query. It returns the headers of the page too.
func (p *pages) append(to []byte, q query) (body []byte, header http.Header) {
	f := &p.form
	e := p.extent(q, q.resource.among(p.stock.now()))
	cursor, named := p.nextCursor(q, e)
	list := func(to []byte) []byte { return p.appendItems(to, q, e) }
	if f.ItemsField == root {
		return list(to), p.header(q, cursor, named)
	}
	var members []member
	if !f.OmitEmpty || e.low < e.high {
		members = append(members, member{pointer(f.ItemsField), list})
	}
	if q.resource.kind == kindEvent && f.Item == "" {
		members = append(members, member{pointer("metadata"), func(to []byte) []byte { return append(to, metadata...) }})
	}
	if text, ok := p.cursorText(q, cursor, named); ok {
		next := member{pointer(f.CursorField), func(to []byte) []byte { return append(to, text...) }}
		if p.config.CursorFirst {
			members = slices.Insert(members, 0, next)
		} else {
			members = append(members, next)
		}
	}
	if field, end := strings.CutPrefix(f.MoreField, "!"); field != "" {
		members = append(members,
			member{pointer(field), func(to []byte) []byte { return strconv.AppendBool(to, e.more != end) }})
	}
	return appendObject(to, members), p.header(q, cursor, named)
}

func (p *pages) appendItems(to []byte, q query, e extent) []byte {
	to = append(to, '[')
	items := 0
	for n := range e.high - e.low {
		i := e.item(e.low + n)
		if q.newest {
			i = e.item(e.high - 1 - n)
		}
		if !p.matches(q, i) {
			continue
		}
		if items++; items > 1 {
			to = append(to, ',')
		}
		to = q.resource.appendItem(to, i)
	}
	return append(to, ']')
}

// contract returns what ends the results of a request.
func (p *pages) contract(q query) EndOfResults {
	if q.end > 0 {
		return p.form.BoundedEnd
	}
	return p.form.EndOfResults
}

// nextCursor returns the cursor of the next page, and whether the page names it.
func (p *pages) nextCursor(q query, e extent) (string, bool) {
	kind := p.form.CursorKind
	if kind == kindOffset {
		return strconv.Itoa(q.skip + e.high - e.low), e.more
	}
	if !e.more && p.contract(q) != EmptyItems || kind != kindOpaque && q.newest {
		return "", false
	}
	at := place{chain: q.chain, next: e.next}
	if p.form.CursorAlone {
		at.size = q.size
	}
	if e.low == e.high && q.cursor != "" {
		return q.cursor, true
	}
	if kind != kindOpaque {
		return p.world.key(kind, e.next-1), true
	}
	if p.config.CursorTTL > 0 {
		at.issued = time.Now().UnixMilli()
	}
	return p.cursors.encode(at), true
}

// cursorText returns the JSON of the page's member for the cursor, if the page has that
// member.
func (p *pages) cursorText(q query, cursor string, named bool) (string, bool) {
	switch in := p.form.CursorIn; {
	case in != inBody && in != inNextURL:
		return "", false
	case !named && p.contract(q) == NoCursor:
		return "", false
	case !named && p.contract(q) == NullCursor:
		return "null", true
	case !named:
		return `""`, true
	case in == inNextURL:
		text, _ := json.Marshal(p.url(q, cursor)) // a string always encodes
		return string(text), true
	case p.form.CursorKind == kindSeq:
		return cursor, true
	}
	// A cursor has no character that JSON escapes.
	return `"` + cursor + `"`, true
}

// metadata has the names of organization, workspace and application.
const metadata = `{"organizationName":"Acme Corp","organizationSlug":"acme-corp","workspaceName":"Storefront",` +
	`"workspaceSlug":"storefront","applicationName":"Web shop","applicationSlug":"web-shop"}`
