package redact

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"exportbridge/bridge"
)

// Config has the rules for private data. The zero value has none.
type Config struct {
	// Stream is the stream's name: each stream has an identity key of its own.
	Stream string

	Drop []string      `env:"EVENT_DROP" stream:"yes" desc:"JSON pointers to members that no record has; * stands for each element of an array" example:"/context/ip,/payload/email"`
	Hash []string      `env:"EVENT_HASH" stream:"yes" desc:"JSON pointers to values that records have as their HMAC-SHA256 in base64url, with the last key of EVENT_HASH_KEY: equal values stay equal" example:"/userId"`
	Mask []string      `env:"EVENT_MASK" stream:"yes" desc:"JSON pointers to values that records have with asterisks; :last4 keeps the last 4 characters, at most half" example:"/payload/card:last4"`
	Keys bridge.Secret `env:"EVENT_HASH_KEY" secret:"yes" stream:"yes" desc:"keys, one a line: an id, a space, and at least 32 random bytes in base64; required with EVENT_DROP, EVENT_HASH or EVENT_MASK; the first one makes identities and must stay, the last one hashes: to rotate, append a line"`
}

const (
	keysVariable = "EVENT_HASH_KEY"
	keysExample  = `EVENT_HASH_KEY_FILE, made by: echo "k1 $(openssl rand -base64 32)" > FILE`
	maskLast4    = "last4"
	// maxRules is the number of bits in which an object notes the members that it has.
	maxRules = 64
	leastKey = 32
)

// Set reports whether any setting is set.
func (c *Config) Set() bool { return c.hasRules() || c.Keys != "" }

func (c *Config) hasRules() bool { return len(c.Drop)+len(c.Hash)+len(c.Mask) > 0 }

// Compile returns the rules, nil if nothing is set. Its error has all problems. With keys
// alone, the rules change no item, but identities are made with the key.
func (c *Config) Compile() (*Rules, error) {
	if !c.Set() {
		return nil, nil //nolint:nilnil // no rules, and no error
	}
	var p bridge.Problems
	r := &Rules{root: new(node)}
	for _, of := range []struct {
		variable, example string
		pointers          []string
		action            action
	}{
		{"EVENT_DROP", "/context/ip", c.Drop, drop},
		{"EVENT_HASH", "/userId", c.Hash, hashed},
		{"EVENT_MASK", "/payload/card:last4", c.Mask, masked},
	} {
		for _, text := range of.pointers {
			err := r.add(text, of.variable, of.action)
			p.Check(err == nil, of.variable, "%q: %v, for example %s", text, err, of.example)
		}
	}
	p.Check(len(r.all) <= maxRules, "EVENT_DROP", "%d rules, with those of EVENT_HASH and EVENT_MASK, "+
		"are more than %d; drop an object instead of its members", len(r.all), maxRules)
	keys, err := parseKeys(c.Keys.Reveal())
	p.Check(err == nil, keysVariable, "%v; for example %s", err, keysExample)
	if err := p.Err(); err != nil {
		return nil, err
	}
	r.hashKey = keys[len(keys)-1].secret
	// By HKDF, not by the HMAC that hashes values: an item could choose the text, and show the key.
	r.identityKey, err = hkdf.Key(sha256.New, keys[0].secret, nil, "exportbridge identity\x00"+c.Stream, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive the key of identities: %w", err)
	}
	r.IdentityKeyID = hex.EncodeToString(mac(r.identityKey, "id")[:8])
	r.Label = c.label(keys[len(keys)-1])
	return r, nil
}

// label names the rules: equal labels mean that equal items have equal bytes in records.
func (c *Config) label(k key) string {
	if !c.hasRules() {
		return ""
	}
	var rules []string
	for _, of := range [][]string{c.Drop, c.Hash, c.Mask} {
		of = slices.Sorted(slices.Values(of))
		rules = append(rules, strings.Join(of, ","))
	}
	text := strings.Join(rules, "\n")
	if len(c.Hash) == 0 {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:8])
	}
	return hex.EncodeToString(mac(k.secret, "exportbridge rules\x00"+text)[:8]) + "/" + k.id
}

// key is one line of Config.Keys.
type key struct {
	id     string
	secret []byte
}

var keyID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,32}$`)

// parseKeys parses Config.Keys. Its errors never quote a line: it may be a key.
func parseKeys(text string) ([]key, error) {
	var keys []key
	for n, line := range strings.Split(strings.TrimSpace(text), "\n") {
		id, encoded, _ := strings.Cut(strings.TrimSpace(line), " ")
		secret, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
		switch {
		case text == "":
			return nil, errors.New("is required with EVENT_DROP, EVENT_HASH and EVENT_MASK")
		case !keyID.MatchString(id) || err != nil || encoded == "":
			return nil, fmt.Errorf("line %d is not an id, a space and a key in base64", n+1)
		case len(secret) < leastKey:
			return nil, fmt.Errorf("line %d: the key has %d bytes, fewer than %d", n+1, len(secret), leastKey)
		case slices.ContainsFunc(keys, func(k key) bool { return k.id == id }):
			return nil, fmt.Errorf("line %d: another line has the same id", n+1)
		}
		keys = append(keys, key{id, secret})
	}
	return keys, nil
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte(text))
	return h.Sum(nil)
}
