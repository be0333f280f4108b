package exportsim

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// The encodings, as HTTP names them.
const (
	encodingZstd = "zstd"
	encodingGzip = "gzip"
)

// compressor compresses bodies. It may be used concurrently.
type compressor struct {
	offered []string  // encodings, the best first
	gzips   sync.Pool // of *gzip.Writer
	zstd    *zstd.Encoder
}

func newCompressor(config Config) (*compressor, error) {
	c := &compressor{}
	c.gzips.New = func() any {
		w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // fails for an unknown level only
		return w
	}
	if config.Zstd {
		c.offered = append(c.offered, encodingZstd)
		var err error
		if c.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest)); err != nil {
			return nil, fmt.Errorf("make zstd encoder: %w", err)
		}
	}
	if config.Gzip {
		c.offered = append(c.offered, encodingGzip)
	}
	return c, nil
}

// choose returns the best offered encoding that the client accepts, or "" for none.
func (c *compressor) choose(accept string) string {
	for _, encoding := range c.offered {
		if accepts(accept, encoding) {
			return encoding
		}
	}
	return ""
}

// append appends the body in an encoding.
func (c *compressor) append(to, body []byte, encoding string) []byte {
	if encoding == encodingZstd {
		return c.zstd.EncodeAll(body, to)
	}
	w := c.gzips.Get().(*gzip.Writer)
	defer c.gzips.Put(w)
	return compress(w, to, body)
}

// compress appends the body, compressed by the writer.
func compress(w *gzip.Writer, to, body []byte) []byte {
	out := bytes.NewBuffer(to)
	w.Reset(out)
	// Writing to memory does not fail.
	_, _ = w.Write(body)
	_ = w.Close()
	return out.Bytes()
}

// accepts reports whether an Accept-Encoding header allows an encoding. A weight matters
// only if it is 0.
func accepts(header, encoding string) bool {
	for field := range strings.SplitSeq(header, ",") {
		name, parameters, _ := strings.Cut(field, ";")
		if !strings.EqualFold(strings.TrimSpace(name), encoding) {
			continue
		}
		text, weighted := strings.CutPrefix(strings.TrimSpace(parameters), "q=")
		weight, err := strconv.ParseFloat(text, 64)
		return !weighted || err == nil && weight > 0
	}
	return false
}
