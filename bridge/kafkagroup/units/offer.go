package units

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
)

// Unit is a stream or a lane of a job: the hash of its class and name, with a bit above the
// hash that is set for a lane. The hash has 40 bits. With 32 bits, two of 10,000 streams
// would share a hash in one of a hundred groups.
type Unit uint64

const (
	unitBits = 40
	laneBit  = Unit(1) << unitBits
)

// class is a kind of unit in the format. Later versions may add classes; a member skips
// those that it does not know.
type class byte

const (
	streams class = 's'
	lanes   class = 'l' // unknown to the first version
)

// Stream returns the unit of a stream.
func Stream(name string) Unit { return hash("stream\x00" + name) }

// Lane returns the unit of a lane of a job.
func Lane(job string, n int) Unit { return laneBit | hash(fmt.Sprintf("lane\x00%s\x00%d", job, n)) }

// IsLane reports whether the unit is a lane.
func (u Unit) IsLane() bool { return u&laneBit != 0 }

func hash(text string) Unit {
	sum := sha256.Sum256([]byte(text))
	return Unit(binary.BigEndian.Uint64(sum[:8]) >> (64 - unitBits))
}

// State is a member's state of one of its units.
type State byte

// The states. They are part of the format: two bits each.
const (
	Can       State = iota // can run it
	Held                   // runs it, or will at once
	Releasing              // ends it: no other member may begin yet
	Declined               // does not want it now
)

const statesPerByte = 4

// Claim is one unit of an Offer.
type Claim struct {
	Unit  Unit
	State State
}

// Offer is the metadata with which a member joins.
type Offer struct {
	// Generation is the generation of the member's last assignment, -1 if it had none. If
	// two members claim to hold a unit, the one with the older generation has missed that
	// the unit moved.
	Generation int32
	// Flags has flagAgain. Later versions may set others.
	Flags byte
	// Process and Program name the process and its version, for people.
	Process, Program string
	// Capacity is the number of lanes that the member can run at a time. Load is for later
	// versions: the amount of work of its units.
	Capacity, Load uint64
	// Claims are the member's units, sorted and without duplicates: first streams, then
	// lanes.
	Claims []Claim
}

// flagAgain changes after a stale assignment: the coordinator makes the leader plan again
// only if a member joins with other metadata than before.
const flagAgain = 1

const (
	version = 1
	maxName = 128
)

var (
	offerMagic      = []byte("xbo")
	assignmentMagic = []byte("xba")
)

// The errors of data that another program may have written.
var (
	// ErrForeign means that another program wrote the data.
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
	first, others := o.classes()
	if len(others) == 0 {
		return appendClass(binary.AppendUvarint(b, 1), streams, appendClaims(first))
	}
	b = appendClass(binary.AppendUvarint(b, 2), streams, appendClaims(first))
	return appendClass(b, lanes, appendClaims(others))
}

// classes returns the claims of streams and those of lanes.
func (o *Offer) classes() (first, others []Claim) {
	at, _ := slices.BinarySearchFunc(o.Claims, laneBit, func(c Claim, u Unit) int { return cmp.Compare(c.Unit, u) })
	return o.Claims[:at], o.Claims[at:]
}

// appendClass appends the part of a class with its size, so that other versions can skip
// it.
func appendClass(b []byte, is class, part []byte) []byte {
	return append(binary.AppendUvarint(append(b, byte(is)), uint64(len(part))), part...)
}

func appendClaims(claims []Claim) []byte {
	states := make([]byte, bytesOf(len(claims), statesPerByte))
	for i, c := range claims {
		states[i/statesPerByte] |= byte(c.State) << (i % statesPerByte * 2)
	}
	return append(appendList(claims), states...)
}

func appendList(claims []Claim) []byte {
	b := binary.AppendUvarint(nil, uint64(len(claims)))
	var before Unit
	for _, c := range claims {
		unit := c.Unit &^ laneBit
		b = binary.AppendUvarint(b, uint64(unit-before))
		before = unit
	}
	return b
}

func bytesOf(n, perByte int) int { return (n + perByte - 1) / perByte }

// sum returns the checksum of the units of a class, in any state.
func sum(claims []Claim) uint32 { return crc32.ChecksumIEEE(appendList(claims)) }

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
	first, others := r.classes()
	if first.rest != nil {
		o.Claims = first.claims(0)
	}
	if others.rest != nil {
		o.Claims = append(o.Claims, others.claims(laneBit)...)
	}
	if r.broken || first.broken || others.broken {
		return Offer{}, errBroken
	}
	return o, nil
}

// reader reads data that any program may have written. After the first mistake it returns
// zeros.
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

// count reads the number of items that follow, each of at least one byte.
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

// classes returns the parts of the streams and of the lanes. A missing part has a nil rest.
func (r *reader) classes() (first, others reader) {
	for range r.count() {
		is := class(r.byte())
		body := reader{rest: r.take(r.count())}
		switch is {
		case streams:
			first = body
		case lanes:
			others = body
		}
	}
	return first, others
}

// claims reads the claims of a class. above has the bits above the hash of its units.
func (r *reader) claims(above Unit) []Claim {
	claims := make([]Claim, r.count())
	var unit uint64
	for i := range claims {
		delta := r.uvarint()
		unit += delta
		if i > 0 && delta == 0 || delta >= 1<<unitBits || unit >= 1<<unitBits {
			r.broken = true
		}
		claims[i].Unit = above | Unit(unit)
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
