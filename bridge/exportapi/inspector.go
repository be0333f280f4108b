package exportapi

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"exportbridge/bridge"
)

// Inspector looks at single pages through a Client, to check its settings or to find them.
// Its methods are for the goroutine that calls Fetch and Decode.
type Inspector struct{ *Client }

// Lacking names the parameters of requests that the next URL of a page lacked, where
// EXPORT_NEXT_PARAMS is to warn of them.
func (i Inspector) Lacking() []string { return i.pages.lacking }

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
	// IgnoresStart is set if an item is older than the start that was asked for.
	IgnoresStart bool
	// Contract is how the page marks the end of the results; unknown if it has
	// items.
	Contract bridge.Contract
	// NoMember is set if the page lacks the member of the cursor.
	NoMember bool
	// Compression is the Content-Encoding of the page; empty for none.
	Compression string
}

// startTolerance is how much older than a start of now an item may be.
const startTolerance = 5 * time.Minute

// Check requests one page of one item, starting now if the API has a parameter for
// that. bounded asks for the last minute in place of it, with the bounds that the API
// has parameters for, as one for both requires. Check returns the errors of Fetch and
// Decode, changes nothing and needs no cursor.
func (i Inspector) Check(ctx context.Context, bounded bool) (f Findings, err error) {
	c, now := i.Client, time.Now().UnixMilli()
	var at bridge.Position
	if c.cfg.takesStart() {
		at.Start = now
	}
	if bounded && c.cfg.takesEnd() || c.cfg.Refuse(at) != nil { // an end in the future may be refused
		at.End, at.Window = now, true
		if c.cfg.takesStart() {
			at.Start = now - time.Minute.Milliseconds()
		}
	}
	look := func(d *pageDecoder) { f.NoMember = d.cursor.part != nil && !d.cursor.seen }
	read := func(c *Client, p *bridge.Page, asked *url.URL, resp *http.Response) *bridge.Fault {
		return c.receive(p, asked, resp, look)
	}
	page, got, err := c.fetch(ctx, at, 1, read)
	if err != nil {
		return Findings{}, fmt.Errorf("check the export API: %w", err)
	}
	arrived := time.Now()
	defer page.Release()
	if err := c.Decode(page); err != nil {
		return Findings{}, fmt.Errorf("check the export API: %w", err)
	}
	f.Host, f.Latency, f.Compression = hostPort(c.endpoint), arrived.Sub(page.RequestedAt), got.compression
	f.Source, f.Items = page.Source, page.Items
	if got.tls != nil && len(got.tls.PeerCertificates) > 0 {
		f.CertificateExpires = got.tls.PeerCertificates[0].NotAfter
	}
	if !page.ServerTime.IsZero() {
		// The server answered about in the middle, and Date cuts off what is
		// half a second on average.
		f.ClockSkew = page.ServerTime.Add(500 * time.Millisecond).Sub(page.RequestedAt.Add(f.Latency / 2))
	}
	for i := range page.Events {
		e := &page.Events[i]
		f.IgnoresStart = f.IgnoresStart || e.Defect == bridge.DefectNone && e.Time != bridge.NoTime &&
			e.Time < at.Start-startTolerance.Milliseconds()
	}
	if page.Items == 0 {
		f.Contract = bridge.ContractEmptyCursor
		if page.Next != "" {
			f.Contract = bridge.ContractEmptyItems
		}
	}
	return f, nil
}
