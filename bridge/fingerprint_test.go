package bridge

import (
	"slices"
	"testing"
)

// What changed is named, and told apart: another list, or perhaps the same one.
func TestFingerprintChanged(t *testing.T) {
	t.Parallel()
	base := []RequestPart{
		{Name: PartHost, Value: "api.example.com"}, {Name: PartPath, Value: "/v1/items"},
		{Name: PartMethod, Value: "GET", Preset: true},
		{Name: PartPageSize, Value: "100"}, {Name: PartParam + "tenant id", Value: "acme"},
		{Name: PartParam + "api_key", Value: "s1", Credential: true},
	}
	with := func(change RequestPart) []RequestPart {
		parts := slices.Clone(base)
		if i := slices.IndexFunc(parts, func(p RequestPart) bool { return p.Name == change.Name }); i >= 0 {
			parts[i] = change
			return parts
		}
		return append(parts, change)
	}
	without := func(name string) []RequestPart {
		return slices.DeleteFunc(slices.Clone(base), func(p RequestPart) bool { return p.Name == name })
	}
	f := NewFingerprint(base)
	for name, c := range map[string]struct {
		parts    []RequestPart
		cursor   string
		other    []string
		unproven []string
	}{
		"nothing":       {parts: base},
		"another order": {parts: []RequestPart{base[3], base[5], base[0], base[4], base[2], base[1]}},
		"path":          {parts: with(RequestPart{Name: PartPath, Value: "/v2/items"}), other: []string{"path"}},
		"host": {parts: with(RequestPart{Name: PartHost, Value: "eu.example.com"}),
			unproven: []string{"host"}},
		"parameter": {parts: with(RequestPart{Name: PartParam + "tenant id", Value: "other"}),
			other: []string{"parameter tenant id"}},
		"parameter removed": {parts: without(PartParam + "tenant id"), other: []string{"parameter tenant id"}},
		"parameter added": {parts: with(RequestPart{Name: PartParam + "filter", Value: "x"}),
			other: []string{"parameter filter"}},
		"header": {parts: with(RequestPart{Name: PartHeader + "X-Org", Value: "x"}),
			other: []string{"header X-Org"}},
		"credential's value": {parts: with(RequestPart{Name: PartParam + "api_key", Value: "s2", Credential: true})},
		"credential for an older release alone": {parts: with(RequestPart{Name: PartParam + "api_key", Value: "s1"}),
			unproven: []string{"parameter api_key"}},
		"credential removed": {parts: without(PartParam + "api_key"), unproven: []string{"parameter api_key"}},
		"page size":          {parts: with(RequestPart{Name: PartPageSize, Value: "50"}), cursor: "abc12"},
		"page size, by number": {parts: with(RequestPart{Name: PartPageSize, Value: "50"}), cursor: "12",
			other: []string{"page size"}},
		"preset": {parts: with(RequestPart{Name: PartMethod, Value: "POST", Preset: true}),
			unproven: []string{"method"}},
		"preset set":         {parts: with(RequestPart{Name: PartMethod, Value: "POST"}), other: []string{"method"}},
		"preset, same value": {parts: with(RequestPart{Name: PartMethod, Value: "GET"})},
	} {
		got := f.Changed(NewFingerprint(c.parts), c.cursor)
		if !slices.Equal(got.Other, c.other) || !slices.Equal(got.Unproven, c.unproven) {
			t.Errorf("%s: another list by %q, perhaps by %q; want %q and %q", name, got.Other, got.Unproven, c.other, c.unproven)
		}
	}
	rules := func(name string) Fingerprint { return NewFingerprint(with(RequestPart{Name: PartRules, Value: name})) }
	for _, c := range []struct {
		was, now Fingerprint
		rules    bool
	}{{f, f, false}, {rules("a+enc"), rules("a" + EncryptedFor("/u")), false}, // of an older version
		{rules("b+enc"), rules("a" + EncryptedFor("/u")), true},
		{rules("a" + EncryptedFor("/v")), rules("a" + EncryptedFor("/u")), true},
		{rules("a"), rules("a" + EncryptedFor("/u")), true}, {rules("a"), rules("a"), false}, {rules("a"), rules("b"), true}, {f, rules("a"), true},
		{rules("a"), f, true}, {"", rules("a"), false}} {
		got := c.was.Changed(c.now, "")
		if got.Rules != c.rules || got.String() != "" || (len(got.Elsewhere()) > 0) != c.rules {
			t.Errorf("from %s to %s: %+v, want other rules: %v", c.was, c.now, got, c.rules)
		}
	}
	if rules("a").Digest() != f.Digest() {
		t.Error("rules for private data change the digest of a list")
	}
	for _, unknown := range []Fingerprint{"", "2 host=1234"} {
		if c := unknown.Changed(f, "1"); c.String() != "" || unknown.Known() || unknown.Digest() != "" {
			t.Errorf("%q is unknown, and differs by %s", unknown, c)
		}
	}
}

// The digest that an operator names does not change where a value becomes that of
// a preset.
func TestFingerprintDigest(t *testing.T) {
	t.Parallel()
	set := NewFingerprint([]RequestPart{{Name: PartHost, Value: "a"}})
	preset := NewFingerprint([]RequestPart{{Name: PartHost, Value: "a", Preset: true}})
	other := NewFingerprint([]RequestPart{{Name: PartHost, Value: "b"}})
	if set.Digest() != preset.Digest() || set.Digest() == other.Digest() || len(set.Digest()) != 8 {
		t.Errorf("digests %s, %s, %s", set.Digest(), preset.Digest(), other.Digest())
	}
}
