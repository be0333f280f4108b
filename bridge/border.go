package bridge

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
)

// Border describes the page before the cursor of a checkpoint, and the first page. It
// belongs to the cursor: a move of the stream replaces it. The zero value is unknown, as
// for a cursor that an operator sets, and in checkpoints of older versions.
type Border struct {
	// Items are the last items of the page before, in its order. In JSON they are one
	// base64 string of 16 bytes per item.
	Items BorderItems `json:"items,omitempty"`
	// Of is the number of items of that page, 0 if unknown.
	Of int `json:"of,omitempty"`
	// Hold is the number of items to keep of a page; 0 is the minimum.
	Hold int `json:"hold,omitempty"`
	// FirstNext is the digest of the first page's next cursor, zero if unknown.
	FirstNext CursorDigest `json:"first_next,omitzero"`
	// TailFrom is the earliest time of the items in the checkpoint's Tail, in
	// milliseconds since the epoch, 0 if unknown.
	TailFrom int64 `json:"tail_from,omitempty"`
}

// BorderItem is an item with an id: 4 bytes that distinguish most ids, and 12 bytes of
// the SHA-256 of id and item.
type BorderItem [16]byte

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// BorderPrefix returns the first 4 bytes of the BorderItem of an item with this id.
func BorderPrefix(id []byte) uint32 { return crc32.Checksum(id, castagnoli) }

// NewBorderItem returns the BorderItem of an item with an id.
func NewBorderItem(e *Event) BorderItem {
	if e.Sums != nil {
		return e.Sums.Border()
	}
	return borderItem(BorderPrefix(e.ID), e.Identity(), sha256.Sum256(e.Raw))
}

// In reports whether an item with an id is in a border. may excludes most prefixes that the
// border does not have, so that few items are hashed.
func (e *Event) In(b BorderItems, may func(prefix uint32) bool) bool {
	if e.Sums != nil {
		return e.Sums.in(b, may)
	}
	return may(BorderPrefix(e.ID)) && slices.Contains(b, NewBorderItem(e))
}

// Prefix returns the first 4 bytes; see BorderPrefix.
func (b *BorderItem) Prefix() uint32 { return binary.BigEndian.Uint32(b[:4]) }

// BorderItems are items in the order of their page.
type BorderItems []BorderItem

// MarshalText encodes the items as one base64 string.
func (b BorderItems) MarshalText() ([]byte, error) {
	return encodeBlocks(b, len(BorderItem{}), func(to []byte, i BorderItem) []byte { return append(to, i[:]...) })
}

// UnmarshalText decodes the result of MarshalText.
func (b *BorderItems) UnmarshalText(text []byte) (err error) {
	*b, err = decodeBlocks("border", text, len(BorderItem{}), func(item []byte) BorderItem { return BorderItem(item) })
	return err
}

// CursorDigest is the first 8 bytes of a cursor's SHA-256. In JSON it is a base64 string.
type CursorDigest [8]byte

// DigestCursor returns the digest of a cursor.
func DigestCursor(cursor string) CursorDigest {
	var short [128]byte // on the stack, unlike a converted string
	sum := sha256.Sum256(append(short[:0], cursor...))
	return CursorDigest(sum[:8])
}

// MarshalText encodes the digest.
func (d CursorDigest) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, d[:]), nil
}

// UnmarshalText decodes the result of MarshalText.
func (d *CursorDigest) UnmarshalText(text []byte) error {
	raw, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil || len(raw) != len(d) {
		return fmt.Errorf("digest of a cursor: not %d bytes of base64", len(d))
	}
	*d = CursorDigest(raw)
	return nil
}
