package exportsim

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// pages renders the pages of the export. All its methods may be called
// concurrently.
type pages struct {
	config    Config // with defaults
	world     *world
	resources []resource
	metadata  []byte
	cursors   cursors
	stock     stock
	ahead     keptPages
	nonce     atomic.Int64
}

// extent finds where the page ends and whether the next one can be named: when
// the page is full, or the filter has looked at as many items as it may.
func (p *pages) extent(q query, stock int) (end int, more bool) {
	last := max(q.from, min(q.to, stock))
	if q.filter == 0 {
		end = min(q.from+q.size, last)
		return end, end-q.from == q.size
	}
	matches := 0
	for i := q.from; i < last; i++ {
		if i-q.from == p.config.ScanLimit {
			return i, true
		}
		if p.matches(q, i) {
			if matches++; matches == q.size {
				return i + 1, true
			}
		}
	}
	return last, false
}

func (p *pages) matches(q query, i int) bool {
	return q.filter == 0 || q.filter>>p.world.eventTemplate(i).kind&1 == 1
}

// append renders the page that a query asks for and says how many items
// are in it.
func (p *pages) append(to []byte, q query) ([]byte, int) {
	end, more := p.extent(q, q.resource.among(p.stock.now()))
	cursor := p.cursorMember(q, end, more)
	to = append(to, '{')
	if p.config.CursorFirst && cursor != "" {
		to = append(to, cursor...)
		to = append(to, ',')
	}
	to = append(to, `"items":[`...)
	items := 0
	for i := q.from; i < end; i++ {
		if !p.matches(q, i) {
			continue
		}
		if items++; items > 1 {
			to = append(to, ',')
		}
		to = q.resource.appendItem(to, i)
	}
	to = append(to, ']')
	if q.resource.kind == kindEvent {
		to = append(to, ',')
		to = append(to, p.metadata...)
	}
	if !p.config.CursorFirst && cursor != "" {
		to = append(to, ',')
		to = append(to, cursor...)
	}
	return append(to, '}'), items
}

// cursorMember is the page's nextCursor, or empty where it has none.
func (p *pages) cursorMember(q query, end int, more bool) string {
	if !more {
		switch p.config.EndOfResults {
		case EmptyCursor:
			return `"nextCursor":""`
		case NullCursor:
			return `"nextCursor":null`
		case NoCursor:
			return ""
		}
	}
	// What a cursor is made of needs no escapes in JSON.
	return `"nextCursor":"` + p.nextCursor(q, end) + `"`
}

func (p *pages) nextCursor(q query, end int) string {
	at := place{chain: q.chain, next: end}
	if end == q.from {
		switch {
		case p.config.FreshCursor:
			at.nonce = p.nonce.Add(1)
		case q.cursor != "":
			return q.cursor
		}
	}
	if p.config.CursorTTL > 0 {
		at.issued = time.Now().UnixMilli()
	}
	return p.cursors.encode(at)
}

// metadataOf renders the member that says whose export this is.
func metadataOf(c Config) ([]byte, error) {
	slug := func(name string) string { return strings.ReplaceAll(strings.ToLower(name), " ", "-") }
	text, err := json.Marshal(struct {
		OrganizationName string `json:"organizationName"`
		OrganizationSlug string `json:"organizationSlug"`
		WorkspaceName    string `json:"workspaceName"`
		WorkspaceSlug    string `json:"workspaceSlug"`
		ApplicationName  string `json:"applicationName"`
		ApplicationSlug  string `json:"applicationSlug"`
	}{
		c.Organization, slug(c.Organization), c.Workspace, slug(c.Workspace), c.Application, slug(c.Application),
	})
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	return append([]byte(`"metadata":`), text...), nil
}
