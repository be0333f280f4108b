package exportapi

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
	"exportbridge/bridge/exportapi/exportsim"
)

// TestNotPlain tries every byte at every place of a word, among neighbours
// that the arithmetic could mix it up with.
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

// TestSkip covers where values end and where they go wrong. The mark ^ is that
// position; a ! behind it says that the value was refused there.
func TestSkip(t *testing.T) {
	t.Parallel()
	for _, marked := range []string{
		`0^`, `0^1`, `-0^`, `12^ `, `12^,`, `-1.50^}`, `1e5^`, `1E+05^]`, `1.5e-7^`, `0^x`, `-^!`, `-^!a`, `-^!-1`, `1.^!`, `1.^!e5`, `1e^!`, `1e+^!`, `1e^!x`, `1.5^.5`, `^!+1`, `^!.5`,
		`true^`, `false^`, `null^,`, `nul^!`, `n^!xll`, `tr^!ew`, `fals^!`, `^!x`, `^!`, `true^e`, `^!True`,
		`""^`, `"abc"^d`, `"abcdefgh"^`, `"abcdefghi^!`, `"abc^!`, `"\"^!`, `"\\"^`, `"\"\\"^ `, `"\b\f\n\r\t\/\u00aF"^`, `"\^!x"`, `"\u12^!"`, `"\u12^!g4"`, `"\u12^!`, `"\^!`, `"a^!` + "\n\"", `"abcdefgh^!` + "\x00\"", `"é日本😀é"^`, `"é^!` + "\xff\"", `"^!` + "\xed\xa0\x80\"", `"abcdefg^!` + "\xc0\x80\"", `"\ud800"^`,
		`{}^`, `[]^`, `{ }^]`, "[\r\n\t ]^", `{"a":1}^`, `[1,2]^,`, `{"a" : [ { } , [ ] , "x" ] , "b":null}^ `, `[[[[]]]]^]`, `[{"a":[{"b":[]}]},{}]^`,
		`[^!`, `{^!`, `[1^!`, `[1,^!`, `[1,^!]`, `[^!,1]`, `[1 ^!2]`, `[1^!}`, `[^!}`, `{^!]`, `{"a"^!`, `{"a"^!}`, `{"a":^!`, `{"a":^!}`, `{"a":1^!`, `{"a":1^!]`, `{"a":1,^!`, `{"a":1,^!}`, `{^!,}`, `{^!1:2}`, `{"a":1,^![]}`, `{"a"^!,`, `{"a":1^!:2}`, `[1^!:2]`, `[^!` + "\u00a0]", `[[1,[2]],3^!`,
	} {
		text := strings.NewReplacer("^!", "", "^", "").Replace(marked)
		wantEnd, wantOK := strings.Index(marked, "^"), !strings.Contains(marked, "^!")
		for _, pad := range []string{"", " ", strings.Repeat("x", 20)} { // short and long rests of the body
			if !wantOK && wantEnd == len(text) && pad != "" {
				continue // then it would not be cut short
			}
			var s scanner
			s.reset([]byte(text + pad))
			end, ok := s.skip(0)
			if end != wantEnd || ok != wantOK {
				t.Errorf("%q and %q: %d %t, want %d %t", text, pad, end, ok, wantEnd, wantOK)
			}
			_, endRead, okRead := s.read(0)
			if endRead != end || okRead != ok {
				t.Errorf("%q and %q: read %d %t, skip %d %t", text, pad, endRead, okRead, end, ok)
			}
		}
	}
}

// TestDepth goes to the limit and beyond it, in values that are skipped and in
// those that are read.
func TestDepth(t *testing.T) {
	t.Parallel()
	const limit = 10_000 // that of jsontext
	decoder := func(key string) *pageDecoder {
		d, err := newPageDecoder(&Config{ItemsField: "items", CursorField: "nextCursor", KeyPointer: key}, presets["events"])
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for key, openers := range map[string][]string{
		"none":                      {`[`, `{"b":`, `{"a":[{"a":`, `[{"":[`},
		"/a/a/0/a":                  {`[`, `{"b":`, `{"a":[{"a":`, `[{"":[`},
		strings.Repeat("/a", limit): {`{"a":`},
	} {
		d := decoder(key)
		for _, opener := range openers {
			// Each reads the same from both ends.
			closers := strings.NewReplacer(`"b":`, "", `"a":`, "", `"":`, "", "{", "}", "[", "]").Replace(opener)
			for levels := limit - 8; levels < limit+3; levels += len(closers) {
				n := levels / len(closers)
				depth := 3 + n*len(closers) // with page, items and item
				body := `{"items":[{"timestamp":1,"a":` + strings.Repeat(opener, n) + "1" + strings.Repeat(closers, n) + `}]}`
				if err := d.decode([]byte(body), nil); (err != nil) != (depth > limit) {
					t.Errorf("%.10s: %s to depth %d: %v", key, opener, depth, err)
				}
			}
		}
		// Nothing of it stays, and what has ended does not count.
		many := `{"items":[` + strings.Repeat(`{"payload":{"a":[{}]},"a":{"a":[[],{"a":{}}]}},`, maxItems-1) + `1]}`
		if err := d.decode([]byte(many), nil); err != nil || len(d.events) != maxItems {
			t.Errorf("%.10s: %d events, %v", key, len(d.events), err)
		}
	}
}

// TestRefusal covers what is said of a body that is no page, and that nothing
// of its content is.
func TestRefusal(t *testing.T) {
	t.Parallel()
	d := testDecoder(t)
	for body, want := range map[string]string{
		`{"items":[{"a":"SECRET`:                      "is truncated after 22 bytes",
		`{"items":[SECRET]}`:                          "not JSON at byte 10 of 18",
		`{"items":[{"a":"SECRET` + "\xff" + `"}]}`:    "invalid UTF-8",
		`{"items":{"SECRET":1},"a":"` + "\xff" + `"}`: "invalid UTF-8",
		`"SECRET"`:                                 "it is a string, not an object",
		`[{"SECRET":1}]`:                           "it is an array, not an object",
		`SECRET`:                                   "not JSON at byte 0 of 6",
		`{"items":{"SECRET":1}}`:                   `member "items" is an object, not an array`,
		`{"items":null}`:                           `member "items" is null, not an array`,
		`{"items":SECRET}`:                         "not JSON at byte 9 of 16",
		`{"items":[],"nextCursor":17e1}`:           `member "nextCursor" is a number with a fraction`,
		`{"items":[],"nextCursor":false}`:          `member "nextCursor" is a boolean, not a string, an integer or null`,
		`{"items":[],"nextCursor":"SECRET\ud800"}`: `member "nextCursor" does not decode exactly`,
		`{"items":["SECRET"],"x":1,"items":[]}`:    `member "items" occurs twice`,
		`{"SECRET":[]}`:                            `it has no member "items"`,
		`{"items":[]} SECRET`:                      "unexpected data after the object at byte 13",
	} {
		err := d.decode([]byte(body), nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: %v, want %q", body, err, want)
		}
	}
}

// TestUnescape holds every escape against encoding/json.
func TestUnescape(t *testing.T) {
	t.Parallel()
	check := func(raw string) {
		var want string
		if err := json.Unmarshal([]byte(`"`+raw+`"`), &want); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		got, exact := appendUnescaped([]byte("> "), []byte(raw))
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

// TestInteger holds integers against strconv.
func TestInteger(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 3))
	texts := []string{"0", "-0", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "1.0", "1e3", "-1E1", "100000000000000000000000", "1000000000000000000.5"}
	for range 10_000 {
		n := int64(random.Uint64()) >> random.IntN(64)
		texts = append(texts, strconv.FormatInt(n, 10), strconv.FormatInt(n, 10)+"7")
	}
	for _, text := range texts {
		want, err := strconv.ParseInt(text, 10, 64)
		got, ok := value{raw: []byte(text), kind: kindNumber}.integer()
		if ok != (err == nil && want != bridge.NoTime) || ok && got != want {
			t.Errorf("%s: %d %t, want %d %v", text, got, ok, want, err)
		}
	}
	if _, ok := (value{raw: []byte("1"), kind: kindString}).integer(); ok {
		t.Error("a string is no integer")
	}
}

// TestSimulatedPagesAllocateNothing does, for every schema and resource, what
// TestDecodeAllocatesNothing does for one.
func TestSimulatedPagesAllocateNothing(t *testing.T) {
	for _, schema := range []exportsim.Schema{exportsim.Schema08, exportsim.Schema07, exportsim.Schema05} {
		for resource, preset := range presets {
			body := simulatorPage(t, schema, preset.path, 200)
			d, err := newPageDecoder(&Config{ItemsField: "items", CursorField: "nextCursor"}, preset)
			if err != nil {
				t.Fatal(err)
			}
			if err := d.decode(body, nil); err != nil {
				t.Fatal(err)
			}
			d.identity.identity()
			events := d.events
			if len(events) != 200 {
				t.Fatalf("%d events, want 200", len(events))
			}
			allocs := testing.AllocsPerRun(10, func() {
				if err := d.decode(body, events[:0]); err != nil {
					t.Fatal(err)
				}
				d.identity.identity()
			})
			if allocs > 0 {
				t.Errorf("%s of schema %s: %v allocations a page, want 0", resource, schema, allocs)
			}
		}
	}
}
