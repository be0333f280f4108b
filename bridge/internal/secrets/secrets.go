// Package secrets finds secrets in texts of an API, also in the encodings that programs
// use.
package secrets

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// shortest is the length in bytes from which a secret is searched for as it is. A
	// shorter one occurs in ordinary text by chance.
	shortest = 8
	// leastTrace is the length from which the letters and digits of a form are searched
	// for.
	leastTrace = 12
	// escapes is how often a text may be escaped.
	escapes = 4
)

// encodings encode a group of bytes as characters that have a number of bits each.
var encodings = []struct {
	group, bits int
	encode      func([]byte) string
}{
	{3, 6, base64.RawStdEncoding.EncodeToString}, {3, 6, base64.RawURLEncoding.EncodeToString},
	{5, 5, base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString},
}

// Forms returns the forms in which a text may have a secret: the secret itself first, then
// escaped for URLs, in hexadecimal, and in base64 and base32 at any offset.
func Forms(secret string) []string {
	if secret == "" {
		return nil
	}
	digits := hex.EncodeToString([]byte(secret))
	forms := []string{secret, url.QueryEscape(secret), url.PathEscape(secret), digits, strings.ToUpper(digits)}
	for _, e := range encodings {
		for before := range e.group { // the offset of the secret in its first group
			text := append(make([]byte, before), secret...)
			from, to := (8*before+e.bits-1)/e.bits, 8*len(text)/e.bits // the characters that depend on the secret alone
			if form := e.encode(text)[from:to]; len(form) >= shortest/2 {
				forms = append(forms, form)
			}
		}
	}
	return forms
}

// traces returns the letters and digits of the forms of a secret, of the forms of those,
// and of lists of its bytes. Each occurs once.
func traces(secret string) (all []string) {
	add := func(form string) {
		if trace := string(squeeze(nil, []byte(form))); len(trace) >= leastTrace && !slices.Contains(all, trace) {
			all = append(all, trace)
		}
	}
	for _, once := range append(Forms(secret), strings.ReplaceAll(secret, "/", `\/`)) {
		for _, form := range Forms(once) {
			add(form)
		}
	}
	for _, format := range []string{"x%02x", "0x%02x", "u%04x", "%d", "%03o"} {
		var list strings.Builder
		for _, b := range []byte(secret) {
			fmt.Fprintf(&list, format, b)
		}
		add(list.String())
	}
	return all
}

// squeeze appends to out the letters and digits of a text, in lower case. They stay the
// same if a secret is spaced, quoted, escaped or folded.
func squeeze(out, text []byte) []byte {
	for _, c := range text {
		switch {
		case 'A' <= c && c <= 'Z':
			out = append(out, c-'A'+'a')
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c >= 0x80:
			out = append(out, c)
		}
	}
	return out
}

// Secret is a value to find, and its name.
type Secret struct{ Name, Value string }

// Finder finds secrets in texts. It may be used concurrently.
type Finder struct{ all []found }

type found struct {
	name          string
	forms, traces [][]byte
}

// NewFinder returns a finder of secrets.
func NewFinder(secrets []Secret) Finder {
	var f Finder
	for _, s := range secrets {
		this := found{name: s.Name, traces: inBytes(traces(s.Value))}
		if len(s.Value) >= shortest {
			this.forms = inBytes(Forms(s.Value))
		}
		f.all = append(f.all, this)
	}
	return f
}

// In returns the name of the secret that a text contains, "" without one. It finds a secret
// that is escaped several times for URLs or in JSON, encoded twice, or spaced.
func (f Finder) In(text string) (name string) {
	var room, squeezedRoom [512]byte // enough for an ordinary cursor
	plain := append(room[:0], text...)
	for range 2 * (escapes + 1) {
		squeezed := squeeze(squeezedRoom[:0], plain)
		for i := range f.all {
			if has(plain, f.all[i].forms) || has(squeezed, f.all[i].traces) {
				return f.all[i].name
			}
		}
		was := len(plain)
		if plain = unescape(plain, '\\'); len(plain) == was {
			plain = unescape(plain, '%')
		}
		if len(plain) == was { // each escape is longer than what it stands for
			break
		}
	}
	return ""
}

func has(text []byte, parts [][]byte) bool {
	for _, part := range parts {
		if bytes.Contains(text, part) {
			return true
		}
	}
	return false
}

func inBytes(texts []string) [][]byte {
	all := make([][]byte, len(texts))
	for i := range texts {
		all[i] = []byte(texts[i])
	}
	return all
}

// unescape decodes, in place, the escapes of a text that begin with mark: %41 and %u0041,
// or \u0041 and \/. It keeps invalid escapes.
func unescape(text []byte, mark byte) []byte {
	first := bytes.IndexByte(text, mark)
	if first < 0 {
		return text
	}
	out := text[:first]
	for rest := text[first:]; len(rest) > 0; {
		char, size := rune(rest[0]), 1
		if rest[0] == mark {
			if escaped, behind := escape(rest[1:], mark); behind > 0 {
				char, size = escaped, 1+behind
			}
		}
		if size > 3 { // \u0041 is a character with fewer bytes than its escape
			out = utf8.AppendRune(out, char)
		} else {
			out = append(out, byte(char))
		}
		rest = rest[size:]
	}
	return out
}

// escape decodes the rest of an escape after its mark. size is the length of that rest, 0
// if there is no escape.
func escape(text []byte, mark byte) (char rune, size int) {
	from, to := 0, 2
	switch {
	case mark == '\\' && bytes.HasPrefix(text, []byte("/")):
		return '/', 1
	case bytes.HasPrefix(text, []byte("u")):
		from, to = 1, 5
	case mark == '\\':
		return 0, 0
	}
	if len(text) < to {
		return 0, 0
	}
	n, err := strconv.ParseUint(string(text[from:to]), 16, 16)
	if err != nil {
		return 0, 0
	}
	return rune(n), to
}
