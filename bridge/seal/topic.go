package seal

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"exportbridge/bridge"
)

// entry is the value of a record of a topic of keys. Its form is frozen. The key of the
// record is the name of the subject, a slash, and the id of the data key, or forgotten.
type entry struct {
	Format int `json:"v"`
	// Family names the first line of EVENT_ENCRYPT_KEY, by which subjects have their names.
	Family string `json:"family"`
	// Master is the id of the master key, Key the nonce, ciphertext and tag of the data key.
	// They authenticate the key of the record.
	Master string `json:"master,omitempty"`
	Key    string `json:"key,omitempty"`
	// Forgotten is when the subject was forgotten.
	Forgotten *time.Time `json:"forgotten,omitempty"`
}

const format = 1

// Roll is the key of a record without meaning. Kafka closes a segment only for a new record,
// and compacts only closed ones.
const Roll = "roll"

// RecordKey returns the key of the record of a data key.
func RecordKey(n Name, id KeyID) []byte {
	return []byte(encoding.EncodeToString(n[:]) + "/" + encoding.EncodeToString(id[:]))
}

// Make returns the record of a new data key.
func (m *Master) Make(n Name) (key, value []byte) {
	var id KeyID
	var secret Secret
	_, _ = rand.Read(id[:]) // it never fails
	_, _ = rand.Read(secret[:])
	key = RecordKey(n, id)
	return key, m.Wrap(key, &secret)
}

// Wrap returns the value of the record of a data key, wrapped by the last master key.
func (m *Master) Wrap(key []byte, secret *Secret) (value []byte) {
	aead := gcm(m.wraps[m.last])
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce) // it never fails
	return encode(entry{Format: format, Family: m.family, Master: m.last,
		Key: encoding.EncodeToString(aead.Seal(nonce, nonce, secret[:], key))})
}

// Forget returns the record that marks a subject as forgotten.
func (m *Master) Forget(n Name, at time.Time) (key, value []byte) {
	at = at.UTC().Truncate(time.Second)
	return []byte(encoding.EncodeToString(n[:]) + "/" + Forgotten.marker),
		encode(entry{Format: format, Family: m.family, Forgotten: &at})
}

func encode(e entry) []byte {
	value, err := json.Marshal(e)
	if err != nil {
		panic(err) // texts and a time always encode
	}
	return value
}

// Record is what a record of a topic of keys says.
type Record struct {
	Name Name
	// ID names the data key, Master is the id of the master key that wraps it. With a nil
	// Secret its record was deleted. Forgotten is the time of a mark, nil if it is none.
	ID        KeyID
	Secret    *Secret
	Master    string
	Forgotten *time.Time
}

// Read reads a record. It returns nil for one without meaning. Its error is a bridge.Fault.
func (m *Master) Read(key, value []byte) (*Record, error) {
	if string(key) == Roll {
		return nil, nil
	}
	var r Record
	name, id, _ := strings.Cut(string(key), "/")
	err := decodeInto(r.Name[:], name)
	if err == nil && id != Forgotten.marker {
		err = decodeInto(r.ID[:], id)
	}
	var e entry
	if err == nil && len(value) > 0 {
		err = json.Unmarshal(value, &e)
	}
	switch {
	case err != nil:
		return nil, fault("check who writes to the topic", "%.100q is no record of a key: %w", key, err)
	case len(value) == 0:
		return &r, nil
	case e.Format != format:
		return nil, fault("upgrade exportbridge", "the record %s has version %d", key, e.Format)
	case e.Family != m.family:
		return nil, fault("restore the first line of EVENT_ENCRYPT_KEY, which names the subjects",
			"the record %s was written with another first master key", key)
	case e.Forgotten != nil:
		r.Forgotten = e.Forgotten
		return &r, nil
	}
	if r.Secret, err = m.unwrap(&e, key); err != nil {
		hint := "add the line of master key " + e.Master + " to EVENT_ENCRYPT_KEY and restart: the keys are read at the start"
		if m.wraps[e.Master] != nil {
			hint = "restore the line of master key " + e.Master + " in EVENT_ENCRYPT_KEY: a new key needs an id of its own"
		}
		return nil, fault(hint, "the data key %s cannot be unwrapped with master key %q: %w", key, e.Master, err)
	}
	r.Master = e.Master
	return &r, nil
}

func (m *Master) unwrap(e *entry, key []byte) (*Secret, error) {
	wrap := m.wraps[e.Master]
	if wrap == nil {
		return nil, errors.New("EVENT_ENCRYPT_KEY lacks it")
	}
	text, err := encoding.DecodeString(e.Key)
	if err != nil {
		return nil, err
	}
	secret, err := open(gcm(wrap), text, key)
	if err != nil || len(secret) != len(Secret{}) {
		return nil, errors.New("another master key with this id has wrapped it")
	}
	return (*Secret)(secret), nil
}

func decodeInto(to []byte, text string) error {
	b, err := encoding.DecodeString(text)
	if err == nil && copy(to, b) != len(to) || len(b) > len(to) {
		err = fmt.Errorf("%q does not have %d bytes", text, len(to))
	}
	return err
}

func fault(hint, format string, args ...any) error {
	return bridge.Blockf("event_keys", bridge.ReasonConfig, hint, format, args...)
}
