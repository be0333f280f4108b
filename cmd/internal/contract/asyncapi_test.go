package contract

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/seal"
)

// official is the schema of AsyncAPI 3.0.0, by the AsyncAPI Initiative.
func official(t *testing.T) *jsonschema.Schema {
	t.Helper()
	file := must.Get(os.Open("testdata/asyncapi-3.0.0.json.gz"))(t)
	defer file.Close()
	text := must.Get(gzip.NewReader(file))(t)
	document := must.Get(jsonschema.UnmarshalJSON(text))(t)
	compiler := jsonschema.NewCompiler()
	must.Do(t, compiler.AddResource("http://asyncapi.com/3.0.0", document))
	return must.Get(compiler.Compile("http://asyncapi.com/3.0.0"))(t)
}

const orderSchema = `{"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://a.example/order",
  "type": "object", "properties": {"total": {"$ref": "#/$defs/money"}, "next": {"$ref": "#"},
  "default": {"$ref": "#/$defs/money"}, "kind": {"const": {"$ref": "#/x"}}}, "$defs": {"money": {"type": "number"}}}`

// streamsOfAllKinds are streams that differ in all that a document says.
func streamsOfAllKinds() []Stream {
	return []Stream{
		{Name: "any", Topic: "export.any", Routed: []string{"export.orders", "export.shared"}, AttestTopic: "export.any.attest",
			Private: true, Encrypted: []string{"/payload/email", "/payload/all/*/name"}, KeysTopic: "export.any.keys",
			Schema: `{"type": "object", "$defs": {"export.orders": {"$ref": "#/$defs/a"}, "a": {"type": "object"}}}`, DeadTopic: "dlq.export.any", Key: "/userId", Headers: "cloudevents", Late: true},
		{Name: "a_b-c", Topic: "export.shared", Key: "none", Headers: "minimal", Schema: orderSchema},
		{Name: "bare", Topic: "export.shared", DeadTopic: "dlq.x", Key: "/a~1b", Headers: "none", Schema: "true"},
		{Name: "newer", Topic: "export.newer", Key: "/id", Headers: "none",
			Schema: `{"$id": "https://a.example/newer", "prefixItems": [{"$ref": "#/$defs/a"}],
			  "$defs": {"a": {"type": "string"}}}`},
		{Name: "any-dead-letter", Topic: "export.other", Key: "none", Headers: "none",
			Schema: `{"properties": {"$anchor": {"const": {"prefixItems": 1}}}}`},
		{Name: "older", Topic: "export.older", Key: "none", Headers: "none",
			Schema: `{"$schema": "http://json-schema.org/draft-04/schema#", "id": "https://a.example/older",
			  "minimum": 0, "exclusiveMinimum": true, "properties": {"id": {"$ref": "#/definitions/a"}}, "definitions": {"a": {}}}`},
		{Name: "seven", Topic: "export.seven", Key: "none", Headers: "none",
			Schema: `{"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/a", "minimum": 2,
			  "definitions": {"a": {"type": "string"}}}`},
	}
}

// A document is valid by the official schema, in YAML as in JSON.
func TestDocumentIsValid(t *testing.T) {
	t.Parallel()
	schema := official(t)
	for name, streams := range map[string][]Stream{"one": streamsOfAllKinds()[:1], "all": streamsOfAllKinds()} {
		d := must.Get(NewDocument(streams, Cluster{Brokers: []string{"a:9092", "b:9093"}, TLS: true}))(t)
		text := must.Get(d.JSON())(t)
		value := must.Get(jsonschema.UnmarshalJSON(strings.NewReader(text)))(t)
		if err := schema.Validate(value); err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
		inYAML := must.Get(d.YAML())(t)
		var parsed any
		must.Do(t, yaml.Unmarshal([]byte(inYAML), &parsed))
		back, err := json.Marshal(parsed) // numbers as JSON has them
		if err != nil {
			t.Fatal(err)
		}
		var want, got any
		_ = json.Unmarshal([]byte(text), &want) // both were read before
		_ = json.Unmarshal(back, &got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: YAML differs from JSON (-JSON +YAML):\n%s", name, diff)
		}
		resolve(t, got, got)
	}
	for _, broken := range []string{`{"asyncapi": "3.0.0"}`, strings.Replace(documentText(t), `"send"`, `"sends"`, 1)} {
		value := must.Get(jsonschema.UnmarshalJSON(strings.NewReader(broken)))(t)
		if schema.Validate(value) == nil {
			t.Errorf("valid, though it is no document: %.60s", broken)
		}
	}
}

// resolve fails the test if a reference in a part of a document leads nowhere.
func resolve(t *testing.T, document, part any) {
	t.Helper()
	switch part := part.(type) {
	case map[string]any:
		if ref, ok := part["$ref"].(string); ok && ref != "#/x" { // that one is a value
			at := document
			for step := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
				within, _ := at.(map[string]any)
				if at, ok = within[step]; !ok {
					t.Errorf("%s leads nowhere", ref)
					break
				}
			}
		}
		for _, inner := range part {
			resolve(t, document, inner)
		}
	case []any:
		for _, inner := range part {
			resolve(t, document, inner)
		}
	}
}

func documentText(t *testing.T) string {
	t.Helper()
	d := must.Get(NewDocument(streamsOfAllKinds(), Cluster{Brokers: []string{"a:9092"}}))(t)
	return must.Get(d.JSON())(t)
}

// What a stream's settings change in its message.
func TestDocumentOfSettings(t *testing.T) {
	t.Parallel()
	d := must.Get(NewDocument(streamsOfAllKinds(), Cluster{Brokers: []string{"a:9092"}}))(t)
	messages := d.Components.Messages
	if h := messages["any"].Headers; len(h.Properties) != 12 || len(h.Required) != 7 ||
		h.Properties["eb-late"].Pattern == "" {
		t.Errorf("cloudevents: %+v", h)
	}
	if h := messages["a_b-c"].Headers; len(h.Properties) != 5 || cmp.Diff(h.Required,
		[]string{"ce_id", "eb-stream", "eb-origin"}) != "" {
		t.Errorf("minimal: %+v", h)
	}
	if messages["bare"].Headers != nil {
		t.Errorf("none: %+v", messages["bare"].Headers)
	}
	if h := messages["bare.dead-letter"].Headers; len(h.Properties) != 9 || len(h.Required) != 6 {
		t.Errorf("dead letters without headers: %+v", h)
	}
	if messages["a_b-c"].Bindings.Kafka.Key != nil || messages["any"].Bindings.Kafka.Key == nil {
		t.Error("only the stream without KAFKA_KEY=none has a key")
	}
	if c := d.Channels["export.shared"]; len(d.Channels) != 10 || len(c.Messages) != 3 {
		t.Errorf("%d channels, the shared one with %d messages", len(d.Channels), len(c.Messages))
	}
	if got := messages["any.attest"].Payload; got != (reference{"#/components/schemas/exportbridge.attestation"}) {
		t.Errorf("the attestation has the payload %v", got)
	}
	for name, m := range messages {
		encrypted := strings.HasPrefix(name, "any") && name != "any.attest" && name != "any-dead-letter"
		if (m.Encryption != nil) != encrypted || encrypted != (strings.Contains(m.Description, "x-encryption")) &&
			name != "any.dead-letter" || strings.Contains(m.Description, "byte for byte") && encrypted {
			t.Errorf("%s: %q, encryption %+v", name, m.Description, m.Encryption)
		}
	}
	for name, private := range map[string]bool{"any.dead-letter": true, "bare.dead-letter": false} {
		if text := messages[name].Description; strings.Contains(text, "as the API sent it") == private ||
			strings.Contains(text, "rules for private data") != private {
			t.Errorf("%s: %s", name, text)
		}
	}
	for name, schema := range map[string]string{"any": "any", "any.route-1": "any.route-1", "any.route-2": "any"} {
		if got := messages[name].Payload; got != (reference{"#/components/schemas/" + schema}) {
			t.Errorf("%s has the payload %v", name, got)
		}
	}
	want := map[string]any{
		"total": ref("#/components/schemas/a_b-c/$defs/money"), "next": ref("#/components/schemas/a_b-c"),
		"default": ref("#/components/schemas/a_b-c/$defs/money"), "kind": map[string]any{"const": ref("#/x")},
	}
	order := d.Components.Schemas["a_b-c"].(map[string]any)
	if diff := cmp.Diff(want, order["properties"]); diff != "" || order["$id"] != nil || order["$schema"] != nil {
		t.Errorf("schema: %v (-want +got)\n%s", order, diff)
	}
	newer := d.Components.Schemas["newer"].(map[string]any)
	if newer["schemaFormat"] != "application/schema+json;version=2020-12" || newer["schema"].(map[string]any)["$id"] != nil {
		t.Errorf("schema with newer keywords: %v", newer)
	}
	if older := d.Components.Schemas["older"].(map[string]any); older["schemaFormat"] !=
		"application/schema+json;version=draft-04" || older["schema"].(map[string]any)["id"] != nil {
		t.Errorf("schema of draft 4: %v", older)
	}
	if seven := d.Components.Schemas["seven"].(map[string]any); seven["schemaFormat"] !=
		"application/schema+json;version=draft-07" {
		t.Errorf("schema of draft 7, of which a $ref hides the rest: %v", seven)
	}
	if older := d.Components.Schemas["any-dead-letter"].(map[string]any); older["schemaFormat"] != nil {
		t.Errorf("names and values that read like newer keywords: %v", older)
	}
	if len(messages) != 12 || messages["any.dead-letter"].Headers == nil || messages["any-dead-letter"].Headers != nil {
		t.Errorf("a stream and dead letters of another one share a name: %v", messages)
	}
}

// The schema of an encrypted value is that of what takes the place of a value, and of nothing else.
func TestSealedSchema(t *testing.T) {
	t.Parallel()
	schema := must.Get(Compile(sealedSchema))(t)
	var secret seal.Secret
	key := seal.NewKey(seal.KeyID{}, &secret, secret.Nonces())
	for text, want := range map[string]bool{
		string(key.Append(nil, "/a", []byte("1"))): true, string(seal.Forgotten.Append(nil, "/a", []byte("1"))): true,
		"null": true, `""`: true, "1": false, `"a@b"`: false, `"eb1:withheld"`: false, `"eb1:AAAAAAAAAAAA:AAAA"`: false,
	} {
		value := must.Get(jsonschema.UnmarshalJSON(strings.NewReader(text)))(t)
		if err := schema.root.Validate(value); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A reference that a reader of the document cannot follow is an error.
func TestDocumentRefs(t *testing.T) {
	t.Parallel()
	part := strings.Replace(orderSchema, `{"money": {`, `{"money": {"$id": "money", `, 1)
	if _, err := NewDocument([]Stream{{Name: "a", Topic: "a", Key: "none", Schema: part}}, Cluster{}); err == nil ||
		!strings.Contains(err.Error(), "$id money") {
		t.Errorf("$id of a part: %v", err)
	}
	const draft4 = `{"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"a": {"id": "a"}}}`
	if _, err := NewDocument([]Stream{{Name: "a", Topic: "a", Key: "none", Schema: draft4}}, Cluster{}); err == nil ||
		!strings.Contains(err.Error(), "the id a") {
		t.Errorf("id of a part: %v", err)
	}
	for _, ref := range []string{"#money", "https://a.example/order#/$defs/money"} {
		schema := strings.Replace(orderSchema, "#/$defs/money", ref, 1)
		_, err := NewDocument([]Stream{{Name: "a", Topic: "a", Key: "none", Schema: schema}}, Cluster{})
		if err == nil || !strings.Contains(err.Error(), ref) {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

func ref(to string) any { return map[string]any{"$ref": to} }
