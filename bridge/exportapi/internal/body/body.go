// Package body reads the bodies of HTTP responses. It decompresses them up to a
// limit, with decompressors that the whole process shares.
package body

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

	"exportbridge/bridge/internal/spare"
)

// AcceptEncoding is the header of requests whose bodies can be read.
const AcceptEncoding = "zstd, gzip"

const (
	// maxWindow is the largest zstd window that RFC 9659 allows over HTTP.
	maxWindow = 8 << 20
	// drainLimit is how much of the rest of a body is read, in bytes, to reuse the
	// connection.
	drainLimit = 64 << 10
)

// The errors of a body.
var (
	// ErrTooLarge marks a body beyond the limit.
	ErrTooLarge = errors.New("body is too large")
	// ErrEncoding marks a body that arrived but cannot be decompressed.
	ErrEncoding = errors.New("body cannot be decompressed")
)

// Reader reads response bodies, one after the other. One goroutine at a time may use it.
// The zero value is ready for use.
type Reader struct {
	wire     wire
	encoding string
	plain    io.Reader // decompresses wire; nil before the first read
	gzip     *unzipper // in use, or nil
	zstd     *zstd.Decoder
}

// unzipper decompresses gzip. buf is an io.ByteReader, so gzip allocates no buffer of its
// own.
type unzipper struct {
	buf  *bufio.Reader
	gzip gzip.Reader
}

// The decompressors that no Reader of the process uses.
var (
	unzippers spare.List[*unzipper]
	decoders  spare.List[*zstd.Decoder]
)

// Trim frees the decompressors that no Reader has needed since the last Trim.
func Trim() {
	unzippers.Trim()
	decoders.Trim()
}

// Open begins a body. It does not read.
func (r *Reader) Open(resp *http.Response) {
	r.wire, r.encoding, r.plain = wire{from: resp.Body}, resp.Header.Get("Content-Encoding"), nil
}

// wire records how reading from the connection ended. So a broken connection is not taken
// for corrupt compression.
type wire struct {
	from io.Reader
	err  error // the error that ended the reading, other than io.EOF
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.from.Read(p)
	if err != nil && err != io.EOF {
		w.err = err
	}
	return n, err
}

// Read appends the decompressed body to dst until dst has enough bytes or the
// body ends. The error is ErrTooLarge if dst exceeds limit, wraps ErrEncoding, or
// comes from the connection.
func (r *Reader) Read(dst []byte, enough int, limit int64) (out []byte, err error) {
	if r.plain == nil {
		r.plain, err = r.decompress(r.encoding)
	}
	if err == nil {
		dst, err = readUpTo(r.plain, dst, enough, limit)
	}
	switch {
	case r.wire.err != nil:
		return dst, r.wire.err
	case err == nil, errors.Is(err, ErrTooLarge), errors.Is(err, ErrEncoding):
		return dst, err
	}
	return dst, fmt.Errorf("%w: %w", ErrEncoding, err)
}

// Done drops the references to the body. It does not close the body.
func (r *Reader) Done() {
	r.wire, r.plain = wire{}, nil
	if r.gzip != nil {
		r.gzip.buf.Reset(nil)
		unzippers.Give(r.gzip)
		r.gzip = nil
	}
	if r.zstd != nil {
		_ = r.zstd.Reset(nil)
		decoders.Give(r.zstd)
		r.zstd = nil
	}
}

// decompress returns a reader of the decompressed body.
func (r *Reader) decompress(encoding string) (io.Reader, error) {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
		return &r.wire, nil
	case "gzip", "x-gzip":
		return r.gunzip()
	case "zstd":
		return r.unzstd()
	}
	return nil, fmt.Errorf("%w: Content-Encoding %q was not requested (%s)", ErrEncoding, encoding, AcceptEncoding)
}

func (r *Reader) gunzip() (io.Reader, error) {
	var ok bool
	if r.gzip, ok = unzippers.Take(spare.Any); !ok {
		r.gzip = &unzipper{buf: bufio.NewReaderSize(nil, 32<<10)}
	}
	r.gzip.buf.Reset(&r.wire)
	return &r.gzip.gzip, r.gzip.gzip.Reset(r.gzip.buf)
}

func (r *Reader) unzstd() (io.Reader, error) {
	if r.zstd, _ = decoders.Take(spare.Any); r.zstd == nil {
		// One thread: no goroutines to own, and a page is small.
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrEncoding, err)
		}
		r.zstd = d
	}
	return r.zstd, r.zstd.Reset(&r.wire)
}

// readUpTo appends r to dst until dst has enough bytes or r ends. It returns
// ErrTooLarge if dst exceeds limit.
func readUpTo(r io.Reader, dst []byte, enough int, limit int64) ([]byte, error) {
	for len(dst) < enough {
		if len(dst) == cap(dst) {
			dst = slices.Grow(dst, max(cap(dst)/2, 4<<10))
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case int64(len(dst)) > limit:
			return dst, ErrTooLarge
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return dst, err
		}
	}
	return dst, nil
}

// Plain reports whether a body is not encoded. Then Content-Length is the size of the page.
func Plain(resp *http.Response) bool {
	encoding := resp.Header.Get("Content-Encoding")
	return encoding == "" || strings.EqualFold(encoding, "identity")
}

// Discard closes an unwanted body. It first reads a short rest, so that the connection can
// be reused.
func Discard(body io.ReadCloser) {
	// The outcome does not matter: nothing in the rest is used.
	_, _ = io.CopyN(io.Discard, body, drainLimit)
	_ = body.Close()
}

// DropConnection closes the body of a 101, which is a bare connection: no time-out
// ends a read of it.
func DropConnection(resp *http.Response) {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		_ = resp.Body.Close()
		resp.Body = http.NoBody
	}
}
