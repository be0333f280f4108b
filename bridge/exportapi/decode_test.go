package exportapi

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/internal/linklocal"
	"exportbridge/bridge/exportapi/internal/scan"
	"exportbridge/bridge/internal/secrets"
)

func testDecoder(resource, key string) *pageDecoder {
	cfg := Config{Resource: resource, ItemsField: "items", CursorField: "nextCursor", KeyPointer: key}
	return newPageDecoder(cfg.mapping())
}

// decodeSeeds are pages whose parts are easily taken for others, see seedPages.
var decodeSeeds = []string{
	`{"items":[],"nextCursor":null}`,
	`{"items":[{"eventId":"e","userId":"u","timestamp":1,"payload":{"type":"t"}},{"id":"\u0041","timestamp":"1"},null,` +
		`[1],"x"],"metadata":{"organization":{"slug":"a"}},"nextCursor":"a\u003d\\\""}`,
	`{"next\u0043ursor":"x","items":[{"userId":"\ud800","user\u0049d":null,"timestamp":1e400}],"nextCursor":"y"}`,
	"\ufeff{\"items\":[]} {\"nextCursor\":\"\xff\"}",
	`{"items":[{"nextCursor":"decoy"}],"x":"\",\"nextCursor\":\"y\"}"}`,
	`{"items":[{"timestamp":9223372036854775808,"payload":{"@type":1},"payload":[]}],"nextCursor":"\ud83d\ude00"}`,
}

// somePage returns a page of n items of about size bytes each.
func somePage(n, size int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"items":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		item := fmt.Sprintf(`{"eventId":"0190f5d0-7b3c-7e4a-9a53-%012d","userId":"user-%05d",`+
			`"sessionId":"5f0c6b1e-7f3f-4d0e-8a59-%012d","timestamp":%d,"systemTimestamp":%d,"context":null,`+
			`"payload":{"type":"productViewed","tags":[`, i, i%997, i, 1760000000000+i, 1760000000100+i)
		b.WriteString(item)
		for filled := len(item); filled < size-20; filled += 43 {
			if filled > len(item) {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"name":"item %09d","price":1%04d.5}`, filled, filled)
		}
		b.WriteString(`]}}`)
	}
	b.WriteString(`],"metadata":{"organization":{"name":"Acme","slug":"acme"},"workspace":{"slug":"main"},` +
		`"application":{"slug":"web"}},"nextCursor":"eyJ0IjoxNzYwMDAwMDAwMDAwfQ=="}`)
	return b.Bytes()
}

// Decoding allocates nothing once the events have their memory.
func TestDecodeAllocatesNothing(t *testing.T) {
	cfg := DefaultConfig()
	var pages pageReader
	pages.init(&cfg, nil, nil, new(Shared).decodersOf(cfg.mapping()).V)
	p := &bridge.Page{Body: somePage(1000, 1000)}
	cursor, _ := scan.TailCursor(p.Body, "nextCursor", nil)
	p.Next = string(cursor)
	// AllocsPerRun decodes once before it counts.
	allocs := testing.AllocsPerRun(20, func() {
		if fault := pages.decode(p); fault != nil {
			t.Fatal(fault)
		}
		if p.Source.Organization != "acme" || len(p.Events) != 1000 {
			t.Fatal("another page")
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations a page of 1000 items, want 0", allocs)
	}
}

func BenchmarkTailCursor(b *testing.B) {
	body := somePage(1000, 1000)
	scratch := make([]byte, 0, 100)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := scan.TailCursor(body, "nextCursor", scratch); !ok {
			b.Fatal("not found")
		}
	}
}

func TestLinkLocalIsRefusedAtDial(t *testing.T) {
	t.Parallel()
	for address, refused := range map[string]bool{
		"169.254.169.254:80": true, "[fe80::1%eth0]:80": true, "[::ffff:169.254.0.1]:443": true, "127.0.0.1:80": false,
		"10.0.0.1:80": false, "[::1]:80": false,
		"100.100.100.200:80": true, "168.63.129.16:80": true, "192.0.0.192:80": true, "[fd00:ec2::254]:80": true,
		"[fd00:ec2::23]:80": true,
		"[fd20:ce::254]:80": true, "[fd00:c1::a9fe:a9fe]:80": true, "[fd00:42::42]:80": true,
		"[::ffff:168.63.129.16]:443": true,
		"[64:ff9b::a9fe:a9fe]:80":    true, "100.100.100.201:80": false, "168.63.129.17:80": false,
		"[fd00:ec3::254]:80":  false,
		"[64:ff9b::a00:1]:80": false,
	} {
		if err := linklocal.Refuse("tcp", address, nil); (err != nil) != refused {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, cfg := range []*Config{{Timeout: time.Minute}, {Timeout: time.Minute, InsecureHTTP: true}} {
		transport := new(Shared).connections.Use(connections(cfg))
		// The check comes before the connection: nothing is sent.
		if _, err := transport.DialContext(t.Context(), "tcp", "169.254.169.254:80"); !errors.Is(err, linklocal.ErrAddress) {
			t.Errorf("plain HTTP %v: the transport dials with %v", cfg.InsecureHTTP, err)
		}
	}
	e := &faults{auth: &credentials{cfg: &Config{}, secret: "k3y"}, withheld: func() []secrets.Secret { return nil }}
	f := e.connection(bridge.Position{}, fmt.Errorf("dial: %w", linklocal.ErrAddress), "")
	if f.Class != bridge.Permanent || f.Reason != bridge.ReasonConfig ||
		!strings.Contains(f.Hint, "EXPORT_ALLOW_LINK_LOCAL") {
		t.Errorf("got %+v", f)
	}
}

// A cursor that does not decode exactly is not used before the parser has refused its page.
func TestTailCursorIsExact(t *testing.T) {
	t.Parallel()
	for _, cursor := range []string{`a\ud800`, `\udc00`, "a\xff", "a\x01", `\x41`, `\u12`} {
		if found, ok := scan.TailCursor([]byte(`{"items":[],"nextCursor":"`+cursor+`"}`), "nextCursor", nil); ok {
			t.Errorf("%q: found %q", cursor, found)
		}
	}
}

// A page is refused if its end names another cursor than the whole page does.
func TestDecodeDisagrees(t *testing.T) {
	t.Parallel()
	c := must.Get(New(Config{
		Auth: Auth{APIKey: "k3y", Scheme: authKey, KeyHeader: "K"},
		URL:  "http://127.0.0.1:1", Resource: "events", PageSize: 1, Timeout: 1, MaxResponse: 1,
		ItemsField: "items", CursorField: "nextCursor", CursorParam: "cursor", PageSizeParam: "pageSize",
		RequestMapping: DefaultConfig().RequestMapping,
	}))(t)
	defer c.Close()
	p := &bridge.Page{Next: "a", Body: []byte(`{"items":[{"timestamp":1}],"nextCursor":"b"}`)}
	f, ok := errors.AsType[*bridge.Fault](c.Decode(p))
	if !ok || f.Reason != bridge.ReasonSchema || len(p.Events) != 0 || p.Items != 0 {
		t.Errorf("got %+v with %d events, want a schema fault and none", f, len(p.Events))
	}
}

// Between two pages, which may take hours, a decoder must not refer to the last one.
func TestDecoderKeepsNoBody(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	var pages pageReader
	pages.init(&cfg, nil, nil, new(Shared).decodersOf(cfg.mapping()).V)
	p := &bridge.Page{Next: "c", Body: []byte(`{"items":[{"eventId":"a","timestamp":1}],"metadata":{"workspace":"w"},` +
		`"nextCursor":"c"}`)}
	if fault := pages.decode(p); fault != nil || len(p.Events) != 1 {
		t.Fatalf("%v, %d events", fault, len(p.Events))
	}
	d := pages.decoders.borrow()
	for _, v := range slices.Concat(d.item.Values, d.identity.Values, []scan.Value{d.cursor.found}) {
		if v.Raw != nil {
			t.Errorf("keeps %q", v.Raw)
		}
	}
	if d.cursor.text != nil || d.events != nil || d.scan.Body != nil || d.identity.last.Workspace != "w" {
		t.Errorf("keeps %q, %v, %q, or is another decoder", d.cursor.text, d.events, d.scan.Body)
	}
}
