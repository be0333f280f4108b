// Package secrets finds secrets in texts of an API, in the forms that programs write
// them in.
package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// shortest is how long a secret is that may not be a part of a text, in bytes: a
	// shorter one is in ordinary text by chance.
	shortest = 8
	// escapes is how often a text may be escaped.
	escapes = 4
)

// Forms returns a secret in the forms that a text may have it in, the secret first:
// escaped for URLs, hexadecimal, and what base64 makes of it wherever it begins.
func Forms(secret string) []string {
	if secret == "" {
		return nil
	}
	digits := hex.EncodeToString([]byte(secret))
	forms := []string{secret, url.QueryEscape(secret), url.PathEscape(secret), digits, strings.ToUpper(digits)}
	for before := range 3 { // bytes in front of it, in its first group of three
		text := append(make([]byte, before), secret...)
		from, to := (8*before+5)/6, 8*len(text)/6 // the characters that it decides alone
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			if form := encoding.EncodeToString(text)[from:to]; len(form) >= shortest/2 {
				forms = append(forms, form)
			}
		}
	}
	return forms
}

// Secret is a text that is stored nowhere, and what to call it.
type Secret struct{ Name, Value string }

// Finder finds secrets in texts. It may be used concurrently.
type Finder struct{ all []found }

type found struct {
	name  string
	forms [][]byte
}

// NewFinder returns a finder of secrets.
func NewFinder(secrets []Secret) Finder {
	var f Finder
	for _, s := range secrets {
		if len(s.Value) >= shortest {
			one := found{name: s.Name}
			for _, form := range Forms(s.Value) {
				one.forms = append(one.forms, []byte(form))
			}
			f.all = append(f.all, one)
		}
	}
	return f
}

// In returns the name of the secret that a text has, "" without one, however often
// the text is escaped for URLs or in JSON.
func (f Finder) In(text string) (name string) {
	var room [512]byte // an ordinary cursor takes no memory
	plain := append(room[:0], text...)
	for range 2 * (escapes + 1) {
		for i := range f.all {
			for _, form := range f.all[i].forms {
				if bytes.Contains(plain, form) {
					return f.all[i].name
				}
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
