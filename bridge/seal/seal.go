// Package seal encrypts values of items with a data key per subject, and says how a topic
// keeps these keys, so that the values of a subject can be made unreadable everywhere by
// deleting its keys.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"strings"
)

// KeyID names a data key. It is random.
type KeyID [9]byte

// Secret is the secret of a data key.
type Secret [32]byte

// Key is a data key, ready for use. One goroutine at a time may use it.
type Key struct {
	ID     KeyID
	aead   cipher.AEAD
	nonces hash.Hash
	marker string // if it is no key
}

// Forgotten and Withheld stand for a key. In place of a value there is a constant: the
// subject is forgotten, or nobody publishes the value.
var (
	Forgotten = &Key{marker: "forgotten"}
	Withheld  = &Key{marker: "withheld"}
)

// Keys returns data keys. It is called by one goroutine at a time.
type Keys interface {
	// Of returns the key of each subject, or Forgotten, in their order. A key that it makes
	// is stored before it returns: whatever crashes, no value exists without its key. At any
	// time, all callers in all processes get the same key for a subject, until it is
	// forgotten. Errors are bridge.Faults. It ends within half a minute.
	Of(subjects []string) ([]*Key, error)
	// Close is the last call.
	Close()
}

// None returns the Keys of a program that publishes nothing: each value is withheld.
func None() Keys { return none{} }

type none struct{}

func (none) Of(subjects []string) ([]*Key, error) {
	all := make([]*Key, len(subjects))
	for i := range all {
		all[i] = Withheld
	}
	return all, nil
}

func (none) Close() {}

// Sealed reports whether values are encrypted, rather than replaced by a constant.
func (k *Key) Sealed() bool { return k.marker == "" }

// version begins each encrypted value, and is part of what it authenticates.
const version = "eb1"

var encoding = base64.RawURLEncoding.Strict()

// Nonces derives the secret of the nonces from that of a data key.
func (s *Secret) Nonces() *Secret {
	nonces, err := hkdf.Key(sha256.New, s[:], nil, "exportbridge nonce", sha256.Size)
	if err != nil {
		panic(err) // the length is valid
	}
	return (*Secret)(nonces)
}

// NewKey returns the key with a secret and its Nonces, whose derivation costs more than all else.
func NewKey(id KeyID, secret, nonces *Secret) *Key {
	return &Key{ID: id, aead: gcm(secret), nonces: hmac.New(sha256.New, nonces[:])}
}

func gcm(secret *Secret) cipher.AEAD {
	block, err := aes.NewCipher(secret[:])
	if err != nil {
		panic(err) // the length is valid
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // of a block size of 16 bytes
	}
	return aead
}

// Append appends the JSON string that takes the place of a value, whose JSON text is plain.
// pointer is that of the rule. Equal values of a subject become equal strings, so that an
// item that is fetched again has the same bytes.
func (k *Key) Append(dst []byte, pointer string, plain []byte) []byte {
	dst = append(dst, '"')
	dst = append(dst, version+":"...)
	if !k.Sealed() {
		return append(append(dst, k.marker...), '"')
	}
	dst = append(encoding.AppendEncode(dst, k.ID[:]), ':')
	aad := authenticated(k.ID, pointer)
	// The nonce is a function of all that is encrypted and authenticated. The length tells
	// the two apart: with one nonce for two texts, both could be read.
	k.nonces.Reset()
	_, _ = k.nonces.Write(binary.BigEndian.AppendUint64(nil, uint64(len(aad))))
	_, _ = k.nonces.Write(aad)
	_, _ = k.nonces.Write(plain)
	nonce := k.nonces.Sum(nil)[:k.aead.NonceSize()]
	dst = encoding.AppendEncode(dst, k.aead.Seal(nonce, nonce, plain, aad))
	return append(dst, '"')
}

func authenticated(id KeyID, pointer string) []byte {
	return []byte(version + "\x00" + encoding.EncodeToString(id[:]) + "\x00" + pointer)
}

// Errors of Parse and Open.
var (
	// ErrForgotten: the subject was forgotten before the event was published.
	ErrForgotten = errors.New("the subject is forgotten")
	// ErrNotSealed: the value is not encrypted.
	ErrNotSealed = errors.New("the value is not encrypted")
)

// Value is an encrypted value.
type Value struct {
	// Key names its data key.
	Key  KeyID
	text []byte // nonce, ciphertext and tag
}

// Parse parses the text of the string in place of a value.
func Parse(text string) (v Value, err error) {
	rest, ok := strings.CutPrefix(text, version+":")
	if ok && rest == Forgotten.marker {
		return v, ErrForgotten
	}
	id, sealed, _ := strings.Cut(rest, ":")
	if !ok || decodeInto(v.Key[:], id) != nil {
		return v, ErrNotSealed
	}
	if v.text, err = encoding.DecodeString(sealed); err != nil {
		return v, ErrNotSealed
	}
	return v, nil
}

// Open returns the JSON text of the value. pointer is that of the rule: the line of
// EVENT_ENCRYPT.
func (v *Value) Open(pointer string, secret *Secret) ([]byte, error) {
	return open(gcm(secret), v.text, authenticated(v.Key, pointer))
}

func open(aead cipher.AEAD, text, aad []byte) ([]byte, error) {
	if len(text) < aead.NonceSize() {
		return nil, errors.New("the ciphertext is too short")
	}
	plain, err := aead.Open(nil, text[:aead.NonceSize()], text[aead.NonceSize():], aad)
	if err != nil {
		return nil, fmt.Errorf("decrypt: %w", err)
	}
	return plain, nil
}
