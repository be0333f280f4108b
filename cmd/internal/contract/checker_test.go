package contract

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi"
)

// pageOf is a page of the events, all of the default topic.
func pageOf(events ...string) *bridge.Page {
	p := new(bridge.Page)
	for _, raw := range events {
		p.Events = append(p.Events, bridge.Event{Raw: []byte(raw)})
	}
	return p
}

// newChecker returns a Checker by a valid schema.
func newChecker(t testing.TB, text string, topics []string, found func(bridge.Difference)) *Checker {
	t.Helper()
	cfg := Config{Schema: text}
	must.Do(t, cfg.Validate(topics))
	return must.Get(NewChecker(&cfg, topics, found))(t)
}

const closedSchema = `{"type": "object", "properties": {"id": {"type": "string"}, "n": {"type": "integer"}}}`

// A Checker marks the events that differ, lists each difference once, and counts what is committed.
func TestChecker(t *testing.T) {
	t.Parallel()
	var told []bridge.Difference
	c := newChecker(t, closedSchema, []string{"events"}, func(d bridge.Difference) { told = append(told, d) })
	p := pageOf(`{"id":"1"}`, `{"id":2}`, `{"id":3}`, `{"id":4}`, `{"id":5,"x":1}`)
	p.Events[2].Defect, p.Events[3].Route = bridge.DefectTime, bridge.RouteDrop
	c.Check(p)
	var marks []string
	for i := range p.Events {
		if m := p.Events[i].Mismatch; m != nil {
			marks = append(marks, fmt.Sprint(i, " ", m))
		}
	}
	want := []string{"1 /id is number, want string", "4 /id is number, want string; /x is not in the schema"}
	if diff := cmp.Diff(want, marks); diff != "" || p.Extra == 0 {
		t.Errorf("marks (-want +got):\n%s%d extra bytes", diff, p.Extra)
	}
	c.Observe(bridge.Observation{What: bridge.ObserveCommit, Receipt: bridge.Receipt{Mismatched: 2}})
	got := c.Status()
	differences := []bridge.Difference{
		{Pointer: "/id", Text: "is number, want string"}, {Pointer: "/x", Text: "is not in the schema"},
	}
	if diff := cmp.Diff(&bridge.SchemaCheck{Mismatches: 2, Differences: differences}, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(differences, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// The list is short, whatever the events have: few differences, cut names, no control characters.
func TestCheckerBounds(t *testing.T) {
	t.Parallel()
	c := newChecker(t, closedSchema, []string{"events"}, nil)
	p := pageOf(`{"`+strings.Repeat("ä", 1000)+`":1}`, `{"\u001b[2J\n":1}`)
	for i := range 20 {
		p.Events = append(p.Events, bridge.Event{Raw: fmt.Appendf(nil, `{"x%d":1}`, i)})
	}
	members := make([]string, 1000)
	for i := range members {
		members[i] = fmt.Sprintf(`"y%d":1`, i)
	}
	p.Events = append(p.Events, bridge.Event{Raw: []byte("{" + strings.Join(members, ",") + "}")})
	c.Check(p)
	got := c.Status()
	if len(got.Differences) != 10 || !got.More {
		t.Errorf("%d differences, more is %t", len(got.Differences), got.More)
	}
	if at := got.Differences[0].Pointer; len(at) > 210 || !strings.HasSuffix(at, "ä…") {
		t.Errorf("the long pointer is %q", at)
	}
	if at := got.Differences[1].Pointer; at != "/\uFFFD[2J\uFFFD" {
		t.Errorf("the pointer with control characters is %q", at)
	}
	if text := p.Events[len(p.Events)-1].Mismatch.String(); len(text) > 200 || !strings.HasSuffix(text, "; and 997 more") {
		t.Errorf("an event with many differences: %s", text)
	}
}

// Each topic of a stream has its own schema; a topic without one is not compared.
func TestCheckerTopics(t *testing.T) {
	t.Parallel()
	const text = `{"$defs": {"events": {"required": ["a"]}, "orders": {"required": ["b"]}}}`
	c := newChecker(t, text, []string{"events", "orders", "rare"}, nil)
	p := pageOf(`{"b":1}`, `{"b":1}`, `{}`)
	p.Events[1].Route, p.Events[2].Route = 1, 2
	c.Check(p)
	if p.Events[0].Mismatch == nil || p.Events[1].Mismatch != nil || p.Events[2].Mismatch != nil {
		t.Errorf("mismatches: %v, %v, %v", p.Events[0].Mismatch, p.Events[1].Mismatch, p.Events[2].Mismatch)
	}
	if diff := cmp.Diff([]string{"rare"}, c.Status().Unchecked); diff != "" {
		t.Error(diff)
	}
	broken := Config{Schema: `{"properties": {"x": {}}, "$defs": {"orders": {"$ref": "#/properties/x"}}}`}
	err := broken.Validate([]string{"events", "orders"})
	if err == nil || !strings.Contains(err.Error(), "topic orders") {
		t.Errorf("a broken schema of a topic: %v", err)
	}
	var none *Checker
	if none.Observe(bridge.Observation{Receipt: bridge.Receipt{Mismatched: 1}}); none.Status() != nil {
		t.Error("a nil Checker has a status")
	}
}

// TestCompiledOnce: a schema is compiled once for all topics and Checkers of a stream.
func TestCompiledOnce(t *testing.T) {
	t.Parallel()
	cfg := Config{Schema: `{"type": "object", "$defs": {"orders": {"required": ["b"]}}}`}
	topics := []string{"events", "orders", "rare"}
	must.Do(t, cfg.Validate(topics))
	valid := cfg
	one, two := must.Get(NewChecker(&cfg, topics, nil))(t), must.Get(NewChecker(&valid, topics[1:], nil))(t)
	if one.schemas[0] != one.schemas[2] || one.schemas[1] == one.schemas[0] ||
		!slices.Equal(one.schemas[1:], two.schemas) {
		t.Errorf("the schemas are %p and %p", one.schemas, two.schemas)
	}
}

// BenchmarkCheck decodes a page of 1,000 events, without and with comparing them with their
// inferred schema.
func BenchmarkCheck(b *testing.B) {
	var f Inference
	var items []string
	for i := range 1000 {
		items = append(items, fmt.Sprintf(`{"eventId":"00000000-0000-0000-0000-%012d","userId":"u-%d","sessionId":"s-%d",`+
			`"timestamp":1700000000000,"context":{"source":{"channel":"web","page":{"url":"https://example.com/%d"}},`+
			`"location":{"city":"Curitiba","country":"BR"}},"payload":{"type":"orderPlaced","order":{"id":"o-%d",`+
			`"currency":"EUR","total":12.5,"lines":[{"sku":"a","quantity":1,"price":5.25},{"sku":"b","quantity":2,`+
			`"price":3.5}]},"note":"%s"}}`, i, i, i, i, i, strings.Repeat("lorem ipsum ", 10)))
		must.Do(b, f.Add([]byte(items[i])))
	}
	body := []byte(`{"items":[` + strings.Join(items, ",") + `],"nextCursor":null}`)
	text := must.Get(json.Marshal(f.Schema("Event", "")))(b)
	c := newChecker(b, string(text), []string{"events"}, nil)
	for name, check := range map[string]func(*bridge.Page){"decode": nil, "check": c.Check} {
		b.Run(name, func(b *testing.B) {
			cfg := exportapi.DefaultConfig()
			cfg.APIKey, cfg.Check = "key", check
			api := must.Get(exportapi.New(cfg))(b)
			defer api.Close()
			b.ReportAllocs()
			for b.Loop() {
				p := &bridge.Page{Body: body}
				must.Do(b, api.Decode(p))
				if p.Items != 1000 {
					b.Fatalf("%d items", p.Items)
				}
			}
		})
	}
	if len(c.Status().Differences) > 0 {
		b.Fatal("the events do not fit")
	}
}
