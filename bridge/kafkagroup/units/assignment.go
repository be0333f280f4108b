package units

import (
	"encoding/binary"
	"hash/crc32"
)

// Assignment is the leader's answer to an Offer.
type Assignment struct {
	// List is the checksum of the offered streams, in whose order Given is. Offer is the
	// checksum of the whole offer.
	List, Offer uint32
	// Given says for each claim of a stream whether the member holds it from now on.
	Given []bool
	// LaneList and GivenLanes are the List and Given of the lanes. A leader that knows no
	// lanes gives none.
	LaneList   uint32
	GivenLanes []bool
	// Generation is the generation of the group. Planned is when the leader answered, in
	// seconds since 1970 by its clock. Both are for people, and 0 if the leader does not
	// say.
	Generation int32
	Planned    int64
}

const bitsPerByte = 8

// Answer returns the assignment that answers an offer. encoded is the offer, and o the same
// decoded; given is the plan for its claims.
func Answer(encoded []byte, o *Offer, given []bool) Assignment {
	first, others := o.classes()
	a := Assignment{List: sum(first), Offer: crc32.ChecksumIEEE(encoded), Given: given[:len(first)]}
	if len(others) > 0 {
		a.LaneList, a.GivenLanes = sum(others), given[len(first):]
	}
	return a
}

// For returns for each claim of an offer whether the member holds its unit from now on. ok
// is false if the assignment answers an offer of other streams. If it answers an offer of
// other lanes, no lane is given.
func (a *Assignment) For(o *Offer) (given []bool, ok bool) {
	first, others := o.classes()
	if a.List != sum(first) || len(a.Given) != len(first) {
		return nil, false
	}
	given = make([]bool, len(o.Claims))
	copy(given, a.Given)
	if a.LaneList == sum(others) && len(a.GivenLanes) == len(others) {
		copy(given[len(first):], a.GivenLanes)
	}
	return given, true
}

// Append appends the encoded assignment.
func (a *Assignment) Append(b []byte) []byte {
	b = append(append(b, assignmentMagic...), version)
	b = binary.BigEndian.AppendUint32(b, a.List)
	b = binary.BigEndian.AppendUint32(b, a.Offer)
	if len(a.GivenLanes) == 0 {
		b = appendClass(binary.AppendUvarint(b, 1), streams, appendBits(nil, a.Given))
	} else {
		b = appendClass(binary.AppendUvarint(b, 2), streams, appendBits(nil, a.Given))
		b = appendClass(b, lanes, appendBits(binary.BigEndian.AppendUint32(nil, a.LaneList), a.GivenLanes))
	}
	return binary.AppendUvarint(binary.BigEndian.AppendUint32(b, uint32(a.Generation)), uint64(a.Planned))
}

func appendBits(b []byte, given []bool) []byte {
	bits := make([]byte, bytesOf(len(given), bitsPerByte))
	for i, yes := range given {
		if yes {
			bits[i/bitsPerByte] |= 1 << (i % bitsPerByte)
		}
	}
	return append(binary.AppendUvarint(b, uint64(len(given))), bits...)
}

// DecodeAssignment decodes an Assignment. It is as lenient as DecodeOffer.
func DecodeAssignment(b []byte) (Assignment, error) {
	r := reader{rest: b}
	if err := r.head(assignmentMagic); err != nil {
		return Assignment{}, err
	}
	a := Assignment{List: r.uint32(), Offer: r.uint32()}
	first, others := r.classes()
	if first.rest != nil {
		a.Given = first.bits()
	}
	if others.rest != nil {
		a.LaneList, a.GivenLanes = others.uint32(), others.bits()
	}
	if r.broken || first.broken || others.broken {
		return Assignment{}, errBroken
	}
	if len(r.rest) > 0 {
		a.Generation, a.Planned = int32(r.uint32()), int64(r.uvarint()) //nolint:gosec // as they were encoded
	}
	return a, nil
}

func (r *reader) bits() []bool {
	n := r.uvarint()
	if n > uint64(len(r.rest))*bitsPerByte {
		r.broken = true
		return nil
	}
	bits, given := r.take(bytesOf(int(n), bitsPerByte)), make([]bool, n)
	for i := range given {
		given[i] = bits[i/bitsPerByte]&(1<<(i%bitsPerByte)) != 0
	}
	return given
}
