// Package door identifies the callers of the HTTP server, and decides what each may do.
package door

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Role is what the owner of a token may do.
type Role string

// The roles. Act includes Read.
const (
	Read Role = "read"
	Act  Role = "act"
)

// MinToken is the minimum length of a token in bytes. A shorter one can be guessed.
const MinToken = 16

// Method is how a caller was recognized.
type Method string

// The methods.
const (
	ByToken Method = "token"
	ByProxy Method = "proxy" // a trusted proxy named the user
	ByLocal Method = "local" // a client on this machine, while no token is set
)

// Identity is the sender of a request. Name is empty for a client on this machine that
// needs no token.
type Identity struct {
	Name string
	Role Role
	By   Method
}

// Tokens are identities by the SHA-256 of their tokens. Tokens are random, so that neither
// the hash nor the time of a lookup helps to guess one. Tokens in use must not be changed.
type Tokens map[[sha256.Size]byte]Identity

// namePattern excludes names that break lines of logs, or look like an address.
var namePattern = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9._-]{0,63}$`)

// Add adds a token of MinToken bytes or more.
func (t Tokens) Add(token string, who Identity) { t[sha256.Sum256([]byte(token))] = who }

// Find returns the owner of a token.
func (t Tokens) Find(token string) (Identity, bool) {
	who, ok := t[sha256.Sum256([]byte(token))]
	return who, ok && len(token) >= MinToken
}

// Parse parses lines of the form NAME ROLE HASH, with the hash in hexadecimal digits. It
// ignores empty lines and those that begin with #. A name may have several tokens, so that
// an old token is valid until the new one is in use.
func Parse(text string) (Tokens, error) {
	tokens := make(Tokens)
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 3 {
			return nil, fmt.Errorf("line %d has %d fields, want NAME ROLE HASH", n, len(fields))
		}
		who := Identity{Name: fields[0], Role: Role(fields[1]), By: ByToken}
		if err := who.check(); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		hash, err := hex.DecodeString(fields[2])
		if err != nil || len(hash) != sha256.Size {
			return nil, fmt.Errorf("line %d: the hash is not a SHA-256 in %d hexadecimal digits", n, 2*sha256.Size)
		}
		if other, ok := tokens[[sha256.Size]byte(hash)]; ok {
			return nil, fmt.Errorf("line %d: the hash is that of %s too", n, other.Name)
		}
		tokens[[sha256.Size]byte(hash)] = who
	}
	return tokens, lines.Err()
}

// check names no value in its error, because the value may be a token in the wrong place.
func (i Identity) check() error {
	switch {
	case !namePattern.MatchString(i.Name):
		return errors.New("the name is not a letter, then up to 63 letters, digits, and . _ -")
	case i.Role != Read && i.Role != Act:
		return fmt.Errorf("the role is not %s or %s", Read, Act)
	}
	return nil
}

// New returns a random token, and its line for Parse.
func New(who Identity) (token, line string, err error) {
	if err := who.check(); err != nil {
		return "", "", err
	}
	token = rand.Text() + rand.Text()
	return token, fmt.Sprintf("%s %s %x", who.Name, who.Role, sha256.Sum256([]byte(token))), nil
}
