package exportsim

import "github.com/klauspost/compress/gzip"

// span is the place of a page of events.
type span struct{ from, size int }

// readyPage is a page in every offered encoding. It is never modified.
type readyPage struct {
	body    []byte
	encoded map[string][]byte // by encoding
}

// ready returns the page for a query if it was rendered ahead and is still full.
func (p *pages) ready(q query) (readyPage, bool) {
	if q.chain != (chain{resource: q.resource.tag}) || q.resource.kind != kindEvent {
		return readyPage{}, false
	}
	if e := p.extent(q, p.stock.now()); e.high-e.low < q.size {
		return readyPage{}, false
	}
	page, ok := p.ahead.Load(span{q.from, q.size})
	if !ok {
		return readyPage{}, false
	}
	return page.(readyPage), true
}

// Prerender renders full pages of events ahead, from the first one on, and compresses them,
// up to limit bytes. It returns the number of pages. Requests for these pages, without
// bounds and filter, need no rendering. Prerender renders nothing if cursors expire,
// because then they differ each time, or if the form has more in a page than items and a
// cursor in the body.
func (h *Handler) Prerender(size, limit int) int {
	f := &h.pages.form
	if h.config.CursorTTL > 0 || size < 1 || size > f.MaxPageSize || f.CursorIn != inBody || f.MoreField != "" ||
		f.ExactEnd || f.NewestFirst {
		return 0
	}
	res := &h.pages.resources[0]
	n, used := 0, 0
	slowly, _ := gzip.NewWriterLevel(nil, gzip.DefaultCompression) // fails for an unknown level only
	for from := 0; ; from += size {
		q := query{chain: chain{resource: res.tag}, resource: res, from: from, to: res.among(h.pages.world.limit), size: size}
		if e := h.pages.extent(q, h.pages.stock.now()); e.high-from < size {
			return n
		}
		body, _ := h.pages.append(nil, q)
		page := readyPage{body: body, encoded: make(map[string][]byte)}
		used += len(body)
		for _, encoding := range h.compressor.offered {
			if encoding == encodingGzip {
				page.encoded[encoding] = compress(slowly, nil, body)
			} else {
				page.encoded[encoding] = h.compressor.append(nil, body, encoding)
			}
			used += len(page.encoded[encoding])
		}
		if used > limit {
			return n
		}
		h.pages.ahead.Store(span{from, size}, page)
		n++
	}
}
