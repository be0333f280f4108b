package exportapi

import (
	"fmt"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/share"
	"exportbridge/bridge/internal/spare"
)

// mapping holds the settings that decoders depend on.
type mapping struct {
	resource, items, cursor, key string // see Config
	PageMapping
	ItemMapping
	routes []bridge.Route
	ruled  []string // pointers that the rules for private data look for
}

func (c *Config) mapping() *mapping {
	return &mapping{c.Resource, c.ItemsField, c.CursorField, c.keyPointer(), c.PageMapping, c.ItemMapping, c.Routes.Rules,
		c.privatePointers()}
}

// decoders keeps the idle decoders of a mapping. A client borrows one for each page or
// item.
type decoders struct {
	mapping *mapping
	pages   spare.List[*pageDecoder]
	items   spare.List[*ingestionReader]
}

// decodersOf returns the decoders of a mapping.
func (s *Shared) decodersOf(m *mapping) *share.Value[string, *decoders] {
	return s.decoders.Use(fmt.Sprintf("%#v", *m), func() *decoders { return &decoders{mapping: m} })
}

// borrow takes an idle decoder, or makes one.
func (d *decoders) borrow() *pageDecoder {
	if p, ok := d.pages.Take(spare.Any); ok {
		return p
	}
	return newPageDecoder(d.mapping)
}

// giveBack returns a decoder after its references to a body are dropped.
func (d *decoders) giveBack(p *pageDecoder) {
	p.forget()
	d.pages.Give(p)
}

// ingestedAt returns the ingestion time of an item in milliseconds since the epoch, or 0.
func (d *decoders) ingestedAt(item []byte) int64 {
	r, ok := d.items.Take(spare.Any)
	if !ok {
		r = newIngestionReader(d.mapping)
	}
	defer d.items.Give(r)
	return r.read(item)
}
