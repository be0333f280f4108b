package exportapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/engine"
	"exportbridge/bridge/exportapi"
)

// formAPI is an API of one form over a list that grows.
type formAPI struct {
	form form
	base string // its own URL

	mu    sync.Mutex // guards all below
	items int        // item n has the id n and the time n
	// keys counts the requests with the key, paths the requests by path.
	keys int
}

// form is how an API names the next page and marks the end.
type form struct {
	vars map[string]string
	// at returns the index of the first requested item.
	at func(a *formAPI, r *http.Request, body map[string]json.RawMessage) int
	// page writes a page with the items. next is the index after them, more whether others
	// follow.
	page func(a *formAPI, w http.ResponseWriter, r *http.Request, items []string, next int, more bool)
}

func (a *formAPI) grow(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.items += n
}

func (a *formAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var body map[string]json.RawMessage
	size := r.URL.Query().Get("pageSize")
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		size = string(body["pageSize"])
	}
	n, err := strconv.Atoi(size)
	if err != nil {
		http.Error(w, "no page size", http.StatusTeapot)
		return
	}
	if r.Header.Get("X-Api-Key") == testKey || r.URL.Query().Get("api_key") == testKey {
		a.keys++
	}
	from := a.form.at(a, r, body)
	to := min(from+n, a.items)
	items := []string{}
	for i := from; i < to; i++ {
		items = append(items, formItem(i))
	}
	w.Header().Set("Content-Type", "application/json")
	a.form.page(a, w, r, items, to, to < a.items)
}

func formItem(i int) string {
	return fmt.Sprintf(`{"eventId":"e%d","seq":%d,"meta":{"at":"p%d"},"timestamp":%d,"payload":{"next":"decoy",`+
		`"has_more":true}}`, i, i, i, i+1)
}

// query returns the cursor in a query parameter, without a prefix.
func query(name, prefix string) func(*formAPI, *http.Request, map[string]json.RawMessage) int {
	return func(_ *formAPI, r *http.Request, _ map[string]json.RawMessage) int {
		return indexOf(r.URL.Query().Get(name), prefix)
	}
}

// indexOf returns the number after a prefix, 0 without a cursor.
func indexOf(cursor, prefix string) int {
	digits, ok := strings.CutPrefix(cursor, prefix)
	if cursor == "" {
		return 0
	}
	n, err := strconv.Atoi(digits)
	if !ok || err != nil {
		panic("cursor " + cursor)
	}
	return n
}

// page writes a page in a format with items, cursor and more. last is the cursor of the
// last page.
func page(format, cursor, last string) func(*formAPI, http.ResponseWriter, *http.Request, []string, int, bool) {
	return func(_ *formAPI, w http.ResponseWriter, _ *http.Request, items []string, next int, more bool) {
		shown := strings.ReplaceAll(cursor, "#", fmt.Sprintf("%06d", next))
		if !more {
			shown = strings.ReplaceAll(last, "#", fmt.Sprintf("%06d", next))
		}
		_, _ = strings.NewReplacer("ITEMS", "["+strings.Join(items, ",")+"]", "CURSOR", shown, "MORE",
			strconv.FormatBool(more), "DONE", strconv.FormatBool(!more)).
			WriteString(w, format)
	}
}

// link writes a page with a Link header.
func link(always bool) func(*formAPI, http.ResponseWriter, *http.Request, []string, int, bool) {
	return func(a *formAPI, w http.ResponseWriter, r *http.Request, items []string, next int, more bool) {
		self := a.base + r.URL.Path
		w.Header().Add("Link", fmt.Sprintf(`<%s?x=a,b>; rel="self"; title="a, <b>; rel=next"`, self))
		if more || always {
			w.Header().Add("link", fmt.Sprintf(`<%s?after=%d&pageSize=%s&x=%%2f%%C3%%BC>;REL="last Next" , <%s>; rel=prev`,
				self, next, r.URL.Query().Get("pageSize"), self))
		}
		_, _ = fmt.Fprintf(w, "[%s]", strings.Join(items, ","))
	}
}

const beyond = "90071992547409931234" // is followed by six digits

var forms = map[string]form{
	"default": {at: query("cursor", "c"), page: page(`{"items":ITEMS,"nextCursor":CURSOR}`, `"c#"`, `null`)},
	"204 for nothing": {at: query("cursor", "c"),
		page: func(a *formAPI, w http.ResponseWriter, r *http.Request, items []string, next int, more bool) {
			if len(items) == 0 {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			page(`{"items":ITEMS,"nextCursor":CURSOR}`, `"c#"`, `"c#"`)(a, w, r, items, next, more)
		}},
	"empty and false left out": {vars: map[string]string{"EXPORT_MORE_FIELD": "has_more"}, at: query("cursor", "c"),
		page: func(a *formAPI, w http.ResponseWriter, r *http.Request, items []string, next int, more bool) {
			format := `{"items":ITEMS,"has_more":true,"nextCursor":CURSOR}`
			switch {
			case len(items) == 0 && r.URL.Query().Get("cursor") != "":
				format = `{}`
			case len(items) == 0:
				format = `{"has_more":false}`
			case !more && r.URL.Query().Get("cursor") != "":
				format = `{"items":ITEMS,"nextCursor":CURSOR}`
			case !more:
				format = `{"items":ITEMS,"has_more":false,"nextCursor":CURSOR}`
			}
			page(format, `"c#"`, `"c#"`)(a, w, r, items, next, more)
		}},
	"null for nothing": {at: query("cursor", "c"),
		page: func(a *formAPI, w http.ResponseWriter, r *http.Request, items []string, next int, more bool) {
			format := `{"items":ITEMS,"nextCursor":CURSOR}`
			if len(items) == 0 {
				format = `{"items":null,"nextCursor":CURSOR}`
			}
			page(format, `"c#"`, `null`)(a, w, r, items, next, more)
		}},
	"nested": {vars: map[string]string{"EXPORT_ITEMS_FIELD": "/data/a~1b/items",
		"EXPORT_CURSOR_FIELD": "/meta~0data/next"}, at: query("cursor", "c"),
		page: page(`{"data":{"x":1,"a/b":{"items":ITEMS}},"meta~data":{"next":CURSOR,"y":[]}}`, `"c#"`, `""`)},
	"nested, the parent absent at the end": {
		vars: map[string]string{"EXPORT_ITEMS_FIELD": "/data", "EXPORT_CURSOR_FIELD": "/paging/next/after"},
		at:   query("cursor", "c"),
		page: page(`{"paging":CURSOR,"data":ITEMS}`, `{"next":{"after":"c#","link":"x"}}`, `null`)},
	"in the metadata": {vars: map[string]string{"EXPORT_CURSOR_FIELD": "/metadata/next"}, at: query("cursor", "c"),
		page: page(`{"metadata":{"organization":"acme","next":CURSOR},"items":ITEMS}`, `"c#"`, `null`)},
	"a new cursor with each page": {at: query("cursor", "c"),
		page: page(`{"items":ITEMS,"nextCursor":CURSOR}`, `"c#"`, `"c#"`)},
	"integer": {at: query("cursor", beyond),
		page: page(`{"items":ITEMS,"nextCursor":CURSOR}`, beyond+"#", "null")},
	"integer, nested, POST": {vars: map[string]string{"EXPORT_CURSOR_FIELD": "/next", "EXPORT_METHOD": "POST"},
		at: func(_ *formAPI, _ *http.Request, body map[string]json.RawMessage) int {
			return indexOf(string(body["cursor"]), beyond)
		}, page: page(`{"items":ITEMS,"next":CURSOR}`, beyond+"#", "null")},
	"digits in a string, POST": {vars: map[string]string{"EXPORT_METHOD": "POST", "EXPORT_KEY_QUERY": "api_key"},
		at: func(_ *formAPI, _ *http.Request, body map[string]json.RawMessage) int {
			if body["cursor"] == nil {
				return 0
			}
			return indexOf(strings.TrimSuffix(string(body["cursor"]), `"`), `"1`)
		}, page: page(`{"items":ITEMS,"nextCursor":CURSOR}`, `"1#"`, "null")},
	"more": {vars: map[string]string{"EXPORT_MORE_FIELD": "/page/has_more", "EXPORT_CURSOR_FIELD": "/page/cursor"},
		at:   query("cursor", "c"),
		page: page(`{"items":ITEMS,"page":{"has_more":MORE,"cursor":CURSOR}}`, `"c#"`, `"c#"`)},
	"more, turned, some cursor at the end": {
		vars: map[string]string{"EXPORT_MORE_FIELD": "!end_of_stream", "EXPORT_CURSOR_FIELD": "next"},
		at:   query("cursor", "c"),
		page: page(`{"end_of_stream":DONE,"next":CURSOR,"items":ITEMS}`, `"c#"`, `false`)},
	"header": {vars: map[string]string{"EXPORT_CURSOR_IN": "header", "EXPORT_CURSOR_FIELD": "x-next",
		"EXPORT_ITEMS_FIELD": "root"}, at: query("cursor", "c ü="),
		page: func(_ *formAPI, w http.ResponseWriter, _ *http.Request, items []string, next int, more bool) {
			if more {
				w.Header().Set("X-Next", fmt.Sprintf("c ü=%d", next))
			}
			_, _ = fmt.Fprintf(w, " [%s]\n", strings.Join(items, ","))
		}},
	"last item": {vars: map[string]string{"EXPORT_CURSOR_IN": "last-item", "EXPORT_CURSOR_FIELD": "/meta/at"},
		at: func(_ *formAPI, r *http.Request, _ map[string]json.RawMessage) int {
			if r.URL.Query().Get("cursor") == "" {
				return 0
			}
			return 1 + indexOf(r.URL.Query().Get("cursor"), "p")
		}, page: page(`{"items":ITEMS}`, "", "")},
	"last item, integer, root": {vars: map[string]string{"EXPORT_CURSOR_IN": "last-item", "EXPORT_CURSOR_FIELD": "/seq",
		"EXPORT_ITEMS_FIELD": "root"}, at: func(_ *formAPI, r *http.Request, _ map[string]json.RawMessage) int {
		if r.URL.Query().Get("cursor") == "" {
			return 0
		}
		return 1 + indexOf(r.URL.Query().Get("cursor"), "")
	}, page: page(`ITEMS`, "", "")},
	"last item, more": {vars: map[string]string{"EXPORT_CURSOR_IN": "last-item", "EXPORT_CURSOR_FIELD": "/eventId",
		"EXPORT_MORE_FIELD": "has_more"}, at: func(_ *formAPI, r *http.Request, _ map[string]json.RawMessage) int {
		if r.URL.Query().Get("cursor") == "" {
			return 0
		}
		return 1 + indexOf(r.URL.Query().Get("cursor"), "e")
	}, page: page(`{"items":ITEMS,"has_more":MORE}`, "", "")},
	"next URL": {vars: map[string]string{"EXPORT_CURSOR_IN": "next-url", "EXPORT_CURSOR_FIELD": "/links/next",
		"EXPORT_KEY_QUERY": "api_key", "EXPORT_PARAMS": "tenant=acme%2C1"},
		at: query("after", ""), page: func(a *formAPI, w http.ResponseWriter, r *http.Request, items []string, next int,
			more bool) {
			if r.URL.Query().Get("tenant") != "acme,1" {
				panic("no tenant")
			}
			query := r.URL.Query() // with the key
			query.Set("after", strconv.Itoa(next))
			to := `null`
			if more {
				to = quote(a.base + r.URL.Path + "/more?" + query.Encode() + "#top")
			}
			_, _ = fmt.Fprintf(w, `{"items":[%s],"links":{"next":%s}}`, strings.Join(items, ","), to)
		}},
	"next URL, relative, its own at the end": {
		vars: map[string]string{"EXPORT_CURSOR_IN": "next-url", "EXPORT_CURSOR_FIELD": "next"},
		at:   query("after", ""), page: func(_ *formAPI, w http.ResponseWriter, r *http.Request, items []string, next int,
			more bool) {
			query := r.URL.Query()
			if more {
				query.Set("after", strconv.Itoa(next))
			}
			_, _ = fmt.Fprintf(w, `{"items":[%s],"next":%s}`, strings.Join(items, ","),
				quote("?pageSize="+query.Get("pageSize")+"&after="+query.Get("after")))
		}},
	"link": {vars: map[string]string{"EXPORT_CURSOR_IN": "link", "EXPORT_ITEMS_FIELD": "root"},
		at: query("after", ""), page: link(false)},
	"link, always": {vars: map[string]string{"EXPORT_CURSOR_IN": "link", "EXPORT_ITEMS_FIELD": "root",
		"EXPORT_KEY_QUERY": "api_key"}, at: query("after", ""), page: link(true)},
}

// startForm starts an API of the form and returns the settings for it.
func startForm(t *testing.T, f form, pageSize int) (*formAPI, exportapi.Config) {
	t.Helper()
	api := &formAPI{form: f}
	server := listen(t, api)
	api.base = server.URL
	vars := map[string]string{"EXPORT_URL": server.URL, "EXPORT_PAGE_SIZE": strconv.Itoa(pageSize)}
	maps.Copy(vars, f.vars)
	return api, config(t, vars)
}

// formServers are those of a stream, which survive its processes.
type formServers struct {
	topic *bridgetest.Topic
	store *bridgetest.Store
}

func newServers(t *testing.T) formServers {
	return formServers{bridgetest.NewTopic(t, bridge.ExactlyOnce), bridgetest.NewStore(t, "events")}
}

// runForm drains the export in a new process.
func runForm(t *testing.T, cfg exportapi.Config, origin bridge.Origin, to formServers,
	wrap func(bridge.Source) bridge.Source) error {
	t.Helper()
	client := must.Get(exportapi.New(cfg))(t)
	defer client.Close()
	origin.Resource = "events"
	e := must.Get(engine.New(engine.Config{
		Stream: "events", Mode: bridge.ExactlyOnce, Origin: origin, PageSize: cfg.PageSize, Owner: "me",
		PollInterval: time.Second, PollIntervalMax: time.Second, PrefetchPages: 8, PrefetchBytes: 16 << 20,
		RetryMax:   time.Second,
		EmptyPages: 2, OnInvalidCursor: "stop", OnSharedID: "publish", OnCheckpointLoss: "kafka",
		ShutdownTimeout: time.Second, Limits: engine.Limits{Once: true},
	}, engine.Ports{Source: wrap(client), Sink: to.topic.Open("events"), Store: to.store, Inbox: bridgetest.NewInbox(t)}))(t)
	return e.Run(t.Context())
}

// visits records the fetched positions and their items.
type visits struct {
	bridge.Source
	mu sync.Mutex
	at map[bridge.Position][]string // the items
}

func (v *visits) Decode(p *bridge.Page) error {
	err := v.Source.Decode(p)
	v.mu.Lock()
	defer v.mu.Unlock()
	var items []string
	for i := range p.Events {
		items = append(items, string(p.Events[i].Raw))
	}
	v.at[p.At] = items
	return err
}

// TestForms drains an API of each form, lets the list grow, and drains it again in a new
// process. Every event is published once, in order, byte for byte. Every cursor on the way
// can be fetched again.
func TestForms(t *testing.T) {
	t.Parallel()
	for name, f := range forms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, cfg := startForm(t, f, 3)
			to := newServers(t)
			seen := &visits{at: make(map[bridge.Position][]string)}
			for _, n := range []int{0, 1, 1, 1, 2, 7, 0, 3, 9} {
				api.grow(n)
				must.Do(t, runForm(t, cfg, bridge.Origin{}, to,
					func(s bridge.Source) bridge.Source { seen.Source = s; return seen }))
				records := to.topic.Records()
				if len(records) != api.items {
					t.Fatalf("%d records of %d items", len(records), api.items)
				}
				for i, r := range records {
					if string(r.Value) != formItem(i) {
						t.Fatalf("record %d is %s", i, r.Value)
					}
				}
			}
			if api.keys == 0 {
				t.Error("no request had the key")
			}
			for at, items := range seen.at {
				if strings.Contains(at.Cursor, testKey) || strings.Contains(at.Cursor, "api_key") ||
					strings.Contains(at.Cursor, "acme") {
					t.Errorf("secrets in cursor %s", at.Cursor)
				}
				p, err := fetchAll(t, connect(t, cfg), at)
				if err != nil {
					t.Fatalf("cursor %q: %v", at.Cursor, err)
				}
				again := p.Events
				for i := range items {
					if i >= len(again) || string(again[i].Raw) != items[i] {
						t.Fatalf("cursor %q: %d items, other than before", at.Cursor, len(again))
					}
				}
			}
			if len(seen.at) < 5 && name != "default" {
				t.Errorf("%d cursors", len(seen.at))
			}
		})
	}
}
