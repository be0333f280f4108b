package exportsim

import "encoding/hex"

// idLen is the length of a UUID in text.
const idLen = 36

// kind separates the name spaces of ids.
type kind uint64

const (
	kindEvent kind = iota + 1
	kindSession
	kindUser
	kindTab
	kindOrder
)

const golden = 0x9e3779b97f4a7c15

// mix is the finalizer of SplitMix64: a fast bijection that scatters bits.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// EventID returns the id of the event with the given index, counted from 0. It
// reads like a random UUID and is what eventId (0.8) and id (0.7) say.
func EventID(seed uint64, i int) string {
	return string(appendID(nil, kindEvent, seed, i))
}

// Index returns the index of the event with an id, whatever the seed, and
// whether it is an event id (wrong in one of 16,000 cases).
func Index(id string) (int, bool) { return indexOfID(kindEvent, id) }

// appendID appends the id of item i of a kind, of 36 bytes. The first half is a
// hash, which serves as the pad that hides the index in the second half; 14
// bits there check the kind.
func appendID(to []byte, k kind, seed uint64, i int) []byte {
	hi := mix(mix(seed+uint64(k)*golden)+uint64(i)*golden)&^0xf000 | 0x4000
	lo := 1<<63 | idCheck(k, hi, i)<<48 | (uint64(i)^mix(hi))&idIndexMask
	to = append(appendHex(to, hi>>32, 8), '-')
	to = append(appendHex(to, hi>>16, 4), '-')
	to = append(appendHex(to, hi, 4), '-')
	to = append(appendHex(to, lo>>48, 4), '-')
	return appendHex(to, lo, 12)
}

const idIndexMask = 1<<48 - 1

func idCheck(k kind, hi uint64, i int) uint64 {
	return mix(hi+uint64(k)*golden^uint64(i)) >> 50
}

func indexOfID(k kind, id string) (int, bool) {
	if len(id) != idLen || id[8] != '-' || id[13] != '-' || id[18] != '-' || id[23] != '-' {
		return 0, false
	}
	var raw [16]byte
	text := id[0:8] + id[9:13] + id[14:18] + id[19:23] + id[24:36]
	if _, err := hex.Decode(raw[:], []byte(text)); err != nil {
		return 0, false
	}
	var hi, lo uint64
	for n := range 8 {
		hi, lo = hi<<8|uint64(raw[n]), lo<<8|uint64(raw[n+8])
	}
	i := int((lo ^ mix(hi)) & idIndexMask)
	return i, lo>>48 == 1<<15|idCheck(k, hi, i)
}

// appendHex appends the lowest digits of n in base 16.
func appendHex(to []byte, n uint64, digits int) []byte {
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		to = append(to, "0123456789abcdef"[n>>shift&15])
	}
	return to
}

// appendDecimal appends the lowest digits of n in base 10.
func appendDecimal(to []byte, n uint64, digits int) []byte {
	to = append(to, make([]byte, digits)...)
	for at := len(to) - 1; digits > 0; at, digits, n = at-1, digits-1, n/10 {
		to[at] = byte('0' + n%10)
	}
	return to
}
