package contract

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"exportbridge/bridge/attest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/reconcile"
)

// TestSchemaOf: a topic has its definition, with those that are of no topic, or the whole schema.
func TestSchemaOf(t *testing.T) {
	t.Parallel()
	const whole = `{"$schema":"s","type":"object","$defs":{"orders":{"$ref":"#/$defs/a"},"events":{"x":1},"a":{}}}`
	for _, tc := range []struct{ text, topic, want string }{
		{whole, "orders", `{"$defs":{"a":{}},"$ref":"#/$defs/a","$schema":"s"}`},
		{whole, "other", whole},
		{`{"$defs":{"orders":{"$defs":{"b":{}}},"a":{}}}`, "orders", `{"$defs":{"b":{}}}`},
		{`{"$schema":"s","$defs":{"orders":{}}}`, "other", ""},
		{`{"$defs":{"orders":{},"a":{}},"$ref":"#/$defs/a"}`, "other", `{"$defs":{"orders":{},"a":{}},"$ref":"#/$defs/a"}`},
		{`{"$defs":{"a":{}}}`, "other", `{"$defs":{"a":{}}}`},
		{`{"$defs":{"orders":{"items":{"$ref":"#/$defs/orders"}},"events":{}}}`, "orders",
			`{"$defs":{"orders":{"items":{"$ref":"#/$defs/orders"}}},"items":{"$ref":"#/$defs/orders"}}`},
		{`{"$defs":{"orders":{"items":{"$ref":"#/$defs/events"}},"events":{}}}`, "orders",
			`{"$defs":{"events":{}},"items":{"$ref":"#/$defs/events"}}`},
		{`{"$defs":{"orders":{"items":{"$ref":"#/$defs/orders"}}}}`, "other", ""},
		{`{"$defs":{"orders":true}}`, "orders", `{"$defs":{"orders":true}}`},
		{`{"$defs":{"orders":null}}`, "orders", `{"$defs":{"orders":null}}`},
		{"true", "orders", "true"}, {"", "orders", ""},
	} {
		if got := SchemaOf(tc.text, tc.topic, []string{"events", "orders", "other"}); got != tc.want {
			t.Errorf("%s of %s is %s, want %s", tc.topic, tc.text, got, tc.want)
		}
	}
}

// TestOfTopics: each topic gets back the schema that was inferred from its events.
func TestOfTopics(t *testing.T) {
	t.Parallel()
	found := make(map[string]*Inferred)
	for topic, event := range map[string]string{"orders": `{"total": 1}`, "events": `{"at": "x"}`} {
		var of Inference
		must.Do(t, of.Add([]byte(event)))
		found[topic] = of.Schema(topic, "")
	}
	text := must.Get(json.Marshal(OfTopics(found)))(t)
	for topic, want := range map[string]string{"orders": "[]", "events": "[{/at is missing} {/total is not in the schema}]"} {
		schema := must.Get(Compile(SchemaOf(string(text), topic, []string{"events", "orders"})))(t)
		if got := fmt.Sprint(schema.Compare([]byte(`{"total": 2}`))); got != want {
			t.Errorf("an order in %s differs by %s, want %s", topic, got, want)
		}
	}
}

// TestDocumentOfTopics: in a document, a topic without a definition leaves the schema of the first
// topic as it is.
func TestDocumentOfTopics(t *testing.T) {
	t.Parallel()
	const defs = `"$defs":{"events":{"required":["at"]}}`
	for whole, rare := range map[string]any{
		`{"type":"object",` + defs + `}`: reference{"#/components/schemas/s.route-1"}, `{` + defs + `}`: anything,
	} {
		d := must.Get(NewDocument([]Stream{{Name: "s", Topic: "events", Routed: []string{"rare", "odd"}, Schema: whole}}, Cluster{}))(t)
		messages := d.Components.Messages
		if got := d.Components.Schemas["s"].(map[string]any); got["required"] == nil ||
			messages["s"].Payload != (reference{"#/components/schemas/s"}) {
			t.Errorf("%s: topic events has %v, schema s is %v", whole, messages["s"].Payload, got)
		}
		for _, name := range []string{"s.route-1", "s.route-2"} {
			if got := messages[name].Payload; !reflect.DeepEqual(got, rare) {
				t.Errorf("%s: %s has %v", whole, name, got)
			}
		}
	}
}

// TestAttestHeaders: a record of an attestation has an origin of its own.
func TestAttestHeaders(t *testing.T) {
	t.Parallel()
	d := must.Get(NewDocument([]Stream{{Name: "s", Topic: "events", AttestTopic: "events.attest", Headers: "none"}}, Cluster{}))(t)
	of := d.Components.Messages["s.attest"].Headers
	if got := of.Properties["eb-origin"].Enum; !slices.Equal(got, []string{"attest"}) {
		t.Errorf("eb-origin is one of %q", got)
	}
}

// TestAttestSchema: the schema describes each member of a record.
func TestAttestSchema(t *testing.T) {
	t.Parallel()
	schema := must.Get(Compile(attestSchema))(t)
	now := time.Now().UTC()
	full := attest.Record{
		Format: 1, Stream: "events", Seq: 2, From: now, To: now, Topic: "a, b", Dropped: 1, EndedEmpty: true, Unrepaired: "x",
		At: now, By: "c", Previous: attest.Hash(nil),
		Topics: []reconcile.TopicCount{{Topic: "a", Listed: 2, Held: 1, Elsewhere: 1, Repaired: 1}},
	}
	least := attest.Record{Format: 1, Stream: "events", Seq: 1}
	for _, r := range []attest.Record{full, least} {
		text := must.Get(json.Marshal(r))(t)
		if got := schema.Compare(text); len(got) > 0 {
			t.Errorf("%s differs: %v", text, got)
		}
	}
	full.Seq = 0
	text, _ := json.Marshal(full)
	if len(schema.Compare(text)) == 0 {
		t.Error("record 0 fits")
	}
}
