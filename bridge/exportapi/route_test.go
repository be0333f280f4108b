package exportapi_test

import (
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// TestRoute: the first rule that matches an item says where it goes. An item that cannot be
// read has no route, unless its type or the compared value can be read.
func TestRoute(t *testing.T) {
	t.Parallel()
	routes := must.Get(bridge.ParseRoutes("order*=a,/region=eu-*:b,/n=7:c,*Old=drop,/region=*:main,x=a", "main"))(t)
	cfg := config(t, map[string]string{"EXPORT_URL": "http://127.0.0.1:1"})
	cfg.Routes = routes
	c := connect(t, cfg)
	for item, want := range map[string]uint8{
		`{"timestamp":1,"payload":{"type":"orderPlaced"},"region":"eu-1"}`: 1,
		`{"timestamp":1,"payload":{"@type":"order"}}`:                      1,
		`{"timestamp":1,"payload":{"type":"x"},"region":"eu-1"}`:           2,
		`{"timestamp":1,"payload":{"type":"x"},"region":"\u0065u-"}`:       2,
		`{"timestamp":1,"payload":{"type":"x"},"region":"us-1"}`:           0,
		`{"timestamp":1,"payload":{"type":"x"}}`:                           1,
		`{"timestamp":1,"payload":{"type":"x"},"region":null}`:             1,
		`{"timestamp":1,"payload":{"type":"x"},"region":{"eu-1":1}}`:       1,
		`{"timestamp":1,"n":7}`:                                            3,
		`{"timestamp":1,"n":"7"}`:                                          3,
		`{"timestamp":1,"payload":{"type":"soOld"}}`:                       bridge.RouteDrop,
		`{"timestamp":1}`: 0,
		`{"timestamp":"no time","payload":{"type":"orderPlaced"}}`: 1,
		`17`: 0,
	} {
		p := must.Get(c.DecodeItem([]byte(item)))(t)
		if got := p.Events[0].Route; got != want {
			t.Errorf("%s: route %d, want %d", item, got, want)
		}
		p.Release()
	}
}

// TestRouteOfChangedItem: a route compares what the rules for private data leave of an item.
func TestRouteOfChangedItem(t *testing.T) {
	t.Parallel()
	cfg := config(t, map[string]string{"EXPORT_URL": "http://127.0.0.1:1", "EVENT_DROP": "/region",
		"EVENT_HASH_KEY": "k1 YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE="})
	routes := must.Get(bridge.ParseRoutes("/region=eu-*:a,x=b", "main"))(t)
	cfg.Routes = routes
	p := must.Get(connect(t, cfg).DecodeItem([]byte(`{"timestamp":1,"payload":{"type":"x"},"region":"eu-1"}`)))(t)
	if got := p.Events[0].Route; got != 2 {
		t.Errorf("route %d, want 2", got)
	}
}

// TestCheckedOnce: what a page lists is checked, and what is decoded again from a record is not.
func TestCheckedOnce(t *testing.T) {
	t.Parallel()
	const item = `{"eventId":"e","timestamp":1}`
	checked := 0
	cfg := config(t, map[string]string{"EXPORT_URL": "http://127.0.0.1:1"})
	cfg.Check = func(p *bridge.Page) { checked += len(p.Events) }
	c := connect(t, cfg)
	must.Do(t, c.Decode(&bridge.Page{Body: []byte(`{"items":[` + item + `],"nextCursor":null}`)}))
	must.Get(c.DecodeItem([]byte(item)))(t)
	must.Get(c.DecodeRecord([]byte(item), "e"))(t)
	if checked != 1 {
		t.Errorf("events are checked %d times, want 1", checked)
	}
}
