package exportsim

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// idLen is the length of a UUID in text.
const idLen = 36

// kind makes ids of different things differ.
type kind uint64

const (
	kindEvent kind = iota + 1
	kindSession
	kindUser
	kindTab
	kindOrder
)

const golden = 0x9e3779b97f4a7c15

// mix is the finalizer of SplitMix64, a fast bijection that scatters bits.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// EventID returns the id of the event with the given index, counted from 0. It looks like a
// random UUID. It is the eventId of 0.8 and the id of 0.7.
func EventID(seed uint64, i int) string {
	return string(appendID(nil, kindEvent, seed, i))
}

// Index returns the index of the event with an id, for any seed. ok is false if the id is
// not that of an event; it is wrongly true in one of 16,000 cases.
func Index(id string) (i int, ok bool) {
	if len(id) != idLen || id[8] != '-' || id[13] != '-' || id[18] != '-' || id[23] != '-' {
		return 0, false
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(raw) != 16 {
		return 0, false
	}
	hi, lo := binary.BigEndian.Uint64(raw), binary.BigEndian.Uint64(raw[8:])
	i = int((lo ^ mix(hi)) & idIndexMask)
	return i, lo>>48 == 1<<15|idCheck(kindEvent, hi, i)
}

// appendID appends the id of item i of a kind, in 36 bytes. The first half is a hash, which
// also hides the index in the second half. There, 14 bits check the kind.
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

// appendHex appends the lowest digits of n in base 16.
func appendHex(to []byte, n uint64, digits int) []byte {
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		to = append(to, "0123456789abcdef"[n>>shift&15])
	}
	return to
}
