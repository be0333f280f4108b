package body

import (
	"bytes"
	"io"
	"net/http"
)

// maxWhole bounds how much of a response Whole reads, in bytes.
const maxWhole = 1 << 20

// Whole reads small responses to their end, so that a connection that breaks
// before it fails the request: package oauth2 keeps only the text of that error.
type Whole struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (w Whole) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	DropConnection(resp)
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxWhole))
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	return resp, nil
}

// DropConnection closes the body of a 101, which is a bare connection: no time-out
// ends a read of it.
func DropConnection(resp *http.Response) {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		_ = resp.Body.Close()
		resp.Body = http.NoBody
	}
}
