// Package secrets finds secrets in texts of an API, in the forms that programs write
// them in.
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
	// shortest is how long a secret is that may not be a part of a text, in bytes: a
	// shorter one is in ordinary text by chance.
	shortest = 8
	// leastTrace is the same for the letters and digits of a form.
	leastTrace = 12
	// escapes is how often a text may be escaped.
	escapes = 4
)

// encodings write groups of bytes in characters of some bits.
var encodings = []struct {
	group, bits int
	encode      func([]byte) string
}{
	{3, 6, base64.RawStdEncoding.EncodeToString}, {3, 6, base64.RawURLEncoding.EncodeToString},
	{5, 5, base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString},
}

// Forms returns a secret in the forms that a text may have it in, the secret first:
// escaped for URLs, hexadecimal, and what base64 and base32 make of it wherever it begins.
func Forms(secret string) []string {
	if secret == "" {
		return nil
	}
	digits := hex.EncodeToString([]byte(secret))
	forms := []string{secret, url.QueryEscape(secret), url.PathEscape(secret), digits, strings.ToUpper(digits)}
	for _, e := range encodings {
		for before := range e.group { // bytes in front of it, in its first group
			text := append(make([]byte, before), secret...)
			from, to := (8*before+e.bits-1)/e.bits, 8*len(text)/e.bits // the characters that it decides alone
			if form := e.encode(text)[from:to]; len(form) >= shortest/2 {
				forms = append(forms, form)
			}
		}
	}
	return forms
}

// traces returns the letters and digits of the forms of a secret, of the forms of these,
// and of lists of its bytes, each once.
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

// squeeze appends to out the letters and digits of a text, in lower case: what is left
// of a secret that somebody has spaced, quoted, escaped or folded.
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

// Secret is a text that is stored nowhere, and what to call it.
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

// In returns the name of the secret that a text has, "" without one, however often
// the text is escaped for URLs or in JSON, encoded twice, or spaced.
func (f Finder) In(text string) (name string) {
	var room, squeezedRoom [512]byte // an ordinary cursor takes no memory
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

// unescape undoes, in place, the escapes of a text that begin with mark: %41 and
// %u0041, or \u0041 and \/. It leaves what is none as it is.
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
		if size > 3 { // \u0041: a character, of fewer bytes than its escape
			out = utf8.AppendRune(out, char)
		} else {
			out = append(out, byte(char))
		}
		rest = rest[size:]
	}
	return out
}

// escape reads what stands behind the mark of an escape, and returns its length, 0 if
// it is none.
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
