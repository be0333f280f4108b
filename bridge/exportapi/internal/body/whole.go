package body

import (
	"bytes"
	"io"
	"net/http"
)

// maxWhole is the most that Whole reads of a response, in bytes.
const maxWhole = 1 << 20

// Whole reads a small response to its end. So a connection that breaks in the body fails
// the request; package oauth2 would keep only the text of that error.
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

// DropConnection closes the body of a 101. That body is a bare connection, and no timeout
// would end a read.
func DropConnection(resp *http.Response) {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		_ = resp.Body.Close()
		resp.Body = http.NoBody
	}
}
