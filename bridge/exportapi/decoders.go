package exportapi

import (
	"fmt"

	"exportbridge/bridge/exportapi/internal/share"
	"exportbridge/bridge/internal/spare"
)

// mapping is all that decoders depend on.
type mapping struct {
	resource, items, cursor, key string // see Config
	PageMapping
	ItemMapping
}

func (c *Config) mapping() *mapping {
	return &mapping{c.Resource, c.ItemsField, c.CursorField, c.keyPointer(), c.PageMapping, c.ItemMapping}
}

// decoders are the idle decoders of a mapping: a client borrows one for a page or an item.
type decoders struct {
	mapping *mapping
	pages   spare.List[*pageDecoder]
	items   spare.List[*ingestionReader]
}

// decodersOf returns the decoders of a mapping.
func (s *Shared) decodersOf(m *mapping) *share.Value[string, *decoders] {
	return s.decoders.Use(fmt.Sprintf("%#v", *m), func() *decoders { return &decoders{mapping: m} })
}

// borrow takes a decoder, which is given back after the page.
func (l *decoders) borrow() *pageDecoder {
	if d, ok := l.pages.Take(spare.Any); ok {
		return d
	}
	return newPageDecoder(l.mapping)
}

// giveBack gives back a decoder, without what it has of a body.
func (l *decoders) giveBack(d *pageDecoder) {
	d.forget()
	l.pages.Give(d)
}

// ingestedAt returns the ingestion time of an item in milliseconds since the epoch, or 0.
func (l *decoders) ingestedAt(item []byte) int64 {
	r, ok := l.items.Take(spare.Any)
	if !ok {
		r = newIngestionReader(l.mapping)
	}
	defer l.items.Give(r)
	return r.read(item)
}
