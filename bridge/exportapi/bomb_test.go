package exportapi_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi"
)

// mostItems is the item limit of a page, which the hint names.
const mostItems = 10_000

// pageOf returns a page with n equal items.
func pageOf(n int, item string) string {
	return `{"items":[` + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + `],"nextCursor":"c2"}`
}

// bomb is an API whose page has very many items but compresses to very few bytes.
func bomb(t testing.TB, body string) http.HandlerFunc {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte(body))
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed.Bytes())
	}
}

// A page with too many items is refused. Wherever it is split, it takes no more memory than
// its body.
func TestItemBomb(t *testing.T) {
	const items = 4 << 20
	array := "[" + strings.TrimSuffix(strings.Repeat("0,", items), ",") + "]"
	for name, body := range map[string]string{
		"root":                 array,
		"nested":               `{"a":{"b":` + array + `,"next":"c2"}}`,
		"last item":            `{"items":` + array[:len(array)-1] + `,{"id":"a"}]}`,
		"more":                 `{"more":true,"nextCursor":"a","items":` + array + `}`,
		"root, header":         array,
		"cursor alone":         pageOf(items, "{}"),
		"mapped items":         pageOf(items/4, `{"t":1}`),
		"items without times":  pageOf(items, "{}"),
		"window":               pageOf(items, "{}"),
		"numbers":              pageOf(items, "0"),
		"objects":              pageOf(items, "{}"),
		"cursor in the middle": strings.Replace(pageOf(items, "0"), `"c2"`, `"c2","x":1`, 1),
		"cursor first":         `{"nextCursor":"c2",` + strings.Replace(pageOf(items, "0"), `,"nextCursor":"c2"`, "", 1)[1:],
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, bomb(t, body), map[string]map[string]string{
				"root":      {"EXPORT_ITEMS_FIELD": "root", "EXPORT_CURSOR_IN": "link"},
				"nested":    {"EXPORT_ITEMS_FIELD": "/a/b", "EXPORT_CURSOR_FIELD": "/a/next"},
				"last item": {"EXPORT_CURSOR_IN": "last-item", "EXPORT_CURSOR_FIELD": "/id"},
				"more":      {"EXPORT_MORE_FIELD": "more", "EXPORT_CURSOR_IN": "next-url"},

				"root, header": {"EXPORT_ITEMS_FIELD": "root", "EXPORT_CURSOR_IN": "header",
					"EXPORT_CURSOR_FIELD": "X-Next"},
				"cursor alone": {"EXPORT_METHOD": "POST", "EXPORT_CURSOR_ALONE": "true", "EXPORT_METADATA_FIELD": "none"},
				"mapped items": {"EXPORT_ITEM_TIME": "/x,/t", "EXPORT_ITEM_TIME_FORMAT": "s",
					"EXPORT_ITEM_ID": "/a/b,/c,/t", "EXPORT_MAX_PAGE_SIZE": "10000"},
				"items without times": {"EXPORT_ITEM_TIME": "/x,none", "EXPORT_ITEM_ID": "none"},
				"window":              {"EXPORT_END_INCLUSIVE": "true"},
			}[name])
			at := map[string]bridge.Position{"window": {Start: 1, End: 2, Window: true}, "cursor alone": {Cursor: "c"}}[name]
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := fetchAll(t, c, at)
			runtime.ReadMemStats(&after)
			f := wantFault(t, err)
			if f.Reason != bridge.ReasonSize || f.Class != bridge.Permanent ||
				!strings.Contains(f.Error(), "10000 items") || !strings.Contains(f.Hint, "EXPORT_PAGE_SIZE") {
				t.Errorf("got class %v, reason %q, %q, hint %q", f.Class, f.Reason, f.Error(), f.Hint)
			}
			// The body grows by half each time, which takes three times its
			// size in all; events for 10,000 items about 8 MB.
			if took, most := after.TotalAlloc-before.TotalAlloc, 4*uint64(len(body))+16<<20; took > most {
				t.Errorf("%d bytes were allocated for a body of %d, want at most %d", took, len(body), most)
			}
		})
	}
}

// What the decoder notes of a page for rules takes no more memory than the page.
func TestNotesBomb(t *testing.T) {
	for members, times := range map[string]uint64{
		`,"a":{}`: 2, `,"a":0,"x":0`: 2, // short runs have no notes
		`,"a":0,"x":"` + strings.Repeat("x", 42) + `"`: 3, // most of it is freed while the notes grow
	} {
		body := `{"items":[{"a":0` + strings.Repeat(members, 28<<20/len(members)) + `}],"nextCursor":"c"}`
		c := serve(t, bomb(t, body), withKeys(map[string]string{"EVENT_DROP": "/a/b"}))
		p := must.Get(c.Fetch(t.Context(), bridge.Position{}))(t)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		must.Do(t, c.Decode(p))
		runtime.ReadMemStats(&after)
		took, most := after.TotalAlloc-before.TotalAlloc, times*uint64(len(body))+1<<20
		if took > most {
			t.Errorf("%.20s: %d bytes were allocated for a body of %d, want at most %d", members, took, len(body), most)
		}
		p.Release()
	}
}

// The diagnosis of an item takes little memory, however many members the item has.
func TestSampleBomb(t *testing.T) {
	body := `{"items":[{"x":{` + strings.TrimSuffix(strings.Repeat(`"":0,`, 1<<20), ",") + `}},{"y":[` +
		strings.Repeat("[],", 4<<20) + `[]]}]}`
	c := exportapi.Inspector{Client: serve(t, bomb(t, body), nil)}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	sample, err := c.Sample(t.Context(), bridge.Position{}, 10)
	items := sample.Items
	runtime.ReadMemStats(&after)
	if err != nil || len(items) != 2 || items[0].Why != "it has no plausible time at /timestamp" ||
		!strings.Contains(items[1].Remedy, "EXPORT_ITEM_TIME") {
		t.Errorf("%+v, %v", items, err)
	}
	if took, most := after.TotalAlloc-before.TotalAlloc, 4*uint64(len(body))+16<<20; took > most {
		t.Errorf("%d bytes were allocated for a body of %d, want at most %d", took, len(body), most)
	}
}

// The largest page is accepted, and so is a page with more items than requested.
func TestMostItems(t *testing.T) {
	t.Parallel()
	for name, vars := range map[string]map[string]string{
		"items":     nil,
		"root":      {"EXPORT_ITEMS_FIELD": "root", "EXPORT_CURSOR_IN": "link"},
		"nested":    {"EXPORT_ITEMS_FIELD": "/a/items"},
		"mapped":    {"EXPORT_ITEM_TIME": "/x,/timestamp,none", "EXPORT_MORE_FIELD": "more"},
		"last item": {"EXPORT_CURSOR_IN": "last-item", "EXPORT_CURSOR_FIELD": "/timestamp"},
	} {
		for n, ok := range map[int]bool{1001: true, mostItems: true, mostItems + 1: false} {
			array := "[" + strings.TrimSuffix(strings.Repeat(`{"timestamp":1},`, n), ",") + "]"
			body := map[string]string{"root": array, "nested": `{"a":{"items":` + array + `}}`, "mapped": `{"items":` + array +
				`,"more":false}`}[name]
			p, err := fetchAll(t, serve(t, answer(cmp.Or(body, `{"items":`+array+`,"nextCursor":"c2"}`)), vars),
				bridge.Position{})
			switch {
			case (err == nil) != ok:
				t.Errorf("%s: %d items: %v", name, n, err)
			case ok && (p.Items != n || len(p.Events) != n):
				t.Errorf("%s: %d items became %d, %d events", name, n, p.Items, len(p.Events))
			}
		}
	}
}

// The pages after a giant page do not keep its memory.
func TestGiantPageIsForgotten(t *testing.T) {
	body := pageOf(mostItems, `{"timestamp":1}`)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { answer(body)(w, r) }, nil)
	round := func(pages int) {
		t.Helper()
		var all []*bridge.Page
		for range pages {
			p, err := c.Fetch(t.Context(), bridge.Position{})
			if err == nil {
				err = c.Decode(p)
			}
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, p)
		}
		for _, p := range all {
			p.Release()
		}
	}
	live := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	round(1)
	small := live()
	round(8) // pages at a time
	body = pageOf(10, `{"timestamp":1}`)
	for range 50 {
		round(1)
	}
	if kept := int64(live()) - int64(small); kept > 1<<20 {
		t.Errorf("%d bytes of the large pages are kept", kept)
	}
	runtime.KeepAlive(c)
}

// A value that is nearly all escapes takes no more memory than its text, and only once if
// several settings select it. The page reports the size.
func TestEscapeBomb(t *testing.T) {
	const size = 1 << 20
	for escape, tc := range map[string]struct {
		text int    // bytes of size escapes
		vars string // the settings
	}{
		`\u0041`:       {size, "/a"},
		`\"`:           {size, "/a"},
		`\u00e9`:       {2 * size, "/a"},
		`\u20ac`:       {3 * size, "/a"},
		`\ud83d\ude00`: {4 * size, "/a"},
		`A`:            {0, "/a"},
	} {
		vars := map[string]string{"EXPORT_ITEM_ID": tc.vars, "EXPORT_ITEM_SUBJECT": tc.vars, "EXPORT_ITEM_TYPE": "none"}
		body := `{"items":[{"a":"` + strings.Repeat(escape, size) + `","timestamp":1}],"nextCursor":"c2"}`
		cfg := config(t, vars)
		cfg.KeyPointer = "/a"
		c := serveWith(t, bomb(t, body), cfg)
		p := must.Get(c.Fetch(t.Context(), bridge.Position{}))(t)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		must.Do(t, c.Decode(p))
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > uint64(tc.text)+256<<10 {
			t.Errorf("%s: %d bytes were allocated for a text of %d", escape, took, tc.text)
		}
		if e := &p.Events[0]; tc.text > 0 &&
			(len(e.ID) != tc.text || len(e.Key) != tc.text || len(e.Subject) != tc.text || cap(e.ID) > tc.text+8<<10) {
			t.Errorf("%s: id of %d bytes in %d, key of %d, subject of %d, want %d", escape, len(e.ID), cap(e.ID),
				len(e.Key), len(e.Subject), tc.text)
		}
		if p.Extra != int64(tc.text) {
			t.Errorf("%s: %d bytes beside the body, want %d", escape, p.Extra, tc.text)
		}
		p.Release()
	}
}

// A large page without items takes little memory to judge, and does not end the results.
func TestForeignPageBomb(t *testing.T) {
	list := "[" + strings.Repeat("[],", 4<<20) + "[]]"
	for name, body := range map[string]string{
		"no items": `{"x":` + list + `}`, "no items, array": `{"x":{"y":` + list + `}}`, "empty items": `{"items":[],"x":` +
			list + `}`, "null items": `{"items":null,"x":` + list + `}`,
	} {
		c := serve(t, bomb(t, body), nil)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := fetchAll(t, c, bridge.Position{})
		runtime.ReadMemStats(&after)
		if f := wantFault(t, err); !strings.Contains(f.Error(), "no items, but more than") {
			t.Errorf("%s: %v", name, f)
		}
		if took, most := after.TotalAlloc-before.TotalAlloc, 4*uint64(len(body))+16<<20; took > most {
			t.Errorf("%s: %d bytes were allocated for a body of %d, want at most %d", name, took, len(body), most)
		}
	}
}

// A name that is too long for an identity is ignored: the identity is in memory and in each
// checkpoint.
func TestLongIdentity(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{strings.Repeat("a", 256): strings.Repeat("a", 256),
		strings.Repeat("a", 257): "acme", strings.Repeat(`\u0061`, 257): "acme"} {
		p, err := fetchAll(t, serve(t, answer(`{"metadata":{"organization":{"slug":"`+name+`","name":"acme"}},"items":[]}`),
			nil), bridge.Position{})
		if err != nil || p.Source.Organization != want {
			t.Errorf("%d bytes: %v, %q", len(name), err, p.Source.Organization)
		}
	}
}
