package kafkasink_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkarecord"
	"exportbridge/bridge/kafkastream"
)

// The tables of headers describe the headers that records have: with each form of headers, all
// records have those that are always there, some records have each of the others, and none has
// another one.
func TestHeaderTables(t *testing.T) {
	t.Parallel()
	const at = 1767225600123
	long := strings.Repeat("x", 1<<20)
	events := func() *bridge.Page {
		p := page(
			bridge.Event{Raw: []byte(`{"n":1}`), ID: []byte("1"), Key: []byte("k"), Subject: []byte("k"), Type: []byte("t"),
				Time: at},
			bridge.Event{Raw: []byte(`{"n":2}`), Time: bridge.NoTime, Late: time.Second},
			bridge.Event{Raw: []byte(`{"n":3}`), ID: []byte("3"), Subject: []byte("k"), Time: at, Defect: bridge.DefectBadText,
				Late: time.Second},
			bridge.Event{Raw: []byte(`{"n":"` + long + `"}`), Type: []byte(long[:1000]), Time: bridge.NoTime},
		)
		p.Traceparents = []string{"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
		return p
	}
	for _, form := range []string{"cloudevents", "minimal", "none"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			cfg, s := ready(t, withHeaders(form), func(c *kafkastream.Config) {
				if form != "none" { // which is refused with rules for private data
					c.Redacted = "rules"
				}
			})
			publish(t, s, events())
			bare := events()
			bare.Traceparents = nil
			publish(t, s, bare)
			var inForm []kafkarecord.Header
			for _, h := range kafkarecord.EventHeaders() {
				if form == "cloudevents" || form == "minimal" && h.Minimal {
					inForm = append(inForm, h)
				}
			}
			checkHeaders(t, cfg, cfg.Topic, inForm)
			for i := range inForm {
				inForm[i].Always = inForm[i].Name == kafkarecord.HeaderStream
			}
			if form == "none" {
				inForm = append(inForm, kafkarecord.Header{Name: kafkarecord.HeaderStream, Always: true})
			}
			checkHeaders(t, cfg, cfg.DeadTopic(), append(inForm, kafkarecord.DeadLetterHeaders()...))
		})
	}
}

// checkHeaders compares the headers of a topic's records with their descriptions.
func checkHeaders(t *testing.T, cfg kafkastream.Config, topic string, want []kafkarecord.Header) {
	t.Helper()
	records := consume(t, cfg, topic)
	seen := make(map[string]int)
	for _, r := range records {
		for _, h := range r.Headers {
			seen[h.Key]++
			i := slices.IndexFunc(want, func(w kafkarecord.Header) bool { return w.Name == h.Key })
			if i < 0 {
				t.Errorf("%s: %s is in no table", topic, h.Key)
			} else if values := want[i].Values; values != nil && !slices.Contains(values, string(h.Value)) {
				t.Errorf("%s: %s is %s, want one of %v", topic, h.Key, h.Value, values)
			}
		}
	}
	for _, h := range want {
		if n := seen[h.Name]; n == 0 || h.Always && n != len(records) {
			t.Errorf("%s: %d of %d records have %s; always is %t", topic, n, len(records), h.Name, h.Always)
		}
	}
}

// Each name of a header is in a table.
func TestHeaderNames(t *testing.T) {
	t.Parallel()
	file := must.Get(parser.ParseFile(token.NewFileSet(), "../kafkarecord/header.go", nil, 0))(t)
	names := 0
	ast.Inspect(file, func(n ast.Node) bool {
		value, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		names++
		text := strings.Trim(value.Values[0].(*ast.BasicLit).Value, `"`)
		if !slices.ContainsFunc(append(kafkarecord.EventHeaders(), kafkarecord.DeadLetterHeaders()...),
			func(h kafkarecord.Header) bool { return h.Name == text && h.Meaning != "" }) {
			t.Errorf("%s = %s is in no table", value.Names[0], text)
		}
		return true
	})
	if names < 17 {
		t.Errorf("only %d names are found", names)
	}
}
