package units

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// Unit is the hash of a unit's class and name. It has 40 bits: with 32 bits, two of
// 10,000 streams would share a hash in one of a hundred groups.
type Unit uint64

const unitBits = 40

// class is a kind of unit. Others may follow; a member skips what it does not know.
type class byte

const streams class = 's'

// Stream returns the unit of a stream.
func Stream(name string) Unit {
	sum := sha256.Sum256([]byte("stream\x00" + name))
	return Unit(binary.BigEndian.Uint64(sum[:8]) >> (64 - unitBits))
}

// State is what a member says of one of its units.
type State byte

// The states. They are part of the format: two bits each.
const (
	Can       State = iota // could run it
	Held                   // runs it, or is about to
	Releasing              // ends it: nobody else may begin yet
	Declined               // does not want it now
)

const statesPerByte = 4

// Claim is one unit of an Offer.
type Claim struct {
	Unit  Unit
	State State
}

// Offer is what a member says when it joins.
type Offer struct {
	// Generation is that of the member's last assignment, -1 if it has none. Of two
	// members that claim to hold a unit, the one with the older generation missed
	// that the unit moved.
	Generation int32
	// Flags has flagAgain. Later versions may set others.
	Flags byte
	// Process and Program name the process and its version, for people.
	Process, Program string
	// Capacity and Load are for later versions: how much the member could run of
	// what is not a stream, and how much work its units are.
	Capacity, Load uint64
	// Claims are the member's units, sorted, each once.
	Claims []Claim
}

// flagAgain changes when a member was given a stale assignment: the coordinator has the
// leader plan again only for a member that says something else than before.
const flagAgain = 1

const (
	version = 1
	// MaxOffer bounds the encoded Offer. Kafka stores the offers and assignments of
	// a group in one record, which brokers bound to 1 MB: 32 members of this size
	// fit.
	MaxOffer = 28 << 10
	maxName  = 128
)

var (
	offerMagic      = []byte("xbo")
	assignmentMagic = []byte("xba")
)

// The errors of what another program may have written.
var (
	// ErrForeign: the bytes are not of this program.
	ErrForeign = errors.New("not written by exportbridge")
	errBroken  = errors.New("broken data of a member of the group")
)

// Append appends the encoded offer. Names are cut to 128 bytes.
func (o *Offer) Append(b []byte) []byte {
	b = append(append(b, offerMagic...), version)
	b = binary.BigEndian.AppendUint32(b, uint32(o.Generation))
	b = append(b, o.Flags)
	for _, name := range []string{o.Process, o.Program} {
		name = name[:min(len(name), maxName)]
		b = append(binary.AppendUvarint(b, uint64(len(name))), name...)
	}
	b = binary.AppendUvarint(b, o.Capacity)
	b = binary.AppendUvarint(b, o.Load)
	b = binary.AppendUvarint(b, 1)
	states := make([]byte, bytesOf(len(o.Claims), statesPerByte))
	for i, c := range o.Claims {
		states[i/statesPerByte] |= byte(c.State) << (i % statesPerByte * 2)
	}
	return appendClass(b, append(appendList(nil, o.Claims), states...))
}

// appendClass appends the part of the streams, with its size, for those that skip it.
func appendClass(b, part []byte) []byte {
	return append(binary.AppendUvarint(append(b, byte(streams)), uint64(len(part))), part...)
}

func appendList(b []byte, claims []Claim) []byte {
	b = binary.AppendUvarint(b, uint64(len(claims)))
	var before Unit
	for _, c := range claims {
		b = binary.AppendUvarint(b, uint64(c.Unit-before))
		before = c.Unit
	}
	return b
}

func bytesOf(n, perByte int) int { return (n + perByte - 1) / perByte }

// list returns the checksum of the units, in any state.
func (o *Offer) list() uint32 { return crc32.ChecksumIEEE(appendList(nil, o.Claims)) }

// DecodeOffer decodes an Offer. It skips classes and trailing bytes that this version
// does not know. A missing class is empty.
func DecodeOffer(b []byte) (Offer, error) {
	r := reader{rest: b}
	if err := r.head(offerMagic); err != nil {
		return Offer{}, err
	}
	o := Offer{Generation: int32(r.uint32()), Flags: r.byte()}
	o.Process, o.Program = string(r.name()), string(r.name())
	o.Capacity, o.Load = r.uvarint(), r.uvarint()
	part := reader{rest: r.class()}
	if part.rest != nil {
		o.Claims = part.claims()
	}
	if r.broken || part.broken {
		return Offer{}, errBroken
	}
	return o, nil
}

// reader reads what anybody may have written. After the first mistake it is broken,
// and reads zeros.
type reader struct {
	rest   []byte
	broken bool
}

func (r *reader) head(magic []byte) error {
	if string(r.take(len(magic))) != string(magic) {
		return ErrForeign
	}
	if v := r.byte(); v < version {
		return fmt.Errorf("%w: version %d", errBroken, v)
	}
	return nil
}

func (r *reader) take(n int) []byte {
	if r.broken || n < 0 || n > len(r.rest) {
		r.broken = true
		return nil
	}
	taken := r.rest[:n:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.broken = true
		return 0
	}
	r.take(n)
	return v
}

// count reads a number of things of which each has at least a byte.
func (r *reader) count() int {
	v := r.uvarint()
	if v > uint64(len(r.rest)) || v > math.MaxInt32 {
		r.broken = true
		return 0
	}
	return int(v)
}

func (r *reader) name() []byte {
	n := r.count()
	if n > maxName {
		r.broken = true
		return nil
	}
	return r.take(n)
}

// class returns the part of the streams, nil if there is none.
func (r *reader) class() (part []byte) {
	for range r.count() {
		is := class(r.byte())
		if body := r.take(r.count()); is == streams {
			part = body
		}
	}
	return part
}

func (r *reader) claims() []Claim {
	claims := make([]Claim, r.count())
	var unit uint64
	for i := range claims {
		delta := r.uvarint()
		unit += delta
		if i > 0 && delta == 0 || delta >= 1<<unitBits || unit >= 1<<unitBits {
			r.broken = true
		}
		claims[i].Unit = Unit(unit)
	}
	states := r.take(bytesOf(len(claims), statesPerByte))
	if r.broken {
		return nil
	}
	for i := range claims {
		claims[i].State = State(states[i/statesPerByte] >> (i % statesPerByte * 2) & 3)
	}
	return claims
}
