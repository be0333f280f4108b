package scan

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"exportbridge/bridge"
)

// TestNotPlain tries each byte at each place of a word, next to bytes that could disturb
// the arithmetic.
func TestNotPlain(t *testing.T) {
	t.Parallel()
	check := func(word [8]byte) {
		want := 0
		for want < 8 && word[want] >= ' ' && word[want] < 0x80 && word[want] != '"' && word[want] != '\\' {
			want++
		}
		if got := bits.TrailingZeros64(notPlain(binary.LittleEndian.Uint64(word[:]))) / 8; got != want {
			t.Fatalf("%q: %d plain, want %d", word, got, want)
		}
	}
	const neighbours = " !#[]^~\x7f\"\\\x00\x1f\x80\xff"
	for c := range 256 {
		for at := range 8 {
			for _, around := range []byte(neighbours) {
				word := [8]byte{around, around, around, around, around, around, around, around}
				word[at] = byte(c)
				check(word)
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		var word [8]byte
		for i := range word {
			word[i] = neighbours[random.IntN(len(neighbours))]
		}
		check(word)
	}
}

// TestSkip has where values end and where they are invalid. The mark ^ is that position. A
// ! after it means that the value is refused there.
func TestSkip(t *testing.T) {
	t.Parallel()
	for _, marked := range []string{
		`0^`, `0^1`, `-0^`, `12^ `, `12^,`, `-1.50^}`, `1e5^`, `1E+05^]`, `1.5e-7^`, `0^x`, `-^!`, `-^!a`, `-^!-1`, `1.^!`,
		`1.^!e5`, `1e^!`, `1e+^!`, `1e^!x`, `1.5^.5`, `^!+1`, `^!.5`,
		`true^`, `false^`, `null^,`, `nul^!`, `n^!xll`, `tr^!ew`, `fals^!`, `^!x`, `^!`, `true^e`, `^!True`,
		`""^`, `"abc"^d`, `"abcdefgh"^`, `"abcdefghi^!`, `"abc^!`, `"\"^!`, `"\\"^`, `"\"\\"^ `, `"\b\f\n\r\t\/\u00aF"^`,
		`"\^!x"`, `"\u12^!"`, `"\u12^!g4"`, `"\u12^!`, `"\^!`, `"a^!` + "\n\"", `"abcdefgh^!` + "\x00\"", `"é日本😀é"^`,
		`"é^!` + "\xff\"", `"^!` + "\xed\xa0\x80\"", `"abcdefg^!` + "\xc0\x80\"", `"\ud800"^`,
		`{}^`, `[]^`, `{ }^]`, "[\r\n\t ]^", `{"a":1}^`, `[1,2]^,`, `{"a" : [ { } , [ ] , "x" ] , "b":null}^ `, `[[[[]]]]^]`,
		`[{"a":[{"b":[]}]},{}]^`,
		`[^!`, `{^!`, `[1^!`, `[1,^!`, `[1,^!]`, `[^!,1]`, `[1 ^!2]`, `[1^!}`, `[^!}`, `{^!]`, `{"a"^!`, `{"a"^!}`,
		`{"a":^!`, `{"a":^!}`, `{"a":1^!`, `{"a":1^!]`, `{"a":1,^!`, `{"a":1,^!}`, `{^!,}`, `{^!1:2}`, `{"a":1,^![]}`,
		`{"a"^!,`, `{"a":1^!:2}`, `[1^!:2]`, `[^!` + "\u00a0]", `[[1,[2]],3^!`,
	} {
		text := strings.NewReplacer("^!", "", "^", "").Replace(marked)
		wantEnd, wantOK := strings.Index(marked, "^"), !strings.Contains(marked, "^!")
		for _, pad := range []string{"", " ", strings.Repeat("x", 20)} { // so that the rest of the body is short or long
			if !wantOK && wantEnd == len(text) && pad != "" {
				continue // the value would not be cut short
			}
			var s Scanner
			s.Reset([]byte(text + pad))
			end, ok := s.Skip(0)
			if end != wantEnd || ok != wantOK {
				t.Errorf("%q and %q: %d %t, want %d %t", text, pad, end, ok, wantEnd, wantOK)
			}
			_, endRead, okRead := s.Read(0)
			if endRead != end || okRead != ok {
				t.Errorf("%q and %q: read %d %t, skip %d %t", text, pad, endRead, okRead, end, ok)
			}
		}
	}
}

// TestUnescape compares each escape with encoding/json.
func TestUnescape(t *testing.T) {
	t.Parallel()
	check := func(raw string) {
		var want string
		if err := json.Unmarshal([]byte(`"`+raw+`"`), &want); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		got, exact := AppendUnescaped([]byte("> "), []byte(raw))
		if string(got) != "> "+want {
			t.Errorf("%s: %q, encoding/json reads %q", raw, got, want)
		}
		replaced := strings.Contains(want, "\ufffd") && !strings.Contains(strings.ToLower(raw), `\ufffd`)
		if exact == replaced {
			t.Errorf("%s: exact %t", raw, exact)
		}
	}
	for unit := range 1 << 16 {
		check(fmt.Sprintf(`a\u%04x`, unit))
		check(fmt.Sprintf(`\u%04Xb`, unit))
	}
	halves := []string{`\ud800`, `\udbff`, `\udc00`, `\udfff`, `\ud7ff`, `\ue000`, `\u0041`, `\n`, `x`, ``}
	for _, a := range halves {
		for _, b := range halves {
			for _, c := range halves {
				check(a + b + c)
			}
		}
	}
	check(`\"\\\/\b\f\n\r\t`)
	check(`no escapes é`)
}

// TestInteger compares integers with strconv.
func TestInteger(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 3))
	texts := []string{"0", "-0", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
		"-9223372036854775809", "1.0", "1e3", "-1E1", "100000000000000000000000", "1000000000000000000.5"}
	for range 10_000 {
		n := int64(random.Uint64()) >> random.IntN(64)
		texts = append(texts, strconv.FormatInt(n, 10), strconv.FormatInt(n, 10)+"7")
	}
	for _, text := range texts {
		want, err := strconv.ParseInt(text, 10, 64)
		got, ok := Value{Raw: []byte(text), Kind: Number}.integer()
		if ok != (err == nil && want != bridge.NoTime) || ok && got != want {
			t.Errorf("%s: %d %t, want %d %v", text, got, ok, want, err)
		}
	}
	if _, ok := (Value{Raw: []byte("1"), Kind: String}).integer(); ok {
		t.Error("a string is no integer")
	}
}

// A text that no CloudEvents attribute can have is no id and no name.
func TestControlCharacters(t *testing.T) {
	t.Parallel()
	for literal, want := range map[string]bool{
		`a`: true, `a b`: true, `a\"b`: true, `a\\b\/c`: true, "\u00e9\u20ac": true, "\u00a0": true, `\u00e9`: true,
		`\u202e`: true, "abcdefghijklmnop\u00e9": true,
		`a\n`: false, `\u0000a`: false, `a\tb`: false, `\u001b[31m`: false, "a\x7f": false, `\u007f`: false,
		"a\u0085": false, `abcdefghijklmnop\u009b`: false, "\u00e9\u009b": false, `a\u0080`: false,
	} {
		v := stringIn([]byte(`"` + literal + `"`))
		if v.Kind == None {
			t.Fatalf("%q is no string", literal)
		}
		text, _ := v.Text()
		for _, v := range []Value{v, {Raw: text, Kind: String}} { // with escapes, and unescaped
			if (v.ID() != nil) != want || (v.Name() != nil) != want {
				t.Errorf("%q: id %q, name %q", literal, v.ID(), v.Name())
			}
		}
	}
}
