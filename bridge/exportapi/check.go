package exportapi

import (
	"context"
	"fmt"
	"time"

	"exportbridge/bridge"
)

// Findings is what one small request tells about an export API.
type Findings struct {
	// Host is the API's host, with the port if the URL has one.
	Host string
	// Latency is from the request to the last byte of the page, connecting
	// included.
	Latency time.Duration
	// CertificateExpires is when the server's certificate ends, zero without
	// TLS.
	CertificateExpires time.Time
	// ClockSkew is the server's clock minus this one's, as exact as the whole
	// seconds of the Date header allow; zero where the server sent none.
	ClockSkew time.Duration
	// Source is whose export the page says it is.
	Source bridge.SourceIdentity
	// Items is the number of items on the page, normally none.
	Items int
	// Contract is how the end of the results looked, unknown if there were
	// items.
	Contract bridge.Contract
	// Compression is the page's Content-Encoding, empty for none.
	Compression string
}

// Check asks for one page of one item from now on. Its errors are those of
// Fetch and Decode. It changes nothing and needs no cursor.
func (c *Client) Check(ctx context.Context) (Findings, error) {
	page, got, err := c.fetch(ctx, bridge.Position{Start: time.Now().UnixMilli()}, 1)
	if err != nil {
		return Findings{}, fmt.Errorf("check the export API: %w", err)
	}
	arrived := time.Now()
	defer page.Release()
	if err := c.Decode(page); err != nil {
		return Findings{}, fmt.Errorf("check the export API: %w", err)
	}
	f := Findings{
		Host:        hostPort(c.endpoint),
		Latency:     arrived.Sub(page.RequestedAt),
		Source:      page.Source,
		Items:       page.Items,
		Compression: got.compression,
	}
	if got.tls != nil && len(got.tls.PeerCertificates) > 0 {
		f.CertificateExpires = got.tls.PeerCertificates[0].NotAfter
	}
	if !page.ServerTime.IsZero() {
		// The server answered about in the middle, and Date cuts off what is
		// half a second on average.
		f.ClockSkew = page.ServerTime.Add(500 * time.Millisecond).Sub(page.RequestedAt.Add(f.Latency / 2))
	}
	if page.Items == 0 {
		f.Contract = bridge.ContractEmptyCursor
		if page.Next != "" {
			f.Contract = bridge.ContractEmptyItems
		}
	}
	return f, nil
}

// lookedAt is how many items Look asks for.
const sampleSize = 100

// Look is how the items of one page are read.
type Sample struct {
	// Items are those of the page, Unreadable those of them that cannot be read
	// as events.
	Items, Unreadable int
	// Index is the place of the first that cannot, from 0, Defect why not.
	Index  int
	Defect bridge.Defect
}

// Look asks for the first items from start on, in milliseconds since the epoch,
// and tells how they are read. Its errors are those of Fetch and Decode. It
// changes nothing.
func (c *Client) Sample(ctx context.Context, start int64) (Sample, error) {
	page, _, err := c.fetch(ctx, bridge.Position{Start: start}, min(sampleSize, c.cfg.PageSize))
	if err != nil {
		return Sample{}, fmt.Errorf("read the first items: %w", err)
	}
	defer page.Release()
	if err := c.Decode(page); err != nil {
		return Sample{}, fmt.Errorf("read the first items: %w", err)
	}
	l := Sample{Items: page.Items}
	for i := range page.Events {
		e := &page.Events[i]
		if e.Defect == bridge.DefectNone {
			continue
		}
		if l.Unreadable++; l.Unreadable == 1 {
			l.Index, l.Defect = e.Index, e.Defect
		}
	}
	return l, nil
}
