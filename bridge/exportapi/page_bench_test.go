package exportapi

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/exportsim"
)

// simulatorPage returns a page of n items of the simulator, the same each time.
func simulatorPage(t testing.TB, schema exportsim.Schema, path string, n int) []byte {
	t.Helper()
	h := must.Get(exportsim.New(exportsim.Config{
		Seed: 1, Events: 40 * n, Schema: schema,
		Start: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Every: 100 * time.Millisecond,
	}))(t)
	defer h.Close()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", fmt.Sprintf("%s?pageSize=%d", path, n), nil))
	if w.Code != 200 {
		t.Fatalf("%s: %d", path, w.Code)
	}
	return w.Body.Bytes()
}

// textPage returns a page of n items that are mostly the text.
func textPage(n int, text string) []byte {
	item := fmt.Sprintf(`{"eventId":"0190f5d0-7b3c-7e4a-9a53-4a1b2c3d4e5f","userId":"user-12345",`+
		`"timestamp":1760000000000,"payload":{"type":"pageOpened","title":"%s","tags":["%[1]s","%[1]s"],"text":"%s"}}`,
		text, strings.Repeat(text, 5))
	return []byte(`{"items":[` + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + `],"nextCursor":null}`)
}

// benchmarkPages are pages of 1000 items.
func benchmarkPages(t testing.TB) []benchmarkPage {
	return []benchmarkPage{
		{"300B", "events", somePage(1000, 300), ItemMapping{}},
		{"1KB", "events", somePage(1000, 1000), ItemMapping{}},
		{"1KB-mapped", "events", mappedPage(1000, 1000), mapped},
		{"4KB", "events", somePage(1000, 4000), ItemMapping{}},
		{"simulator-events", "events", simulatorPage(t, exportsim.Schema08, "/events", 1000), ItemMapping{}},
		{"simulator-sessions", "sessions", simulatorPage(t, exportsim.Schema08, "/session", 1000), ItemMapping{}},
		{"simulator-users", "users", simulatorPage(t, exportsim.Schema08, "/user", 1000), ItemMapping{}},
		{"Portuguese", "events", textPage(1000, "São Paulo não é a única opção de coração"), ItemMapping{}},
		{"Japanese", "events", textPage(1000, "スマートフォン 23 プロ と ヘッドホン。"), ItemMapping{}},
		{"escapes", "events", textPage(1000, `S\u00e3o \"Paulo\" \u2014 caf\u00e9\n`), ItemMapping{}},
	}
}

type benchmarkPage struct {
	name, resource string
	body           []byte
	mapping        ItemMapping
}

// mapped has the pointers into the items of mappedPage.
var mapped = ItemMapping{
	ItemID: []string{"/uuid", "/eventId"}, ItemTime: []string{"/meta/published"}, ItemTimeFormat: "rfc3339",
	ItemType: []string{"/payload/type"}, ItemSubject: []string{"/userId"},
}

// mappedPage is somePage inside an object, with times as text.
func mappedPage(n, size int) []byte {
	body := regexp.MustCompile(`"timestamp":\d+,`).ReplaceAll(somePage(n, size),
		[]byte(`"meta":{"published":"2026-11-22T10:57:00.123Z"},`))
	return bytes.ReplaceAll(body, []byte(`"eventId"`), []byte(`"uuid"`))
}

// decoders returns two functions that decode the page, one with the oracle and one with the
// scanner.
func (p *benchmarkPage) decoders(t testing.TB) (oracle, scanner func()) {
	t.Helper()
	cfg := &Config{Resource: p.resource, ItemsField: "items", CursorField: "nextCursor", ItemMapping: p.mapping}
	o := newOracle(cfg, presets[p.resource])
	s := newPageDecoder(cfg.mapping())
	var events []bridge.Event // for both, since pages share their memory
	oracle = func() {
		must.Do(t, o.decode(p.body, events[:0]))
		events = o.events
	}
	scanner = func() {
		must.Do(t, s.decode(p.body, events[:0]))
		events = s.events
	}
	oracle()
	scanner()
	return oracle, scanner
}

// BenchmarkDecode measures the decoder and its oracle, for
//
//	go test -run '^$' -bench 'Decode$' -count 10 ./bridge/exportapi | benchstat -col /decoder -
func BenchmarkDecode(b *testing.B) {
	for _, page := range benchmarkPages(b) {
		oracle, scanner := page.decoders(b)
		measure := func(decode func()) func(*testing.B) {
			return func(b *testing.B) {
				b.SetBytes(int64(len(page.body)))
				b.ReportAllocs()
				for b.Loop() {
					decode()
				}
			}
		}
		b.Run("page="+page.name+"/decoder=jsontext", measure(oracle))
		b.Run("page="+page.name+"/decoder=scanner", measure(scanner))
	}
}

// BenchmarkDecodeInTurn decodes each page with both in turn, and reports the median of how
// many times faster the scanner is. On a busy machine, only simultaneous work can be
// compared.
func BenchmarkDecodeInTurn(b *testing.B) {
	for _, page := range benchmarkPages(b) {
		b.Run("page="+page.name, func(b *testing.B) {
			oracle, scanner := page.decoders(b)
			inTurn(b, oracle, scanner, "times-as-fast")
		})
	}
}

// inTurn runs both in turn, and reports the median of how many times as long the first one takes.
func inTurn(b *testing.B, first, second func(), unit string) {
	b.Helper()
	var times []float64
	for b.Loop() {
		start := time.Now()
		first()
		middle := time.Now()
		second()
		times = append(times, float64(middle.Sub(start))/float64(time.Since(middle)))
	}
	slices.Sort(times)
	b.ReportMetric(times[len(times)/2], unit)
	b.ReportMetric(0, "ns/op") // the sum of both means nothing
}
