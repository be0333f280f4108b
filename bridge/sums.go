package bridge

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// IDsChanged ends the name of rules for private data that change the ids of items.
const IDsChanged = "+ids"

// ValuesEncrypted is in the name of rules that encrypt values.
const ValuesEncrypted = "+enc"

// Sums identify an item whose record lacks private data. They are made of the item as it
// was received, so that items that differ in private data alone stay different, and so that
// a change of the rules changes no identity.
//
// The fields Was... and Plain are those of an item without rules. They may be compared with
// what was stored before there were rules, but never stored: whoever knows the rest of an
// item can guess an address by its SHA-256.
type Sums struct {
	// Keyed is the HMAC-SHA256 of the item, Plain its SHA-256.
	Keyed, Plain [sha256.Size]byte
	// Name is the identity.
	Name, WasName Identity
	// WasRecord is the first 16 bytes of the SHA-256 of the record id.
	WasRecord [16]byte
	// Border is set if the item has an id.
	Border, WasBorder BorderItem
	// Replaced is set if a constant is in place of an encrypted value. The item's record may
	// have been published with the value, so that only its id identifies it.
	Replaced bool
}

// NewSums returns the sums of an item with these HMAC and SHA-256. id is the id of the item,
// nil if it has none. secretName is its identity if a rule changes the id, otherwise nil.
func NewSums(keyed, plain [sha256.Size]byte, id []byte, secretName *Identity) Sums {
	s := Sums{Keyed: keyed, Plain: plain}
	if id == nil {
		record := sha256.Sum256(appendSumID(nil, plain))
		s.Name, s.WasName, s.WasRecord = Identity(keyed[:12]), Identity(plain[:12]), [16]byte(record[:16])
		return s
	}
	record := sha256.Sum256(id)
	s.WasName, s.WasRecord = Identity(record[:12]), [16]byte(record[:16])
	s.WasBorder = borderItem(BorderPrefix(id), s.WasName, plain)
	if s.Name = s.WasName; secretName != nil {
		s.Name, id = *secretName, secretName[:]
	}
	s.Border = borderItem(BorderPrefix(id), s.Name, keyed)
	return s
}

// borderItem returns the BorderItem of an item with these prefix, identity and sum.
func borderItem(prefix uint32, id Identity, item [sha256.Size]byte) (b BorderItem) {
	var both [len(id) + len(item)]byte
	sum := sha256.Sum256(append(append(both[:0], id[:]...), item[:]...))
	binary.BigEndian.PutUint32(b[:4], prefix)
	copy(b[4:], sum[:])
	return b
}

// appendSumID appends the record id of an item without an id.
func appendSumID(to []byte, sum [sha256.Size]byte) []byte {
	return recordIDEncoding.AppendEncode(to, sum[:16])
}

// SumsOfRecord returns the sums of an item without an id by the id of its record. Other
// items have no such record id.
func SumsOfRecord(id []byte) *Sums {
	var s Sums
	sum := id[:min(len(id), recordIDEncoding.EncodedLen(16))]
	if n, err := recordIDEncoding.Decode(s.Keyed[:], sum); err != nil || n != 16 {
		return nil
	}
	s.Name = Identity(s.Keyed[:12])
	return &s
}

// Form returns bytes that only equal items have.
func (e *Event) Form() []byte {
	if e.Sums != nil {
		return e.Sums.Keyed[:]
	}
	return e.Raw
}

// Withheld reports whether no record may have the item: a rule could not be applied.
func (e *Event) Withheld() bool { return e.Sums != nil && e.Raw == nil }

// Sum returns the sum of the item's bytes that may be stored, in hexadecimal.
func (e *Event) Sum() string {
	if e.Sums != nil {
		return hex.EncodeToString(e.Sums.Keyed[:])
	}
	sum := sha256.Sum256(e.Raw)
	return hex.EncodeToString(sum[:])
}

// HasSum reports whether a stored sum, in hexadecimal, is the item's: that of Sum, or that
// from before there were rules.
func (e *Event) HasSum(sum string) bool {
	return sum == e.Sum() || e.Sums != nil && sum == hex.EncodeToString(e.Sums.Plain[:])
}

// WasIdentity returns the identity from before there were rules; ok is false if it is that
// of now.
func (e *Event) WasIdentity() (id Identity, ok bool) {
	if e.Sums == nil || e.Sums.Name == e.Sums.WasName {
		return id, false
	}
	return e.Sums.WasName, true
}

// HasRecordID reports whether a record id is the event's: that of AppendRecordID, of which
// the first most bytes are compared, that from before there were rules, or that of a record
// whose item is withheld.
func (e *Event) HasRecordID(id string, most int) bool {
	own := e.AppendRecordID(nil)
	if string(own[:min(len(own), most)]) == id {
		return true
	}
	if e.Sums == nil {
		return false
	}
	sum := sha256.Sum256([]byte(id))
	return [16]byte(sum[:16]) == e.Sums.WasRecord || id == string(appendSumID(nil, e.Sums.Keyed))
}
