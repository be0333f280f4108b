package exportapi

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// writer writes items at random. They have what rules name, at its place and elsewhere, twice
// and with escapes, and values about as long as those that a second pass skips.
type writer struct {
	*rand.Rand
	bytes.Buffer
	strict bool // all bytes are text
}

func (w *writer) one(of ...string) string { return of[w.IntN(len(of))] }

func (w *writer) space() { w.WriteString(w.one("", "", "", " ", "\n")) }

func (w *writer) item(n int) {
	switch kind := w.IntN(40); {
	case kind == 0:
		w.value(2)
	case kind == 1 && !w.strict:
		w.WriteString(`{"userId":"u","x":["` + "\xff" + strings.Repeat("x", 70) + `"]}`)
	default:
		w.WriteString(`{"eventId":"` + strconv.Itoa(n) + `","timestamp":1,`)
		w.members(4)
	}
}

// members writes the members of an object and its end.
func (w *writer) members(depth int) {
	for n := w.IntN(6); n >= 0; n-- {
		w.space()
		w.WriteString(`"` + w.one("userId", "context", "url", "payload", "type", "a", "b", "d", "e", "0", "x", "y",
			"sessionId", `\u0061`, `\u0061\u0062`, strings.Repeat("n", 64)) + w.one("", "", "", "1", "2", "3") + `"`)
		w.space()
		w.WriteByte(':')
		w.list(depth, n)
	}
	w.WriteByte('}')
}

// list writes a value, and a comma unless it is the last.
func (w *writer) list(depth, left int) {
	w.space()
	w.value(depth)
	if w.space(); left > 0 {
		w.WriteByte(',')
	}
}

func (w *writer) value(depth int) {
	length := 42 + w.IntN(10)
	kind := w.IntN(8)
	if depth == 0 {
		kind = 3 + w.IntN(5)
	}
	switch kind {
	case 0, 1:
		w.WriteByte('{')
		w.members(depth - 1)
	case 2:
		w.WriteByte('[')
		for n := w.IntN(3); n >= 0; n-- {
			w.list(depth-1, n)
		}
		w.WriteByte(']')
	case 3:
		w.WriteString(`"` + strings.Repeat(w.one("p", "é", `\n`, `\"`), length) + `"`)
	case 4:
		w.WriteString(`"` + w.one("", "q", `\u00e9`, `\ud83d`) + `"`)
	case 5:
		w.WriteString("1" + strings.Repeat("0", length))
	default:
		w.WriteString(w.one("null", "true", "7", "{}", "[]", "[ ]"))
	}
}

// FuzzPrivatePages compares what the rules leave of pages with what they leave of each item that
// nobody has read before.
func FuzzPrivatePages(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	var clients []*Client
	for _, change := range []func(*Config){
		func(*Config) {},
		func(c *Config) { c.ItemsField, c.MetadataField = "/page/items", "page" },
		func(c *Config) { c.CursorIn, c.CursorField = inLastItem, "/eventId" },
		func(c *Config) { c.ItemsField, c.CursorIn = rootField, inLink },
		func(c *Config) {
			c.ItemType, c.ItemSubject = []string{"/d/0/e/x", "/a"}, []string{"/context/x/y", "/x"}
		},
	} {
		clients = append(clients, ruledClient(f, change, func(c *Config) {
			c.Private.Drop = append(c.Private.Drop, "/a/b", "/payload/x/y")
			c.Private.Hash = append(c.Private.Hash, "/d/*/e/a", "/b/*")
			c.Private.Mask = append(c.Private.Mask, "/payload/x/a/b:last4", "/y/0")
		}))
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		c := clients[seed%uint64(len(clients))]
		w := &writer{Rand: rand.New(rand.NewPCG(seed, 0)), strict: c.cfg.metadata() == "page"} //nolint:gosec // repeatable
		around := pageAround(c.cfg.ItemsField, []byte("!"))
		at := bytes.IndexByte(around, '!')
		w.Write(around[:at])
		for n := range 30 {
			if w.item(n); n < 29 {
				w.WriteByte(',')
			}
		}
		w.Write(around[at+1:])
		p := c.pageOf(w.Bytes())
		if err := c.decode(p); err != nil {
			t.Fatalf("%s: %v", w.Bytes(), err)
		}
		received := make([]bridge.Event, len(p.Events))
		for i := range p.Events {
			received[i] = p.Events[i]
			received[i].Raw = bytes.Clone(p.Events[i].Raw)
		}
		must.Do(t, c.private.hide(p, c.decoders.V))
		applied := 0
		for i := range p.Events {
			got, was := &p.Events[i], &received[i]
			var want []byte
			if ruled(was) {
				out, err := c.private.Apply(nil, was.Raw)
				if want = out; err == nil {
					applied++
				}
			}
			if !bytes.Equal(got.Raw, want) || (got.Raw == nil) != (want == nil) {
				t.Fatalf("%s\nbecame %s\nwant %s", was.Raw, got.Raw, want)
			}
		}
		if len(p.Events) != 30 || applied == 0 {
			t.Errorf("%d items, rules were applied to %d", len(p.Events), applied)
		}
		p.Release()
	})
}
