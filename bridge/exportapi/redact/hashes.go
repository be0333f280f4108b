package redact

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"hash/maphash"
)

const (
	// recentHashes is how many hashes are kept, recentText the longest text, in bytes, of one.
	recentHashes = 256
	recentText   = 64
	hashSize     = (sha256.Size*8 + 5) / 6 // of base64 without padding
)

// hashes hashes texts. It keeps those of recent texts, since most users have several events in
// a row: the HMAC of a short text takes ten times as long as a look-up.
type hashes struct {
	mac    hash.Hash
	seed   maphash.Seed
	recent [recentHashes]recentHash
	sum    [sha256.Size]byte
}

// recentHash is the hash of text[:size]; a size of 0 is none.
type recentHash struct {
	size uint8
	text [recentText]byte
	hash [hashSize]byte
}

func newHashes(key []byte) *hashes {
	return &hashes{mac: hmac.New(sha256.New, key), seed: maphash.MakeSeed()}
}

// append appends the hash of a text that is not empty.
func (h *hashes) append(to, text []byte) []byte {
	if len(text) > recentText {
		return base64.RawURLEncoding.AppendEncode(to, h.of(text))
	}
	r := &h.recent[maphash.Bytes(h.seed, text)%recentHashes]
	if !bytes.Equal(r.text[:r.size], text) {
		r.size = uint8(copy(r.text[:], text)) //nolint:gosec // at most recentText
		base64.RawURLEncoding.Encode(r.hash[:], h.of(text))
	}
	return append(to, r.hash[:]...)
}

// of returns the HMAC of a text, valid until the next call.
func (h *hashes) of(text []byte) []byte {
	h.mac.Reset()
	_, _ = h.mac.Write(text)
	return h.mac.Sum(h.sum[:0])
}
