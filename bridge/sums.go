package bridge

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"unicode/utf8"
)

// IDsChanged ends the name of rules for private data that change the ids of items.
const IDsChanged = "+ids"

// ValuesEncrypted is in the name of rules that encrypt values.
const ValuesEncrypted = "+enc"

// subjectMark comes before the digest of the subject, of eight digits, in the name of rules that
// encrypt values. Names of older versions lack the mark and the digest.
const subjectMark = ValuesEncrypted + "~"

// EncryptedFor returns ValuesEncrypted with the digest of the pointer to the subject, which
// chooses the keys of values.
func EncryptedFor(subject string) string {
	sum := sha256.Sum256([]byte(subject))
	return subjectMark + hex.EncodeToString(sum[:4])
}

// cutSubject cuts the digest of the subject out of the name of rules.
func cutSubject(rules string) (others, subject string) {
	before, after, ok := strings.Cut(rules, subjectMark)
	if !ok {
		return rules, ""
	}
	n := min(len(after), 8)
	return before + ValuesEncrypted + after[n:], after[:n]
}

// SameRules reports whether rules by which a record was written are those of now. A name of an
// older version may have any subject.
func SameRules(was, now string) bool {
	others, _ := cutSubject(now)
	return was == now || was == others
}

// Sums identify an item whose record lacks private data. They are sums of the item as
// received. So items that differ only in private data stay different, and a change of the
// rules changes no identity. Each sum is computed at its first use, because most items with
// an id need none. They point into the page; the owner of the page may use them.
//
// The results of WasIdentity, WasRecord, WasBorder and Plain are those of an item without
// rules. They may be compared with values stored before there were rules, but never stored:
// with the rest of an item and its SHA-256, anybody can guess an address.
type Sums struct {
	// Replaced is set if a constant replaces an encrypted value. The item's record may have
	// been published with the value, so only its id identifies it.
	Replaced bool

	mac          func([]byte) [sha256.Size]byte
	item, id     []byte
	secret       bool     // a rule changes the id
	name         Identity // identity of a secret id
	keyed, plain [sha256.Size]byte

	hasName, hasKeyed, hasPlain bool
}

// NewSums returns the sums of an item. mac is HMAC-SHA256, and may be called concurrently. id
// is the id of the item, nil if it has none; secret is set if a rule changes the id.
func NewSums(mac func([]byte) [sha256.Size]byte, item, id []byte, secret bool) Sums {
	return Sums{mac: mac, item: item, id: id, secret: secret && id != nil}
}

// Keyed returns the HMAC-SHA256 of the item.
func (s *Sums) Keyed() [sha256.Size]byte {
	if !s.hasKeyed {
		s.keyed, s.hasKeyed = s.mac(s.item), true
	}
	return s.keyed
}

// Plain returns the SHA-256 of the item.
func (s *Sums) Plain() [sha256.Size]byte {
	if !s.hasPlain {
		s.plain, s.hasPlain = sha256.Sum256(s.item), true
	}
	return s.plain
}

// Identity returns the identity.
func (s *Sums) Identity() Identity {
	switch {
	case s.id == nil:
		keyed := s.Keyed()
		return Identity(keyed[:12])
	case !s.secret:
		return s.WasIdentity()
	case !s.hasName:
		keyed := s.mac(s.id)
		s.name, s.hasName = Identity(keyed[:12]), true
	}
	return s.name
}

// WasIdentity returns the identity of the item without rules.
func (s *Sums) WasIdentity() Identity {
	sum := sha256.Sum256(s.id)
	if s.id == nil {
		sum = s.Plain()
	}
	return Identity(sum[:12])
}

// WasRecord returns the first 16 bytes of the SHA-256 of the record id.
func (s *Sums) WasRecord() [16]byte {
	id := s.id
	if id == nil {
		id = appendSumID(nil, s.Plain())
	}
	sum := sha256.Sum256(id)
	return [16]byte(sum[:16])
}

// Was returns the sums of an item without an id from before there were rules.
func (s *Sums) Was() *Sums {
	return &Sums{keyed: s.Plain(), plain: s.Plain(), hasKeyed: true, hasPlain: true}
}

// Detach returns a copy that does not point into the page.
func (s *Sums) Detach() *Sums {
	s.Keyed()
	s.Plain()
	own := *s
	own.item, own.id = nil, bytes.Clone(s.id)
	return &own
}

// borderID returns the bytes of which the prefix of a BorderItem is made.
func (s *Sums) borderID() []byte {
	if s.secret {
		s.Identity()
		return s.name[:]
	}
	return s.id
}

// in reports whether a border has the item, as it is now or as it was before there were
// rules.
func (s *Sums) in(b BorderItems, may func(prefix uint32) bool) bool {
	return may(BorderPrefix(s.borderID())) && slices.Contains(b, s.Border()) ||
		may(BorderPrefix(s.id)) && slices.Contains(b, s.WasBorder())
}

// Border returns the BorderItem of an item with an id.
func (s *Sums) Border() BorderItem {
	return borderItem(BorderPrefix(s.borderID()), s.Identity(), s.Keyed())
}

// WasBorder returns the BorderItem without rules of an item with an id.
func (s *Sums) WasBorder() BorderItem {
	return borderItem(BorderPrefix(s.id), s.WasIdentity(), s.Plain())
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

// SumsOfRecord returns the sums of an item without an id from the id of its record. It
// returns nil for a record id of another form.
func SumsOfRecord(id []byte) *Sums {
	s := Sums{hasKeyed: true, hasPlain: true}
	sum := id[:min(len(id), recordIDEncoding.EncodedLen(16))]
	if n, err := recordIDEncoding.Decode(s.keyed[:], sum); err != nil || n != 16 {
		return nil
	}
	return &s
}

// Form returns bytes that are equal only for equal items.
func (e *Event) Form() []byte {
	if e.Sums != nil {
		e.Sums.Keyed()
		return e.Sums.keyed[:]
	}
	return e.Raw
}

// Withheld reports whether no record may have the item, because a rule could not be
// applied.
func (e *Event) Withheld() bool { return e.Sums != nil && e.Raw == nil }

// sum returns the sum of the item's bytes that may be stored.
func (e *Event) sum() [sha256.Size]byte {
	if e.Sums != nil {
		return e.Sums.Keyed()
	}
	return sha256.Sum256(e.Raw)
}

// Sum returns the sum of the item's bytes that may be stored, in hexadecimal.
func (e *Event) Sum() string {
	sum := e.sum()
	return hex.EncodeToString(sum[:])
}

// HasSum reports whether a stored sum, in hexadecimal, is that of the item: the result of
// Sum, or the sum from before there were rules.
func (e *Event) HasSum(sum string) bool {
	if sum == e.Sum() {
		return true
	}
	if e.Sums == nil {
		return false
	}
	plain := e.Sums.Plain()
	return sum == hex.EncodeToString(plain[:])
}

// WasIdentity returns the identity from before there were rules. ok is false if the
// identity has not changed.
func (e *Event) WasIdentity() (id Identity, ok bool) {
	if e.Sums == nil || e.Sums.id != nil && !e.Sums.secret {
		return id, false
	}
	return e.Sums.WasIdentity(), true
}

// mostKeptID is the number of bytes of an id that a dead letter without its item keeps.
const mostKeptID = 256

// CutID returns what a dead letter without its item, and the mark of its retry, keep of a record
// id: whole characters of at most 256 bytes. It does not change its own result.
func CutID(id string) string {
	if len(id) <= mostKeptID {
		return id
	}
	n := mostKeptID
	for n > 0 && !utf8.RuneStart(id[n]) {
		n--
	}
	// Older versions wrote replacement characters for a part of the last character.
	return strings.TrimRight(id[:n], "\uFFFD")
}

// MayBeCut reports whether a result of CutID may be the beginning of a longer id.
func MayBeCut(id string) bool { return len(id) > mostKeptID-utf8.UTFMax }

// HasRecordID reports whether a record id, or the CutID of one, is that of the event. It also
// accepts the id from before there were rules, and that of a record whose item is withheld.
func (e *Event) HasRecordID(id string) bool {
	if CutID(string(e.AppendRecordID(nil))) == CutID(id) {
		return true
	}
	if e.Sums == nil {
		return false
	}
	sum := sha256.Sum256([]byte(id))
	return [16]byte(sum[:16]) == e.Sums.WasRecord() || id == string(appendSumID(nil, e.Sums.Keyed()))
}
