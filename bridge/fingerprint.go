package bridge

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Fingerprint identifies the list that a request selects. It has a digest of each part
// of the request that selects the list, for example of host, path and static parameters.
// A digest has 16 bits: enough to show a change, too few to reveal the value. That of rules
// that encrypt has 16 more bits, of the subject, which older versions lack. A Fingerprint that
// is empty or of another version is unknown.
type Fingerprint string

// fingerprintVersion begins every Fingerprint. Changed must compare a newer version with
// this one by the parts that both cover.
const fingerprintVersion = "1"

// RequestPart is one part of a request that selects a list.
type RequestPart struct {
	// Name is one of the Part constants, or a name below PartParam or PartHeader.
	Name  string
	Value string
	// Credential is set if only the name of the part matters, not its value.
	Credential bool
	// Preset is set if the value is the default of this release or of a profile.
	Preset bool
}

// The names of parts. A parameter or a header has a name below its prefix.
const (
	PartHost     = "host"
	PartPath     = "path"
	PartMethod   = "method"
	PartCursor   = "cursor"
	PartAuth     = "auth"
	PartToken    = "token"
	PartPageSize = "size"
	PartParam    = "param."
	PartHeader   = "header."
	// PartIdentity begins the name of the key of identities, whose value is empty. The key
	// is no part of the request, but the identities of a checkpoint depend on it.
	PartIdentity = "identity."
	// PartRules is the name of the rules for private data. These rules select no list
	// either, but jobs and repairs must have the rules of the stream.
	PartRules = "rules"
)

const (
	byNameOnly = "-" // replaces the digest of a credential
	presetMark = "~" // precedes the digest of a preset
)

// NewFingerprint returns the fingerprint of the parts, in any order.
func NewFingerprint(parts []RequestPart) Fingerprint {
	texts := make([]string, len(parts))
	for i, p := range parts {
		value := partDigest(p.Name, p.Value)
		if others, subject := cutSubject(p.Value); p.Name == PartRules && subject != "" {
			value = partDigest(p.Name, others) + partDigest(p.Name, subject)
		}
		if p.Credential {
			value = byNameOnly
		}
		if p.Preset {
			value = presetMark + value
		}
		texts[i] = url.QueryEscape(p.Name) + "=" + value
	}
	slices.Sort(texts)
	return Fingerprint(fingerprintVersion + " " + strings.Join(texts, " "))
}

func partDigest(name, value string) string {
	sum := sha256.Sum256([]byte(name + "\x00" + value))
	return hex.EncodeToString(sum[:2])
}

// Known reports whether the fingerprint is known.
func (f Fingerprint) Known() bool { return strings.HasPrefix(string(f), fingerprintVersion+" ") }

// Private reports whether f has rules for private data, or a key of identities.
func (f Fingerprint) Private() bool {
	return strings.Contains(string(f), " "+PartRules+"=") || strings.Contains(string(f), " "+PartIdentity)
}

// Digest returns the eight digits with which an operator accepts f; empty if f is unknown.
func (f Fingerprint) Digest() string {
	if !f.Known() {
		return ""
	}
	ofRules := func(t string) bool { return strings.HasPrefix(t, PartRules+"=") }
	texts := slices.DeleteFunc(strings.Fields(string(f)), ofRules)
	sum := sha256.Sum256([]byte(strings.ReplaceAll(strings.Join(texts, " "), presetMark, "")))
	return hex.EncodeToString(sum[:4])
}

// IsDigest reports whether a text has the form of a Fingerprint.Digest.
func IsDigest(s string) bool { return len(s) == 8 && strings.Trim(s, "0123456789abcdef") == "" }

// digest is the digest of a part.
type digest struct {
	value  string // without presetMark
	preset bool
}

// digests returns the digests by the names of their parts.
func (f Fingerprint) digests() map[string]digest {
	all := make(map[string]digest)
	for text := range strings.FieldsSeq(strings.TrimPrefix(string(f), fingerprintVersion)) {
		name, value, _ := strings.Cut(text, "=")
		name, _ = url.QueryUnescape(name)
		plain, preset := strings.CutPrefix(value, presetMark)
		all[name] = digest{plain, preset}
	}
	return all
}

// RequestChange is how a request differs from the request that returned a cursor. The
// zero value is no difference.
type RequestChange struct {
	// Other names the parts that select another list.
	Other []string
	// Unproven names the parts that may select the same list: a host can have several
	// names, a credential can be replaced, a release can correct a preset, or know another
	// name of a credential. A page with items published before proves that the list is the same.
	Unproven []string
	// Rules is set if the rules for private data differ. The list is the same.
	Rules bool
}

// SameRequestHint is the hint for a request that Elsewhere rejects.
const SameRequestHint = "set EXPORT_URL, EXPORT_PATH, EXPORT_PARAMS, EXPORT_HEADERS, EVENT_DROP, EVENT_HASH, " +
	"EVENT_MASK, EVENT_ENCRYPT, EVENT_SUBJECT, KAFKA_KEY, EVENT_HASH_KEY and the credentials as for the bridge"

// Elsewhere returns the parts that keep a job or a repair from publishing beside the
// stream. These are Other, a new host, and other Rules. A new credential or a corrected
// preset is not among them.
func (c RequestChange) Elsewhere() (parts []string) {
	if slices.Contains(c.Unproven, PartHost) {
		parts = append(parts, PartHost)
	}
	if parts = append(parts, c.Other...); c.Rules {
		parts = append(parts, "rules for private data")
	}
	return parts
}

// Changed returns how the request g differs from f, whose response had the cursor. The page
// size matters only if the cursor is a number, which may count pages. An unknown request
// does not differ.
func (f Fingerprint) Changed(g Fingerprint, cursor string) (c RequestChange) {
	if !f.Known() || !g.Known() || f == g {
		return c
	}
	was, now := f.digests(), g.digests()
	union := maps.Clone(was)
	maps.Copy(union, now)
	counts := cursor != "" && strings.Trim(cursor, "0123456789") == ""
	for _, name := range slices.Sorted(maps.Keys(union)) {
		a, had := was[name]
		b, has := now[name]
		switch {
		case name == PartRules:
			c.Rules = !had || !strings.HasPrefix(b.value, a.value) // an older version has no digest of the subject
		case had && has && a.value == b.value, name == PartPageSize && !counts:
		case strings.HasPrefix(name, PartIdentity) && !had: // the first key: identities without a key are still known
		case name == PartHost, name == PartAuth,
			a.value == byNameOnly || b.value == byNameOnly,
			(!had || a.preset) && (!has || b.preset):
			c.Unproven = append(c.Unproven, partText(name))
		default:
			c.Other = append(c.Other, partText(name))
		}
	}
	return c
}

// partText names a part for people.
func partText(name string) string {
	if rest, ok := strings.CutPrefix(name, PartParam); ok {
		return "parameter " + rest
	}
	if rest, ok := strings.CutPrefix(name, PartHeader); ok {
		return "header " + rest
	}
	if strings.HasPrefix(name, PartIdentity) {
		return "key of identities (first line of EVENT_HASH_KEY)"
	}
	switch name {
	case PartCursor:
		return "place of the cursor"
	case PartAuth:
		return "kind of credential"
	case PartToken:
		return "path of the token URL"
	case PartPageSize:
		return "page size"
	}
	return name
}

// String lists all parts that differ.
func (c RequestChange) String() string {
	return strings.Join(slices.Concat(c.Other, c.Unproven), ", ")
}
