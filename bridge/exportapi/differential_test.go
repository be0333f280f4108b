package exportapi

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/bridge/exportapi/internal/scan"
)

// rivals are a scanner and an oracle with the same configuration. Both are used for all
// pages: a page must not affect the next one.
type rivals struct {
	name    string
	field   string // of the cursor
	scanner *pageDecoder
	oracle  *oracle
	bad     int // items with bad text so far
}

// newRivals returns rivals for each resource with its usual key, and for events with each
// kind of key.
func newRivals(t testing.TB) (all []rivals) {
	t.Helper()
	fields := Config{ItemsField: "items", CursorField: "nextCursor"}
	add := func(resource, key string) {
		cfg := &Config{Resource: resource, ItemsField: fields.ItemsField, CursorField: fields.CursorField, KeyPointer: key,
			ItemMapping: fields.ItemMapping}
		scanner := newPageDecoder(cfg.mapping())
		name := fmt.Sprintf("%s by %s, %v", resource, cfg.keyPointer(), cfg.ItemMapping)
		all = append(all, rivals{name, cfg.CursorField, scanner, newOracle(cfg, presets[resource]), 0})
	}
	for _, key := range []string{"", "none", "/payload", "/payload/type", "/eventId", "/payload/a~1b/m~0n", "/tags/1",
		"/tags/1/b", "/context/metadata", "/", "/payload/", "/\ufffdx"} {
		add("events", key)
	}
	add("sessions", "")
	add("sessions", "/window/end")
	add("users", "")
	for _, format := range []string{"s", "us", "rfc3339", "rfc3339-utc", "none"} {
		fields.ItemTimeFormat = format
		add("events", "")
	}
	fields.ItemMapping = ItemMapping{
		ItemID: []string{"/payload/type", "/x", "/eventId"}, ItemTime: []string{"/x", "/payload", "/timestamp"},
		ItemTimeFormat: "rfc3339",
		ItemType:       []string{"/tags/1", "/eventId"}, ItemSubject: []string{"/x", "/payload/type"},
	}
	add("users", "")
	fields.ItemMapping = ItemMapping{ItemID: []string{"none"}, ItemTime: []string{"none"}, ItemType: []string{"none"},
		ItemSubject: []string{"none"}}
	add("events", "none")
	fields.ItemMapping = ItemMapping{ItemTime: []string{"/closeTime", "/timestamp", "none"}}
	add("events", "none")
	fields = Config{ItemsField: "\ufffdx", CursorField: "items"}
	add("events", "")
	return all
}

// compare decodes the body with both and compares the results. It reports whether the body
// is a page.
func (r *rivals) compare(body []byte) (isPage bool, err error) {
	before := bytes.Clone(body)
	errScanner, errOracle := r.scanner.decode(body, nil), r.oracle.decode(body, nil)
	if !bytes.Equal(body, before) {
		return false, errors.New("the body has changed")
	}
	if got, want := outcome(errScanner), outcome(errOracle); got != want {
		return false, fmt.Errorf("the scanner says %s (%w), the oracle %s (%w)", got, errScanner, want, errOracle)
	}
	if errScanner != nil {
		return false, nil
	}
	if got, want := r.scanner.cursor.text, r.oracle.cursor; !bytes.Equal(got, want) {
		return true, fmt.Errorf("the scanner reads cursor %q, the oracle %q", got, want)
	}
	if end, ok := scan.TailCursor(body, r.field, nil); ok && !bytes.Equal(end, r.oracle.cursor) {
		return true, fmt.Errorf("the end names cursor %q, the oracle %q", end, r.oracle.cursor)
	}
	if got, want := r.scanner.identity.identity(), r.oracle.identity; got != want {
		return true, fmt.Errorf("the scanner reads identity %v, the oracle %v", got, want)
	}
	if got, want := r.scanner.listed, r.oracle.listed; got != want {
		return true, fmt.Errorf("the scanner finds items: %t, the oracle %t", got, want)
	}
	if got, want := len(r.scanner.events), len(r.oracle.events); got != want {
		return true, fmt.Errorf("the scanner reads %d events, the oracle %d", got, want)
	}
	for i := range r.oracle.events {
		if err := sameEvent(&r.scanner.events[i], &r.oracle.events[i]); err != nil {
			return true, fmt.Errorf("event %d: %w", i, err)
		}
		if r.oracle.events[i].Defect == bridge.DefectBadText {
			r.bad++
		}
	}
	return true, nil
}

// outcome returns the kind of an error, as callers distinguish it.
func outcome(err error) string {
	switch {
	case err == nil:
		return "a page"
	case errors.Is(err, errNoPage):
		return "no page"
	case errors.Is(err, errCutShort):
		return "cut short"
	case errors.Is(err, errTooMany):
		return "too many items"
	}
	return "something else"
}

// sameEvent returns an error unless both events have the same fields, and items at the same
// place.
func sameEvent(got, want *bridge.Event) error {
	if len(got.Raw) == 0 || len(want.Raw) == 0 || &got.Raw[0] != &want.Raw[0] {
		return errors.New("its bytes are not in the body")
	}
	for _, field := range []struct {
		name      string
		got, want []byte
	}{
		{"raw", got.Raw, want.Raw},
		{"id", got.ID, want.ID},
		{"key", got.Key, want.Key},
		{"type", got.Type, want.Type},
		{"subject", got.Subject, want.Subject},
	} {
		if !bytes.Equal(field.got, field.want) || (field.got == nil) != (field.want == nil) {
			return fmt.Errorf("the scanner reads %s %q (nil: %t), the oracle %q (nil: %t)", field.name, field.got,
				field.got == nil, field.want, field.want == nil)
		}
		if len(field.got) != cap(field.got) {
			return fmt.Errorf("%s of %d bytes can grow to %d", field.name, len(field.got), cap(field.got))
		}
	}
	if got.Time != want.Time || got.Defect != want.Defect || got.Index != want.Index ||
		got.Republished != want.Republished {
		return fmt.Errorf("the scanner reads %d %q %d %t, the oracle %d %q %d %t", got.Time, got.Defect, got.Index,
			got.Republished, want.Time, want.Defect, want.Index, want.Republished)
	}
	return nil
}

// seedPages returns the pages that the other tests of this package decode, those of the
// simulator, and pages that are hard for a scanner.
func seedPages(t testing.TB) (seeds [][]byte) {
	t.Helper()
	for _, text := range append(literals(t, "page_test.go"), decodeSeeds...) {
		if len(text) > 1000 {
			continue
		}
		seeds = append(seeds, []byte(text))
		if strings.ContainsAny(text, `{["`) {
			seeds = append(seeds,
				[]byte(`{"items":[`+text+`,`+text+`],"nextCursor":"c"}`),
				[]byte(`{"nextCursor":null,"metadata":`+text+`,"items":[]}`))
		}
	}
	for _, schema := range []exportsim.Schema{exportsim.Schema08, exportsim.Schema07, exportsim.Schema05} {
		for _, path := range []string{"/events", "/session", "/user"} {
			seeds = append(seeds, simulatorPage(t, schema, path, 1), simulatorPage(t, schema, path, 3))
		}
	}
	seeds = append(seeds, []byte(`{"\ud800x":1,"items":"c","\ufffdx":[{"timestamp":1}]}`),
		[]byte(`{"items":"c","\ud800x":[]}`))
	for _, item := range hardItems {
		seeds = append(seeds, []byte(`{"items":[{"userId":"before","timestamp":1},`+item+`]}`))
	}
	for _, value := range hardValues {
		seeds = append(seeds,
			[]byte(`{"items":[{"userId":`+value+`,"timestamp":`+value+`,"payload":{"type":`+value+`},"x":`+value+
				`}],"nextCursor":`+value+`}`),
			[]byte(" {\t\"metadata\" : {\"organization\":{\"slug\":"+value+"}, \"workspace\" : "+value+" },\n\"items\" :\r[ "+
				value+" , {\"payload\":"+value+" } ] } "))
	}
	return seeds
}

// hardValues are just inside or just outside of what JSON allows.
var hardValues = []string{
	`0`, `-0`, `-`, `01`, `1.`, `.1`, `1.0`, `1e`, `1e+`, `1E-9`, `1e400`, `+1`, `--1`, `- 1`, `1x`,
	`9223372036854775807`, `-9223372036854775808`, `9223372036854775808`, `999999999999999999`, `-999999999999999999`,
	`1234567890123456789`,
	`1512085950.000216`, `-1512085950.0009`, `"1512085950.000216"`, `"1512085950123"`, `1512085950123456`, `"-1"`, `" 1"`,
	`"1 "`, `"1."`, `"1e3"`, `253402300799999.9`, `"253402300800000"`,
	`"2026-11-22T10:57:00.1239999-03:00"`, `"2026-11-22t10:57:00z"`, `"2026-11-22 10:57:00\u002b0530"`,
	`"2016-12-31T23:59:60Z"`, `"2026-02-29T00:00:00Z"`, `"0000-01-01T00:00:00Z"`, `"9999-12-31T23:59:59-00:01"`,
	`"2026-11-22T10:57:00"`,
	`true`, `truE`, `tru`, `false`, `fals`, `null`, `nul`, `nulll`, `NaN`, `Infinity`, `-Infinity`, `+inf`, `-nan`,
	`nanx`, `Na`, `-I`, `{NaN:1}`, `{"a":NaN}`, `[NaN,{"b":-inf}]`,
	`""`, `"`, `"\"`, `"\\"`, `"\\\"`, `"\u`, `"\u12`, `"\u123"`, `"\u00e3"`, `"\u00E3"`, `"\u00g0"`, `"\ud83d\ude00"`,
	`"\ud83d"`, `"\ude00\ud83d"`, `"\ud83d\ud83d\ude00"`, `"\ud83d\u0041"`, `"\ud83dx"`, `"\ud83d\n"`, `"\x"`, `"\'"`,
	`"\b\f\n\r\t\/"`,
	"\"\x1f\"", "\"\x7f\"", "\"\t\"", "\"\xc3\xa3\"", "\"\xc3\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xef\xbf\xbd\"",
	"\"\xf4\x90\x80\x80\"", "\"\xf0\x9f\x98\x80\"", "\"\xff\"", "\"\xe2\x82\"", "\"a\xcc\"", "\xa0",
	`"1234567"`, `"12345678"`, `"123456789"`, `"1234567\n"`, `"12345678\n"`, "\"1234567\x01\"", "\"1234567ã\"",
	"\"12345678ã\"",
	`{}`, `[]`, `{`, `[`, `}`, `]`, `[]]`, `{]`, `[}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `[,]`, `[1,]`, `[1 2]`,
	`{"a":1 "b":2}`, `{"a" "b"}`, `{1:2}`, `{[1`, `{{`, `{"a":{"b":[{"c":[]}]}}`, `[[[[]]],{},[{"a":[]}]]`,
	`[1,[2,[3,{"a":4}],5],6]`, `{"a":1:2}`, `[1:2]`, `:`, `,`,
	`{"type":"a","type":null,"@type":"b"}`, `{"\u0074ype":"a"}`, `{"\ud800":1}`, `{"a\/b":{"m~n":"k"}}`, `{"":"k"}`,
	`[0,{"b":"k"},2]`, `["a","b"]`, `{"slug":"a","slug":{"slug":"b"}}`,
}

// hardItems have members with names that are almost those that are read, or that are equal
// once decoded.
var hardItems = []string{
	`{"":"k","payload":{"":"p"},"timestamp":1}`,
	`{"userIx":"a","userid":"b","timestamx":1,"payloax":{"type":"c"},"payload":{"typx":"d","@typx":"e"},` +
		`"eventIx":"f","ix":"g"}`,
	`{"u":"a","userI":"b","userIdd":"c","\u0075serId":"d","timestamp":1}`,
	`{"userId\u0000":"a","userId\ud800":"b","user\\Id":"c"}`,
	`{"\ud800x":"k","\ud83d\ude00":"l"}`, `{"\ufffdx":"k"}`, "{\"\ufffdx\":\"k\"}",
	`{"tags":{"1":"k"}}`, `{"tags":[["a","b"],["c",{"b":"d"}]]}`, `{"tags":{"1":{"b":"k"}}}`,
	`{"userId":"a","userId":{"userId":"b"},"timestamp":1,"timestamp":[2]}`,
	`{"payload":{"type":"a"},"payload":"b"}`, `{"payload":{"type":{"type":"a"}},"payload":{"@type":"b"}}`,
}

// literals returns the string literals of a Go file. Literals that are added to each other
// are one.
func literals(t testing.TB, file string) (texts []string) {
	t.Helper()
	parsed := must.Get(parser.ParseFile(token.NewFileSet(), file, nil, 0))(t)
	var fold func(ast.Node) (string, bool)
	fold = func(n ast.Node) (string, bool) {
		switch n := n.(type) {
		case *ast.BasicLit:
			text, err := strconv.Unquote(n.Value)
			return text, err == nil && n.Kind == token.STRING
		case *ast.BinaryExpr:
			x, okX := fold(n.X)
			y, okY := fold(n.Y)
			return x + y, okX && okY
		}
		return "", false
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		text, ok := fold(n)
		if ok {
			texts = append(texts, text)
		}
		return !ok
	})
	return texts
}

// mutator makes pages that are almost valid.
type mutator struct {
	*rand.Rand
	seeds [][]byte
	pages [][]byte // the valid pages among the seeds
	body  []byte
}

// What a mutator puts in: behind an opening brace, into a string, where white
// space may be, and anywhere.
var (
	members = []string{
		`"items":[],`, `"items":`, `"nextCursor":"x",`, `"next\u0043ursor":null,`, `"metadata":{},`, `"userId":"a",`,
		`"user\u0049d":null,`, `"timestamp":2,`, `"closeTime":3,`,
		`"payload":{"type":""},`, `"payload":[],`, `"payload":{"a/b":{"m~n":1}},`, `"tags":["a","b"],`,
		`"tags":[0,{"b":true}],`, `"organization":{"name":"a"},`, `"sl\u0075g":"b",`, `"":"",`, `"x":"y",`, `"userIx":"z",`,
		`"\ud800x":"k",`, `"id":7,`, `"eventId":"\ud800",`,
	}
	texts = []string{
		`a`, `12345678`, `\"`, `\\`, `\/`, `\u0041`, `\ud83d`, `\ude00`, `\ud83d\ude00`, `\u12`, `\x`, `é`, `日本`,
		"\U0001F600", "\xc3", "\xa9", "\xe2\x82", "\xf0\x9f\x98", "\xed\xa0\x80", "\x00", "\x1f", "\x7f", "\ufeff",
	}
	spaces = []string{" ", "\n", "\r\n\t ", "\u00a0", "\v", "\x00"}
	pieces = slices.Concat(members, texts, spaces, hardValues, []string{`,`, `:`, `{"a":`, `]}]`, `,{}`, `,"items":[]`})
)

// next makes another page. It is valid until the next call.
func (m *mutator) next() []byte {
	from := m.pages
	if m.IntN(4) == 0 {
		from = m.seeds
	}
	m.body = append(m.body[:0], from[m.IntN(len(from))]...)
	for range 1 + m.IntN(3) {
		m.mutate()
	}
	return m.body
}

// mutate changes one thing. Every other change is one that can keep a page valid.
func (m *mutator) mutate() {
	at := m.IntN(len(m.body) + 1)
	end := min(len(m.body), at+1+m.IntN(1+m.IntN(20)))
	switch m.IntN(20) {
	case 0:
		m.body = m.body[:at]
	case 1: // one bit
		if at < len(m.body) {
			m.body[at] ^= byte(1 << m.IntN(8))
		}
	case 2: // one byte
		if at < len(m.body) {
			m.body[at] = byte(m.IntN(256))
		}
	case 3, 4:
		m.body = slices.Delete(m.body, at, end)
	case 5, 6:
		m.body = slices.Insert(m.body, at, bytes.Clone(m.body[at:end])...)
	case 7: // a part of another page
		other := m.seeds[m.IntN(len(m.seeds))]
		from := m.IntN(len(other) + 1)
		to := min(len(other), from+m.IntN(100))
		m.body = slices.Insert(m.body, at, other[from:to]...)
	case 8, 9:
		m.body = slices.Insert(m.body, at, m.piece(pieces)...)
	case 10, 11:
		m.insertBehind(at, "{", m.piece(members))
	case 12, 13:
		m.insertBehind(at, `"`, m.piece(texts))
	case 14:
		m.insertBehind(at, "{}[],:", m.piece(spaces))
	case 15, 16:
		m.replaceValue(at, []byte(nested(m.Rand)))
	default:
		m.replaceValue(at, m.piece(hardValues))
	}
}

func (m *mutator) piece(from []string) []byte { return []byte(from[m.IntN(len(from))]) }

// insertBehind inserts the piece after the next one of the characters.
func (m *mutator) insertBehind(at int, chars string, piece []byte) {
	if i := bytes.IndexAny(m.body[at:], chars); i >= 0 {
		m.body = slices.Insert(m.body, at+i+1, piece...)
	}
}

// replaceValue replaces the next value by the piece. It guesses where a value begins and
// ends.
func (m *mutator) replaceValue(at int, piece []byte) {
	start := bytes.IndexAny(m.body[at:], ":[,")
	if start < 0 {
		return
	}
	start += at + 1
	size := max(bytes.IndexAny(m.body[start:], ",]}"), 0)
	m.body = slices.Replace(m.body, start, start+size, piece...)
}

// nested returns nested objects and arrays, usually few, rarely too many.
func nested(random *rand.Rand) string {
	depth := random.IntN(8)
	switch random.IntN(100) {
	case 0:
		depth = scan.MaxDepth - 8 + random.IntN(16)
	case 1, 2, 3, 4:
		depth = 56 + random.IntN(80)
	}
	var b, closers []byte
	for range depth {
		if random.IntN(2) == 0 {
			b, closers = append(b, `{"a":`...), append(closers, '}')
		} else {
			b, closers = append(b, '['), append(closers, ']')
		}
	}
	if random.IntN(4) > 0 {
		b = append(b, '1')
	}
	slices.Reverse(closers)
	return string(append(b, closers...))
}

// TestMutationsAgainstOracle compares the scanner with the oracle on mutated pages:
// DECODE_MUTATIONS of them (default 100 000), from DECODE_SEED.
func TestMutationsAgainstOracle(t *testing.T) {
	t.Parallel()
	count, seed := must.Number(t, "DECODE_MUTATIONS", 100_000), must.Number(t, "DECODE_SEED", 1)
	m := mutator{Rand: rand.New(rand.NewPCG(uint64(seed), 5)), seeds: seedPages(t)}
	all := newRivals(t)
	try := func(r *rivals, body []byte) bool {
		isPage, err := r.compare(body)
		if err != nil {
			t.Fatalf("%s: %v\nbody %q", r.name, err, body)
		}
		return isPage
	}
	for _, body := range m.seeds {
		for i := range all {
			if try(&all[i], body) && i == 0 {
				m.pages = append(m.pages, body)
			}
		}
		for end := range min(len(body), 300) {
			try(&all[0], body[:end])
		}
	}
	pages := 0
	for range count {
		if try(&all[m.IntN(len(all))], m.next()) {
			pages++
		}
	}
	if pages < count/10 {
		t.Errorf("only %d of %d are pages: the mutations are too coarse to find anything", pages, count)
	}
	bad := 0
	for i := range all {
		bad += all[i].bad
	}
	if bad < count/200 {
		t.Errorf("only %d items with bad text", bad)
	}
	t.Logf("%d mutated bodies, of which %d are pages: no difference", count, pages)
}

// FuzzAgainstOracle is TestMutationsAgainstOracle, guided by coverage.
func FuzzAgainstOracle(f *testing.F) {
	for _, seed := range seedPages(f) {
		f.Add(seed)
	}
	all := newRivals(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		for i := range all {
			if _, err := all[i].compare(body); err != nil {
				t.Fatalf("%s: %v", all[i].name, err)
			}
		}
	})
}
