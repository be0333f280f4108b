package exportapi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	acceptEncoding = "zstd, gzip"
	// maxWindow is the largest zstd window that RFC 9659 allows over HTTP.
	maxWindow = 8 << 20
	// drainLimit bounds what is read and thrown away to keep a connection.
	drainLimit = 64 << 10
)

var (
	errTooLarge = errors.New("body is too large")
	// errEncoding marks a body that arrived but cannot be decompressed.
	errEncoding = errors.New("body cannot be decompressed")
)

// bodyReader reads response bodies, one at a time. Its decompressors are kept
// from one to the next. Owned by the goroutine that fetches.
type bodyReader struct {
	wire wire
	buf  *bufio.Reader
	gzip *gzip.Reader
	zstd *zstd.Decoder
}

// close frees the decompressors.
func (b *bodyReader) close() {
	if b.zstd != nil {
		b.zstd.Close()
		b.zstd = nil
	}
}

// wire remembers how the reading from the connection ended, so that a broken
// connection is not taken for a broken compression.
type wire struct {
	from io.Reader
	err  error // what ended the reading, if it was not the end of the body
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.from.Read(p)
	if err != nil && err != io.EOF {
		w.err = err
	}
	return n, err
}

// read appends the decompressed body to dst, at most limit bytes. Its error is
// errTooLarge, wraps errEncoding, or is the connection's.
func (b *bodyReader) read(resp *http.Response, dst []byte, limit int64) ([]byte, error) {
	b.wire = wire{from: resp.Body}
	defer func() { b.wire.from = nil }()
	from, err := b.decompress(resp.Header.Get("Content-Encoding"))
	if err == nil {
		dst, err = readUpTo(from, dst, limit)
	}
	switch {
	case b.wire.err != nil:
		return dst, b.wire.err
	case err == nil, errors.Is(err, errTooLarge), errors.Is(err, errEncoding):
		return dst, err
	}
	return dst, fmt.Errorf("%w: %w", errEncoding, err)
}

// decompress returns a reader for the body in plain.
func (b *bodyReader) decompress(encoding string) (io.Reader, error) {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
		return &b.wire, nil
	case "gzip", "x-gzip":
		return b.gunzip()
	case "zstd":
		return b.unzstd()
	}
	return nil, fmt.Errorf("%w: its Content-Encoding %q is none of those asked for (%s)", errEncoding, encoding, acceptEncoding)
}

func (b *bodyReader) gunzip() (io.Reader, error) {
	// With a reader of bytes gzip adds no buffer of its own each time.
	if b.buf == nil {
		b.buf = bufio.NewReaderSize(nil, 32<<10)
	}
	b.buf.Reset(&b.wire)
	if b.gzip == nil {
		b.gzip = new(gzip.Reader)
	}
	return b.gzip, b.gzip.Reset(b.buf)
}

func (b *bodyReader) unzstd() (io.Reader, error) {
	if b.zstd == nil {
		// One thread: no goroutines to own, and a page is small.
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errEncoding, err)
		}
		b.zstd = d
	}
	return b.zstd, b.zstd.Reset(&b.wire)
}

// readUpTo appends all of r to dst, at most limit bytes.
func readUpTo(r io.Reader, dst []byte, limit int64) ([]byte, error) {
	start := len(dst)
	for {
		if len(dst) == cap(dst) {
			dst = slices.Grow(dst, max(cap(dst)/2, 4<<10))
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case int64(len(dst)-start) > limit:
			return dst, errTooLarge
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return dst, err
		}
	}
}

// plain reports whether a body arrives as it is, so that its Content-Length
// is the page's size.
func plain(resp *http.Response) bool {
	encoding := resp.Header.Get("Content-Encoding")
	return encoding == "" || strings.EqualFold(encoding, "identity")
}

// discard ends with a response. What little is left of the body is read, so
// that its connection can serve the next request; more is cut off.
func discard(resp *http.Response) {
	// The outcome does not matter: nothing in the rest is used.
	_, _ = io.CopyN(io.Discard, resp.Body, drainLimit)
	_ = resp.Body.Close()
}
