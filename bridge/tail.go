package bridge

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Tail is a multiset of identities, in page order.
type Tail []Identity

// MarshalText encodes the tail as one base64 string.
func (t Tail) MarshalText() ([]byte, error) {
	raw := make([]byte, 0, len(t)*len(Identity{}))
	for _, id := range t {
		raw = append(raw, id[:]...)
	}
	return base64.StdEncoding.AppendEncode(nil, raw), nil
}

// UnmarshalText decodes what MarshalText encoded.
func (t *Tail) UnmarshalText(b []byte) error {
	raw, err := base64.StdEncoding.AppendDecode(nil, b)
	if err != nil {
		return fmt.Errorf("tail: %w", err)
	}
	const size = len(Identity{})
	if len(raw)%size != 0 {
		return errors.New("tail: not a whole number of identities")
	}
	*t = make(Tail, 0, len(raw)/size)
	for chunk := range slices.Chunk(raw, size) {
		*t = append(*t, Identity(chunk))
	}
	if len(*t) == 0 {
		*t = nil
	}
	return nil
}

// RecentCursors are the last cursors that the stream left behind, oldest first, each as
// the first 8 bytes of its SHA-256. In JSON it is one base64 string.
type RecentCursors []uint64

// MarshalText encodes the cursors.
func (t RecentCursors) MarshalText() ([]byte, error) {
	raw := make([]byte, 0, 8*len(t))
	for _, h := range t {
		raw = binary.BigEndian.AppendUint64(raw, h)
	}
	return base64.StdEncoding.AppendEncode(nil, raw), nil
}

// UnmarshalText decodes what MarshalText encoded.
func (t *RecentCursors) UnmarshalText(b []byte) error {
	raw, err := base64.StdEncoding.AppendDecode(nil, b)
	if err != nil {
		return fmt.Errorf("trail: %w", err)
	}
	if len(raw)%8 != 0 {
		return errors.New("trail: not a whole number of cursors")
	}
	*t = nil
	for chunk := range slices.Chunk(raw, 8) {
		*t = append(*t, binary.BigEndian.Uint64(chunk))
	}
	return nil
}
