package bridge

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
)

// Fingerprint says which list a cursor belongs to: a digest of each part of the
// request that selects it, such as its host, its path and its static
// parameters. A digest has 16 bits: enough to name what changed, too few to
// find a value from. Empty, and one of another version, is unknown.
type Fingerprint string

// fingerprintVersion begins every Fingerprint. A new version is compared by
// what the old one covers before it replaces it: see Origin.Request.
const fingerprintVersion = "1"

// RequestPart is one part of a Fingerprint.
type RequestPart struct {
	// Name is one of the Part constants, or a name below PartParam or
	// PartHeader.
	Name string
	// Value is what is digested. Of a credential only the name counts.
	Value      string
	Credential bool
	// Preset is set if the value is the default of this release or of a profile.
	Preset bool
}

// The names of parts. A name below a prefix is that of a parameter or header.
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
)

// The values of parts that have no digest, and what precedes a preset's.
const (
	byNameOnly = "-"
	presetMark = "~"
)

// NewFingerprint returns the fingerprint of the parts, in any order.
func NewFingerprint(parts []RequestPart) Fingerprint {
	texts := make([]string, len(parts))
	for i, p := range parts {
		sum := sha256.Sum256([]byte(p.Name + "\x00" + p.Value))
		value := hex.EncodeToString(sum[:2])
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

// Known reports whether f says anything.
func (f Fingerprint) Known() bool { return strings.HasPrefix(string(f), fingerprintVersion+" ") }

// Digest names f in eight digits, for an operator to accept it by; empty if f
// is unknown.
func (f Fingerprint) Digest() string {
	if !f.Known() {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.ReplaceAll(string(f), presetMark, "")))
	return hex.EncodeToString(sum[:4])
}

// IsDigest reports whether a text has the form of a Digest.
func IsDigest(s string) bool { return len(s) == 8 && strings.Trim(s, "0123456789abcdef") == "" }

// part is the value of a part, without its mark, and whether it is a preset.
type part struct {
	value  string
	preset bool
}

func (f Fingerprint) parts() map[string]part {
	parts := make(map[string]part)
	for text := range strings.FieldsSeq(strings.TrimPrefix(string(f), fingerprintVersion)) {
		name, value, _ := strings.Cut(text, "=")
		name, _ = url.QueryUnescape(name)
		plain, preset := strings.CutPrefix(value, presetMark)
		parts[name] = part{plain, preset}
	}
	return parts
}

// RequestChange is how a request differs from the one that a cursor came from,
// in words. The zero value is no difference.
type RequestChange struct {
	// Other parts select another list.
	Other []string
	// Unproven parts may select the same list: a host has several names, a
	// credential is replaced, a release corrects a preset. A page that lists
	// items published before proves it.
	Unproven []string
}

// Elsewhere returns the parts that lead to another list where no page proves the
// opposite: a new host too, but no new credential and no corrected preset.
func (c RequestChange) Elsewhere() []string {
	if slices.Contains(c.Unproven, PartHost) {
		return append([]string{PartHost}, c.Other...)
	}
	return c.Other
}

// Changed returns how the request g differs from f, which the cursor came from.
// The page size counts only where the cursor is a number: it may count pages.
// Nothing differs from the unknown.
func (f Fingerprint) Changed(g Fingerprint, cursor string) (c RequestChange) {
	if !f.Known() || !g.Known() || f == g {
		return c
	}
	was, now := f.parts(), g.parts()
	names := make([]string, 0, len(was)+len(now))
	for name := range was {
		names = append(names, name)
	}
	for name := range now {
		if _, ok := was[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		a, had := was[name]
		b, has := now[name]
		switch {
		case a.value == b.value, name == PartPageSize && (cursor == "" || strings.Trim(cursor, "0123456789") != ""):
		case name == PartHost, name == PartAuth, (!had || a.value == byNameOnly) && (!has || b.value == byNameOnly),
			(a.preset || !had) && (b.preset || !has):
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

// String lists the parts that differ.
func (c RequestChange) String() string {
	return strings.Join(slices.Concat(c.Other, c.Unproven), ", ")
}
