package engine_test

import (
	"time"

	"exportbridge/bridge"
)

// firstPage is the first page as it was once served.
type firstPage struct {
	items int
	next  string
}

// noteFirst notes the first page, where it leads on.
func (x *exported) noteFirst(p *bridge.Page) {
	if p.At.Cursor != "" || p.Tail() {
		return
	}
	x.firsts[bridge.DigestCursor(p.Next)] = firstPage{indexOf(p.Next), p.Next}
}

// newest is the checkpoint that counts.
func (w *world) newest() bridge.Checkpoint {
	if w.exactly {
		return w.topic.last()
	}
	return w.store.value
}

// stale makes the export forget the cursor of the newest checkpoint.
func (w *world) stale() {
	x, at := &w.export, w.newest()
	first, ok := x.firsts[at.Border.FirstNext]
	if at.Cursor == "" || !ok || first.next == at.Cursor {
		return // of a page that leads to itself it is the end
	}
	x.stale[at.Cursor] = first
}

// pageOne is what the export answers to a cursor that it has forgotten: the first page
// as the stream has seen it, nil where the stream has not. Of two owners, one may have seen
// another one.
func (w *world) pageOne(at bridge.Position) *bridge.Page {
	x := &w.export
	was, stale := x.stale[at.Cursor]
	first, ok := x.firsts[w.newest().Border.FirstNext]
	if !ok || !stale || first != was && !w.exactly && w.contested() {
		return nil
	}
	p := &bridge.Page{At: at, Next: first.next, RequestedAt: time.Now(), ArrivedAt: time.Now(), Recycle: spoil}
	x.list(p, 0, first.items)
	x.looks(at.Cursor)
	return p
}

// looks notes a cursor whose page looks like one of another cursor.
func (x *exported) looks(cursor string) {
	x.looped[cursor] = true
}
