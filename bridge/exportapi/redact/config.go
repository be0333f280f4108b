package redact

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/jsonpointer"
	"exportbridge/bridge/seal"
)

// Config has the rules for private data. The zero value has none.
type Config struct {
	// Stream is the stream's name: each stream has an identity key of its own.
	Stream string

	Drop    []string      `env:"EVENT_DROP" stream:"yes" desc:"JSON pointers to members that no record has; * stands for each element of an array" example:"/context/ip,/payload/email"`
	Hash    []string      `env:"EVENT_HASH" stream:"yes" desc:"JSON pointers to values that records have as their HMAC-SHA256 in base64url, with the last key of EVENT_HASH_KEY: equal values stay equal" example:"/userId"`
	Mask    []string      `env:"EVENT_MASK" stream:"yes" desc:"JSON pointers to values that records have with asterisks; :last4 keeps the last 4 characters, at most half" example:"/payload/card:last4"`
	Encrypt []string      `env:"EVENT_ENCRYPT" stream:"yes" desc:"JSON pointers to values that records have encrypted, with a data key per subject, which exportbridge forget deletes" example:"/payload/email,/context"`
	Subject string        `env:"EVENT_SUBJECT" stream:"yes" desc:"JSON pointer to the subject of an item as the API sends it: the person whose data it has, without an index of an array; empty for KAFKA_KEY" example:"/userId"`
	Master  bridge.Secret `env:"EVENT_ENCRYPT_KEY" secret:"yes" stream:"yes" desc:"master keys, one a line: an id, a space, and 32 random bytes in base64; required with EVENT_ENCRYPT; the first one names subjects and must stay, the last one wraps new data keys: to rotate, append a line"`
	Keys    bridge.Secret `env:"EVENT_HASH_KEY" secret:"yes" stream:"yes" desc:"keys, one a line: an id, a space, and at least 32 random bytes in base64; required with EVENT_DROP, EVENT_HASH, EVENT_MASK or EVENT_ENCRYPT; the first one makes identities and must stay, the last one hashes: to rotate, append a line"`
}

const (
	keysVariable = "EVENT_HASH_KEY"
	keysExample  = `EVENT_HASH_KEY_FILE, made by: echo "k1 $(openssl rand -base64 32)" > FILE`
	maskLast4    = "last4"
	// maxRules is the number of bits in which an object notes the members that it has.
	maxRules = 64
)

// Set reports whether any setting is set.
func (c *Config) Set() bool { return c.hasRules() || c.Keys != "" }

func (c *Config) hasRules() bool { return len(c.Drop)+len(c.Hash)+len(c.Mask)+len(c.Encrypt) > 0 }

// Pointers returns the JSON pointers of the rules.
func (c *Config) Pointers() []string {
	all := slices.Concat(c.Drop, c.Hash, c.Encrypt)
	for _, text := range c.Mask { // of others, :last4 is a part of the name
		all = append(all, strings.TrimSuffix(text, ":"+maskLast4))
	}
	return all
}

// Encrypts reports whether values are encrypted.
func (c *Config) Encrypts() bool { return len(c.Encrypt) > 0 }

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
		{"EVENT_ENCRYPT", "/payload/email", c.Encrypt, encrypted},
	} {
		for _, text := range of.pointers {
			err := r.add(text, of.variable, of.action)
			p.Check(err == nil, of.variable, "%q: %v, for example %s", text, err, of.example)
		}
	}
	p.Check(len(r.all) <= maxRules, "EVENT_DROP", "%d rules, with those of EVENT_HASH, EVENT_MASK and EVENT_ENCRYPT, "+
		"are more than %d; drop an object instead of its members", len(r.all), maxRules)
	p.Check(c.Keys != "", keysVariable, "is required with EVENT_DROP, EVENT_HASH, EVENT_MASK and EVENT_ENCRYPT; "+
		"for example %s", keysExample)
	keys, err := seal.ParseLines(c.Keys.Reveal())
	p.Check(err == nil || c.Keys == "", keysVariable, "%v; for example %s", err, keysExample)
	if c.Encrypts() {
		r.checkEncryption(c, &p)
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	r.hashKey = keys[len(keys)-1].Secret
	// By HKDF, not by the HMAC that hashes values: an item could choose the text, and show the key.
	r.identityKey, err = hkdf.Key(sha256.New, keys[0].Secret, nil, "exportbridge identity\x00"+c.Stream, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive the key of identities: %w", err)
	}
	r.IdentityKeyID = hex.EncodeToString(mac(r.identityKey, "id")[:8])
	r.Label = c.label(keys[len(keys)-1])
	return r, nil
}

// label names the rules. Equal labels mean that equal items have equal bytes in records. If
// the label says that values are encrypted, this holds only for subjects that are not
// forgotten.
func (c *Config) label(k seal.Line) string {
	if !c.hasRules() {
		return ""
	}
	lists, ending := [][]string{c.Drop, c.Hash, c.Mask}, ""
	if c.Encrypts() { // others keep the name from before there was encryption
		lists, ending = append(lists, c.Encrypt), bridge.EncryptedFor(c.Subject)
	}
	var rules []string
	for _, of := range lists {
		rules = append(rules, strings.Join(slices.Sorted(slices.Values(of)), ","))
	}
	text := strings.Join(rules, "\n")
	if len(c.Hash) == 0 {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:8]) + ending
	}
	return hex.EncodeToString(mac(k.Secret, "exportbridge rules\x00"+text)[:8]) + "/" + k.ID + ending
}

// isIndex reports whether a name of a pointer can be an index of an array. The subject is looked
// for by names: elements are not counted.
func isIndex(name string) bool {
	_, err := strconv.ParseUint(name, 10, 32)
	return err == nil
}

// checkEncryption adds the problems of the settings of encryption.
func (r *Rules) checkEncryption(c *Config, p *bridge.Problems) {
	_, err := seal.ParseMaster(c.Master.Reveal())
	if c.Master == "" {
		err = errors.New("is required with EVENT_ENCRYPT")
	}
	p.Check(err == nil, "EVENT_ENCRYPT_KEY", "%v; for example EVENT_ENCRYPT_KEY_FILE, made by: "+
		`echo "m1 $(openssl rand -base64 32)" > FILE`, err)
	names, err := jsonpointer.Parse(c.Subject)
	p.Check(err == nil && len(names) > 0 && !slices.Contains(names, anyElement), "EVENT_SUBJECT",
		"%q is no JSON pointer to one value, and KAFKA_KEY names none, for example /userId", c.Subject)
	p.Check(!slices.ContainsFunc(names, isIndex), "EVENT_SUBJECT", "%q, by default KAFKA_KEY, has an index of an array; "+
		"set EVENT_SUBJECT to a pointer without one, for example /userId", c.Subject)
	at := new(node)
	r.subject = at
	for _, name := range names {
		at, _ = at.child(name) // only * is refused
	}
	at.action = named
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte(text))
	return h.Sum(nil)
}
