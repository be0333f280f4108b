package bridge

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
)

// Tail is a multiset of identities, in page order.
type Tail []Identity

// MarshalText encodes the tail as one base64 string.
func (t Tail) MarshalText() ([]byte, error) {
	return encodeBlocks(t, len(Identity{}), func(to []byte, id Identity) []byte { return append(to, id[:]...) })
}

// UnmarshalText decodes the result of MarshalText.
func (t *Tail) UnmarshalText(text []byte) (err error) {
	*t, err = decodeBlocks("tail", text, len(Identity{}), func(b []byte) Identity { return Identity(b) })
	return err
}

// encodeBlocks returns the base64 form of values of size bytes each.
func encodeBlocks[V any](all []V, size int, appendValue func([]byte, V) []byte) ([]byte, error) {
	raw := make([]byte, 0, size*len(all))
	for _, v := range all {
		raw = appendValue(raw, v)
	}
	return base64.StdEncoding.AppendEncode(nil, raw), nil
}

// decodeBlocks decodes the base64 form of values of size bytes each.
func decodeBlocks[V any](name string, text []byte, size int, value func([]byte) V) ([]V, error) {
	raw, err := base64.StdEncoding.AppendDecode(nil, text)
	if err == nil && len(raw)%size != 0 {
		err = fmt.Errorf("%d bytes are no multiple of %d", len(raw), size)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	all := slices.Grow([]V(nil), len(raw)/size)
	for block := range slices.Chunk(raw, size) {
		all = append(all, value(block))
	}
	return all, nil
}

// RecentCursors are the last cursors that the stream has left, oldest first, each as the
// first 8 bytes of its SHA-256. In JSON they are one base64 string.
type RecentCursors []uint64

// MarshalText encodes the cursors.
func (c RecentCursors) MarshalText() ([]byte, error) {
	return encodeBlocks(c, 8, binary.BigEndian.AppendUint64)
}

// UnmarshalText decodes the result of MarshalText.
func (c *RecentCursors) UnmarshalText(text []byte) (err error) {
	*c, err = decodeBlocks("trail", text, 8, binary.BigEndian.Uint64)
	return err
}
