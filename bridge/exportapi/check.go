package exportapi

import (
	"context"
	"fmt"
	"time"

	"exportbridge/bridge"
)

// Findings is the result of Check.
type Findings struct {
	// Host is the host of the API, with the port if the URL has one.
	Host string
	// Latency is the time from the request to the last byte of the page,
	// connecting included.
	Latency time.Duration
	// CertificateExpires is the expiry of the server certificate; zero without
	// TLS.
	CertificateExpires time.Time
	// ClockSkew is the server's clock minus the local clock, within the whole
	// seconds of the Date header; zero without that header.
	ClockSkew time.Duration
	// Source is the identity of the export in the page's metadata.
	Source bridge.SourceIdentity
	// Items is the number of items on the page, normally 0.
	Items int
	// Contract is how the page marks the end of the results; unknown if it has
	// items.
	Contract bridge.Contract
	// Compression is the Content-Encoding of the page; empty for none.
	Compression string
}

// Check requests one page of one item, starting now if the API has a parameter
// for that. It returns the errors of
// Fetch and Decode, changes nothing and needs no cursor.
func (c *Client) Check(ctx context.Context) (Findings, error) {
	var at bridge.Position
	if c.cfg.Starts() == nil {
		at.Start = time.Now().UnixMilli()
	}
	page, got, err := c.fetch(ctx, at, 1)
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

// sampleSize is the number of items that Sample requests.
const sampleSize = 100

// Sample is the result of decoding the items of one page.
type Sample struct {
	// Items counts the items of the page, Unreadable those that cannot be
	// decoded as events.
	Items, Unreadable int
	// Index is the position of the first unreadable item, from 0, and Defect
	// its defect.
	Index  int
	Defect bridge.Defect
}

// Sample requests the first items from start, in milliseconds since the epoch,
// and decodes them. It returns the errors of Fetch and Decode, and changes
// nothing.
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
