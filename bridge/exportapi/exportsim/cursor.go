package exportsim

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"
)

// cursorPrefix has an escape, so that a cursor that a client does not escape arrives as
// another one, which decode refuses.
const cursorPrefix = "c1%2B"

// A token is a sum over the fields, and the fields themselves. A pad that the sum
// determines hides the fields. 61 bytes are not a multiple of three, so that the
// text of a token always ends in "=".
const (
	cursorSum  = 12
	cursorBody = 1 + 6*8
	cursorLen  = cursorSum + cursorBody
	// sizeShift is the position of the page size in the field of the next item.
	sizeShift = 40
)

// chain identifies a sequence of pages. A cursor is valid only for its chain.
type chain struct {
	resource   byte
	start, end int64  // milliseconds; end 0 is unbounded
	filter     uint64 // bit set of event types; 0 is all
}

// place is the content of a cursor.
type place struct {
	chain
	next   int   // index of the next item
	size   int   // items in a page; 0 if each request chooses it
	issued int64 // milliseconds; 0 if cursors do not expire
}

// cursors encodes and decodes cursor tokens.
type cursors struct {
	key []byte
	ttl time.Duration
}

func newCursors(seed uint64, ttl time.Duration) cursors {
	key := sha256.Sum256(binary.BigEndian.AppendUint64([]byte("exportsim cursor key "), seed))
	return cursors{key: key[:], ttl: ttl}
}

// encode returns the token of a place. The same place has the same token.
func (c cursors) encode(p place) string {
	raw := make([]byte, cursorSum, cursorLen)
	raw = append(raw, p.resource)
	for _, field := range []int64{p.start, p.end, int64(p.filter), int64(p.next | p.size<<sizeShift), p.issued, 0} {
		raw = binary.BigEndian.AppendUint64(raw, uint64(field))
	}
	sum, body := raw[:cursorSum], raw[cursorSum:]
	copy(sum, c.sum(body))
	c.pad(sum, body)
	return cursorPrefix + base64.StdEncoding.EncodeToString(raw)
}

var (
	errCursorAltered = errors.New("the cursor is not one that this API handed out")
	errCursorExpired = errors.New("the cursor has expired")
)

// decode reads a token that encode made. It returns errCursorAltered for any other token,
// and errCursorExpired after the lifetime.
func (c cursors) decode(token string, now time.Time) (place, error) {
	text, ok := strings.CutPrefix(token, cursorPrefix)
	if !ok {
		return place{}, errCursorAltered
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	// The comparison refuses what the decoder accepts: line breaks, and any
	// bits after the last byte.
	if err != nil || len(raw) != cursorLen || base64.StdEncoding.EncodeToString(raw) != text {
		return place{}, errCursorAltered
	}
	sum, body := raw[:cursorSum], raw[cursorSum:]
	c.pad(sum, body)
	if !hmac.Equal(sum, c.sum(body)) {
		return place{}, errCursorAltered
	}
	field := func(n int) int64 { return int64(binary.BigEndian.Uint64(body[1+8*n:])) }
	p := place{
		chain:  chain{resource: body[0], start: field(0), end: field(1), filter: uint64(field(2))},
		next:   int(field(3) & (1<<sizeShift - 1)),
		size:   int(field(3) >> sizeShift),
		issued: field(4),
	}
	if c.ttl > 0 && now.UnixMilli()-p.issued > c.ttl.Milliseconds() {
		return place{}, errCursorExpired
	}
	return p, nil
}

func (c cursors) sum(body []byte) []byte {
	h := hmac.New(sha256.New, c.key)
	h.Write(body)
	return h.Sum(nil)[:cursorSum]
}

// pad hides or reveals the body.
func (c cursors) pad(sum, body []byte) {
	pad := sha512.Sum512(append(slices.Clip(c.key), sum...))
	subtle.XORBytes(body, body, pad[:])
}
