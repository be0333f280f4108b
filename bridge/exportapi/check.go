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

// SampleSize is how many items tell enough of how an export is read.
const SampleSize = 100

// SampledItem is how one item is read. Its texts are copies, empty where the
// item has none.
type SampledItem struct {
	ID, Type, Key string
	// Time is as in bridge.Event.
	Time   int64
	Defect bridge.Defect
	// Why says what is wrong with the item, or looks wrong if it has no
	// Defect, and Remedy which setting to set. Both are empty if nothing is.
	Why, Remedy string
	// EndsFull is set if the page is full and names no next one.
	EndsFull bool
}

// Sample requests at most size items from start, in milliseconds since the
// epoch, as one page, and decodes them. It returns the errors of Fetch and
// Decode, and changes nothing.
func (c *Client) Sample(ctx context.Context, start int64, size int) ([]SampledItem, error) {
	page, _, err := c.fetch(ctx, bridge.Position{Start: start}, min(size, c.cfg.PageSize))
	if err != nil {
		return nil, fmt.Errorf("read the first items: %w", err)
	}
	defer page.Release()
	if err := c.Decode(page); err != nil {
		return nil, fmt.Errorf("read the first items: %w", err)
	}
	items := make([]SampledItem, 0, min(size, len(page.Events)))
	for i := range page.Events[:cap(items)] {
		e := &page.Events[i]
		item := SampledItem{ID: string(e.ID), Type: string(e.Type), Key: string(e.Key), Time: e.Time, Defect: e.Defect}
		item.EndsFull = page.Next == "" && c.cfg.MoreField == "" && page.Items >= min(size, c.cfg.PageSize)
		item.Why, item.Remedy = c.diagnose(e)
		items = append(items, item)
	}
	return items, nil
}
