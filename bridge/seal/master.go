package seal

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Line is a line of a file with keys: an id, and a secret.
type Line struct {
	ID     string
	Secret []byte
}

var lineID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,32}$`)

// least is the number of bytes of a secret.
const least = 32

// ParseLines parses a file with keys. Its errors never quote a line: it may be a key.
func ParseLines(text string) ([]Line, error) {
	var lines []Line
	for n, line := range strings.Split(strings.TrimSpace(text), "\n") {
		id, encoded, _ := strings.Cut(strings.TrimSpace(line), " ")
		secret, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
		switch {
		case !lineID.MatchString(id) || err != nil || encoded == "":
			return nil, fmt.Errorf("line %d is not an id, a space and a key in base64", n+1)
		case len(secret) < least:
			return nil, fmt.Errorf("line %d: the key has %d bytes, fewer than %d", n+1, len(secret), least)
		case slices.ContainsFunc(lines, func(l Line) bool { return l.ID == id }):
			return nil, fmt.Errorf("line %d: another line has the same id", n+1)
		}
		lines = append(lines, Line{id, secret})
	}
	return lines, nil
}

// Master are the master keys of a topic of keys. The first one names subjects, the last one
// wraps new data keys, and all of them unwrap.
type Master struct {
	wraps map[string]*Secret
	last  string
	names []byte
	// family names the first key. label names all keys.
	family, label string
}

// ParseMaster parses the lines of EVENT_ENCRYPT_KEY.
func ParseMaster(text string) (*Master, error) {
	lines, err := ParseLines(text)
	if err != nil {
		return nil, err
	}
	m := &Master{wraps: make(map[string]*Secret), last: lines[len(lines)-1].ID}
	for i, l := range lines {
		if len(l.Secret) != len(Secret{}) {
			return nil, fmt.Errorf("line %d: the key has %d bytes, not %d", i+1, len(l.Secret), len(Secret{}))
		}
		m.wraps[l.ID] = (*Secret)(l.Secret)
	}
	if m.names, err = hkdf.Key(sha256.New, lines[0].Secret, nil, "exportbridge subjects", sha256.Size); err != nil {
		return nil, err
	}
	m.family = encoding.EncodeToString(m.mac("family")[:9])
	m.label = encoding.EncodeToString(m.mac("lines\x00" + text)[:9])
	return m, nil
}

// String names the keys, and shows none.
func (m *Master) String() string { return m.label }

// Last is the id of the last key, which wraps.
func (m *Master) Last() string { return m.last }

// mac returns the HMAC of a text by the key that names subjects.
func (m *Master) mac(text string) []byte {
	h := hmac.New(sha256.New, m.names)
	_, _ = h.Write([]byte(text))
	return h.Sum(nil)
}

// Name is the name of a subject in the topic of keys.
type Name [16]byte

// Name returns the name of a subject. Without the first key nobody can tell whose it is.
func (m *Master) Name(subject string) Name { return Name(m.mac("subject\x00" + subject)[:16]) }
