package reconcile

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
)

// Digest identifies a set of events in any order: the first 16 bytes of the SHA-256 of each
// record id (ce_id), added as big-endian numbers modulo 2^128.
type Digest [16]byte

// add adds the events of another digest.
func (d *Digest) add(other Digest) {
	low, carry := bits.Add64(binary.BigEndian.Uint64(d[8:]), binary.BigEndian.Uint64(other[8:]), 0)
	high, _ := bits.Add64(binary.BigEndian.Uint64(d[:8]), binary.BigEndian.Uint64(other[:8]), carry)
	binary.BigEndian.PutUint64(d[:8], high)
	binary.BigEndian.PutUint64(d[8:], low)
}

func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Digest) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(d) {
		return fmt.Errorf("digest %.50q does not have %d hexadecimal digits", text, 2*len(d))
	}
	if _, err := hex.Decode(d[:], text); err != nil {
		return fmt.Errorf("digest %q: %w", text, err)
	}
	return nil
}
