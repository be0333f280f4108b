package config

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"exportbridge/bridge/bridgetest/must"
)

// compileSchema returns a function that reports what is wrong with settings,
// after the way through the JSON that people get.
func compileSchema(t *testing.T, vars []Variable) func(map[string]any) error {
	t.Helper()
	return compile(t, Schema(vars))
}

func compile(t *testing.T, s *jsonSchema) func(map[string]any) error {
	t.Helper()
	text := must.Get(json.Marshal(s))(t)
	document := must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(text)))(t)
	// Compiling also checks the schema against the one of its dialect.
	compiler := jsonschema.NewCompiler()
	must.Do(t, compiler.AddResource("settings.json", document))
	schema := must.Get(compiler.Compile("settings.json"))(t)
	if schema.DraftVersion != 2020 {
		t.Errorf("the schema is of draft %d, want 2020", schema.DraftVersion)
	}
	return func(settings map[string]any) error { return schema.Validate(settings) }
}

// TestSchemaKnowsOurSettings: the output of config env is valid, variable by
// variable, and so are the forms of a file and of a stream.
func TestSchemaKnowsOurSettings(t *testing.T) {
	t.Parallel()
	vars := Variables()
	valid := compileSchema(t, vars)
	for _, v := range vars {
		settings := map[string]any{v.Name: v.example()}
		if v.stream {
			settings["STREAM_USERS_EVENTS_"+v.Name] = v.example()
			settings["STREAM_X_"+v.Name+"_FILE"] = "/run/secrets/x"
		}
		if err := valid(settings); err != nil {
			t.Errorf("%v: %v", settings, err)
		}
		if !v.stream && valid(map[string]any{"STREAM_USERS_" + v.Name: v.example()}) == nil {
			t.Errorf("%s can be set for a stream", v.Name)
		}
		if err := valid(map[string]any{v.Name + "_FILE": "/run/secrets/x", v.Name: ""}); err != nil {
			t.Errorf("%s from a file: %v", v.Name, err)
		}
		if valid(map[string]any{v.Name + "_FILE": "/run/secrets/x", v.Name: v.example() + "1"}) == nil {
			t.Errorf("%s can be given twice", v.Name)
		}
	}
}

// TestSchemaRefuses: the schema rejects obvious mistakes.
func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	valid := compileSchema(t, Variables())
	for _, settings := range []map[string]any{
		{"EXPORT_PAGE_SISE": "5"},
		{"EXPORT_PAGE_SIZE": "many"},
		{"EXPORT_PAGE_SIZE": 1.5},
		{"EXPORT_TIMEOUT": 30},
		{"KAFKA_DELIVERY": "twice"},
		{"KAFKA_CREATE_TOPICS": "yes"},
		{"KAFKA_BROKERS": []any{"localhost:9092"}},
	} {
		if err := valid(settings); err == nil {
			t.Errorf("%v is valid", settings)
		}
	}
	for _, settings := range []map[string]any{
		{"EXPORT_PAGE_SIZE": 500, "KAFKA_CREATE_TOPICS": true},
		{"EXPORT_API_KEY": "", "EXPORT_TIMEOUT": ""},
	} {
		if err := valid(settings); err != nil {
			t.Errorf("%v: %v", settings, err)
		}
	}
}

// TestSchemaAgreesWithDecode: for every kind of setting, the schema accepts the values that
// the program accepts. It rejects the others, except numbers out of range.
func TestSchemaAgreesWithDecode(t *testing.T) {
	t.Parallel()
	texts := []string{
		"", "0", "1", "-1", "+1", "007", "1.5", ".5", "1e3", "99999999999999999999", "x", "true", "TRUE", "tRUE", "yes", "f",
		"30s", "-30s", "1h30m", "1.5h", ".5s", "7d", "1d12h", "-1d", "d", "1d0", "1 d", "30", "30 s", "1d-2h", "--1s", "5µs",
		"s", "PT30S", "P1DT12H", "-PT2H30M", "PT1.5S", "P1D", "P", "PT", "P1DT", "P1Y", "PT5M1H", "pt30s", "1dPT2H", "-",
		"64MiB", "64 MiB", "10mb", "1.5GB", "1,000", "1,000 kB", "5 bananas", "MiB", "-5MiB", "1k",
		"red", "green", "blue", "red,green", " red , green", "red,,green", "red green", "RED", ",",
	}
	misses := []string{"99999999999999999999", "-1", "1,000", ",", "1.5", ".5", "1e3"}
	vars := shopVariables()
	valid := compileSchema(t, vars)
	for _, v := range vars {
		for _, text := range texts {
			_, decoding := v.parse(text)
			schema := valid(map[string]any{v.Name: text})
			switch {
			case decoding == nil && schema != nil:
				t.Errorf("%s=%q is right, and the schema says %v", v.Name, text, schema)
			case decoding != nil && schema == nil && !slices.Contains(misses, text) &&
				!strings.Contains(decoding.Error(), "out of range"):
				t.Errorf("%s=%q is wrong (%v), and the schema takes it", v.Name, text, decoding)
			}
		}
	}
}

// TestSchemaMarksSecrets: the schema marks every secret.
func TestSchemaMarksSecrets(t *testing.T) {
	t.Parallel()
	for _, v := range Variables() {
		if s := v.schema(); s.WriteOnly != v.Secret {
			t.Errorf("%s: writeOnly is %v", v.Name, s.WriteOnly)
		}
	}
	if text, err := json.Marshal(Schema(nil)); err != nil ||
		!bytes.Contains(text, []byte(`"additionalProperties":false`)) {
		t.Errorf("%s %v", text, err)
	}
}

// TestFileSchema: editors accept what the program accepts, and show most mistakes.
func TestFileSchema(t *testing.T) {
	t.Parallel()
	valid := compile(t, FileSchema(Variables()))
	check := func(text string) error {
		var file map[string]any
		must.Do(t, yaml.Unmarshal([]byte(text), &file))
		return valid(file)
	}
	for _, text := range []string{
		"settings:\n  KAFKA_BROKERS: [a:1, b:2]\n  EXPORT_PAGE_SIZE: 500\n  EXPORT_RATE_LIMIT: 5/s\n  EXPORT_PARAMS: a=b\n  " +
			"REDIS_URL: redis://redis:6379\nstreams:\n  events:\n  users: {EXPORT_API_KEY_FILE: key}",
		"templates:\n- for: tenants.txt\n  settings: {EXPORT_URL: 'https://{name}.example.com'}\n  overrides: {acme: " +
			"{EXPORT_PAGE_SIZE: 7}}\n- for: [a, b]",
	} {
		if err := check(text); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
	for _, text := range []string{
		"setings: {}", "settings: {EXPORT_PAGE_SIZE: many}", "settings: {EXPORT_API_KEY: sesame}",
		"settings: {BRIDGE_STREAMS: events}", "streams: {events: {HTTP_ADDR: 'off'}}",
		"streams: {Events: {}}", "templates: [{settings: {}}]", "templates: [{for: []}]",
		"settings: {KAFKA_TLS_CA: a, KAFKA_TLS_CA_FILE: b}", "settings: {EXPORT_TIMEOUT: [1s]}",
		"settings: {EXPORT_RATE_LIMIT: 5}",
	} {
		if check(text) == nil {
			t.Errorf("valid: %s", text)
		}
	}
}
