package exportapi

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"exportbridge/bridge"
)

// Inspector requests single pages with a Client, to check its settings or to find them. Its
// methods are for the goroutine that calls Fetch and Decode.
type Inspector struct{ *Client }

// Lacking returns the names of request parameters that the last incomplete next URL lacked.
// It is empty unless EXPORT_NEXT_PARAMS=warn.
func (i Inspector) Lacking() []string { return i.pages.lacking }

// Findings is the result of Check.
type Findings struct {
	// Host is the host of the API, with the port if the URL has one.
	Host string
	// Latency is the time from the request to the last byte of the page. It includes
	// connecting.
	Latency time.Duration
	// CertificateExpires is the expiry of the server certificate; zero without TLS.
	CertificateExpires time.Time
	// ClockSkew is the server's clock minus the local clock, within the whole seconds of
	// the Date header; zero without that header.
	ClockSkew time.Duration
	// Source is the identity of the export in the page's metadata.
	Source bridge.SourceIdentity
	// Items is the number of items on the page, normally 0.
	Items int
	// IgnoresStart is set if an item is older than the requested start.
	IgnoresStart bool
	// Contract is how the page marks the end of the results; unknown if it has items.
	Contract bridge.Contract
	// NoMember is set if the page lacks the member that EXPORT_CURSOR_FIELD names.
	NoMember bool
	// Compression is the Content-Encoding of the page; empty for none.
	Compression string
}

// startTolerance is how much an item may be older than the requested start, which is now.
const startTolerance = 5 * time.Minute

// Check requests one page of one item. The page starts now if requests can have a start. If
// bounded is set, or requests need both bounds, it is a page of the last minute. Check
// returns the errors of Fetch and Decode, changes nothing and needs no cursor.
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
	var used *tls.ConnectionState // nil for plain HTTP
	read := func(c *Client, p *bridge.Page, asked *url.URL, resp *http.Response) *bridge.Fault {
		fault := c.receive(p, asked, resp, look)
		f.Compression, used = resp.Header.Get("Content-Encoding"), resp.TLS
		return fault
	}
	page, err := c.fetch(ctx, at, 1, read)
	if err != nil {
		return Findings{}, fmt.Errorf("check the export API: %w", err)
	}
	arrived := time.Now()
	defer page.Release()
	if err := c.Decode(page); err != nil {
		return Findings{}, fmt.Errorf("check the export API: %w", err)
	}
	f.Host, f.Latency = c.faults.urls.first.Host, arrived.Sub(page.RequestedAt)
	f.Source, f.Items = page.Source, page.Items
	if used != nil && len(used.PeerCertificates) > 0 {
		f.CertificateExpires = used.PeerCertificates[0].NotAfter
	}
	if !page.ServerTime.IsZero() {
		// The server answered about halfway through the request. Date drops half a second
		// on average.
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
