package units

import (
	"encoding/binary"
	"hash/crc32"
)

// Assignment is the leader's answer to an Offer.
type Assignment struct {
	// List is the checksum of the units that were offered: Given is over that list.
	// Offer is that of the whole offer.
	List, Offer uint32
	// Given says for each claim whether the member is to hold its unit.
	Given []bool
	// Generation is the group's, and Planned when the leader answered, in seconds since
	// 1970 by its clock, for people. Both are 0 if the leader does not say.
	Generation int32
	Planned    int64
}

const bitsPerByte = 8

// Answer returns the assignment of an encoded offer, decoded as o.
func Answer(encoded []byte, o *Offer, given []bool) Assignment {
	return Assignment{List: o.list(), Offer: crc32.ChecksumIEEE(encoded), Given: given}
}

// Answers reports whether the assignment answers an offer of the same units.
func (a *Assignment) Answers(o *Offer) bool {
	return a.List == o.list() && len(a.Given) == len(o.Claims)
}

// Append appends the encoded assignment.
func (a *Assignment) Append(b []byte) []byte {
	b = append(append(b, assignmentMagic...), version)
	b = binary.BigEndian.AppendUint32(b, a.List)
	b = binary.BigEndian.AppendUint32(b, a.Offer)
	bits := make([]byte, bytesOf(len(a.Given), bitsPerByte))
	for i, given := range a.Given {
		if given {
			bits[i/bitsPerByte] |= 1 << (i % bitsPerByte)
		}
	}
	b = binary.AppendUvarint(b, 1)
	b = appendClass(b, append(binary.AppendUvarint(nil, uint64(len(a.Given))), bits...))
	return binary.AppendUvarint(binary.BigEndian.AppendUint32(b, uint32(a.Generation)), uint64(a.Planned))
}

// DecodeAssignment decodes an Assignment, as DecodeOffer an Offer.
func DecodeAssignment(b []byte) (Assignment, error) {
	r := reader{rest: b}
	if err := r.head(assignmentMagic); err != nil {
		return Assignment{}, err
	}
	a := Assignment{List: r.uint32(), Offer: r.uint32()}
	part := reader{rest: r.class()}
	if part.rest != nil {
		a.Given = part.bits()
	}
	if r.broken || part.broken {
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
