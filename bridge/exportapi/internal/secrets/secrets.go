// Package secrets finds secrets in texts of an API, in the forms that programs write
// them in.
package secrets

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strconv"
	"strings"
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
	forms []string
}

// NewFinder returns a finder of secrets.
func NewFinder(secrets []Secret) Finder {
	var f Finder
	for _, s := range secrets {
		if len(s.Value) >= shortest {
			f.all = append(f.all, found{s.Name, Forms(s.Value)})
		}
	}
	return f
}

// In returns the name of the secret that a text has, "" without one, however often
// the text is escaped for URLs or in JSON.
func (f Finder) In(text string) (name string) {
	for range 2 * (escapes + 1) {
		for i := range f.all {
			for _, form := range f.all[i].forms {
				if strings.Contains(text, form) {
					return f.all[i].name
				}
			}
		}
		plain := unescape(text, '\\')
		if plain == text {
			plain = unescape(text, '%')
		}
		if plain == text {
			break
		}
		text = plain
	}
	return ""
}

// unescape undoes the escapes of a text that begin with mark: %41 and %u0041, or
// \u0041 and \/. It leaves what is none as it is.
func unescape(text string, mark byte) string {
	if strings.IndexByte(text, mark) < 0 {
		return text
	}
	out := make([]byte, 0, len(text))
	for rest := text; rest != ""; {
		if rest[0] == mark {
			if char, size := escaped(rest[1:], mark); size > 0 {
				out = append(out, char...)
				rest = rest[1+size:]
				continue
			}
		}
		out = append(out, rest[0])
		rest = rest[1:]
	}
	return string(out)
}

// escaped reads what stands behind the mark of an escape, and returns its length, 0 if
// it is none.
func escaped(text string, mark byte) (char string, size int) {
	from, to := 0, 2
	switch {
	case mark == '\\' && strings.HasPrefix(text, "/"):
		return "/", 1
	case strings.HasPrefix(text, "u"):
		from, to = 1, 5
	case mark == '\\':
		return "", 0
	}
	if len(text) < to {
		return "", 0
	}
	n, err := strconv.ParseUint(text[from:to], 16, 16)
	switch {
	case err != nil:
		return "", 0
	case from > 0:
		return string(rune(n)), to
	}
	return string([]byte{byte(n)}), to
}
