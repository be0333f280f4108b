// Package contract describes the records of streams to programs: as an AsyncAPI document
// ([Document]), and as the JSON Schema of events, which it infers from events ([Inference])
// and compares with them ([Schema.Compare]).
package contract

import (
	"encoding/json"
	"net/url"
	"strings"

	"exportbridge/bridge"
)

// Config has the settings of a stream's contract.
type Config struct {
	Schema string `env:"EVENT_SCHEMA" stream:"yes" desc:"JSON Schema of the events for asyncapi, schema check and schema register, usually from a file: EVENT_SCHEMA_FILE; with KAFKA_ROUTES, $defs can have a schema of each topic, by its name; run publishes events whether they fit it or not"`
}

// Validate checks that the schema is one.
func (c *Config) Validate() error {
	if c.Schema == "" {
		return nil
	}
	if _, err := Compile(c.Schema); err != nil {
		hint := ""
		if !json.Valid([]byte(c.Schema)) && !strings.ContainsAny(c.Schema, "{\n") { // the name of a file
			hint = "; for a file set EVENT_SCHEMA_FILE=events.schema.json"
		}
		return bridge.Problemf("EVENT_SCHEMA", "is not a JSON Schema: %v%s", err, hint)
	}
	return nil
}

// SchemaOf returns the JSON Schema of the events of one of a stream's topics: its definition in
// $defs, or the whole schema if there is none. It keeps the definitions that are of no topic. It
// returns none if the schema has definitions of other topics only.
func SchemaOf(text, topic string, topics []string) string {
	var whole, defs, own map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &whole) != nil || json.Unmarshal(whole["$defs"], &defs) != nil {
		return text
	}
	_, defined := defs[topic]
	_ = json.Unmarshal(defs[topic], &own) // true, which is a schema too, is none of its own
	dialect, all := whole["$schema"], len(defs)
	for _, name := range topics {
		delete(defs, name)
	}
	if own == nil {
		delete(whole, "$schema")
		if !defined && len(defs) < all && len(whole) == 1 {
			return ""
		}
		return text
	}
	if dialect != nil && own["$schema"] == nil {
		own["$schema"] = dialect
	}
	if kept, err := json.Marshal(defs); err == nil && len(defs) > 0 && own["$defs"] == nil {
		own["$defs"] = kept
	}
	made, err := json.Marshal(own)
	if err != nil {
		return text
	}
	return string(made)
}

// Registry has the settings of a schema registry.
type Registry struct {
	URLs     []string      `env:"SCHEMA_REGISTRY_URL" desc:"addresses of the schema registry that schema register uses" example:"https://registry.example:8081"`
	User     string        `env:"SCHEMA_REGISTRY_USERNAME" desc:"user name for the schema registry"`
	Password bridge.Secret `env:"SCHEMA_REGISTRY_PASSWORD" secret:"yes" desc:"password for the schema registry"`
	CA       string        `env:"SCHEMA_REGISTRY_TLS_CA" desc:"trusted CA certificates (PEM) of the schema registry; empty for the system's"`
}

// Validate checks what can be checked without the registry.
func (r *Registry) Validate() error {
	var p bridge.Problems
	for _, address := range r.URLs {
		u, err := url.Parse(address)
		p.Check(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil,
			"SCHEMA_REGISTRY_URL", "must list http and https URLs without a user, for example https://registry.example:8081")
	}
	p.Check((r.User == "") == (r.Password == ""), "SCHEMA_REGISTRY_PASSWORD",
		"and SCHEMA_REGISTRY_USERNAME must be set together; set SCHEMA_REGISTRY_PASSWORD_FILE")
	p.Add(r.TLS().Validate())
	return p.Err()
}

// TLS returns what connections to the registry trust.
func (r *Registry) TLS() bridge.ClientTLS {
	return bridge.ClientTLS{Prefix: "SCHEMA_REGISTRY_TLS", CA: r.CA}
}
