// Package contract describes the records of streams to programs: as an AsyncAPI document
// ([Document]), and as the JSON Schema of events, which it infers from events ([Inference])
// and compares with them ([Schema.Compare]).
package contract

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"exportbridge/bridge"
)

// Config has the settings of a stream's contract.
type Config struct {
	// File is the file that Schema was read from, empty for none.
	File string
	// compiled has what was compiled since Validate, by text. Copies share it.
	compiled *sync.Map

	Schema string `env:"EVENT_SCHEMA" stream:"yes" desc:"JSON Schema of the events, usually from a file: EVENT_SCHEMA_FILE; run compares each event with it and counts those that differ; asyncapi, schema check and schema register use it too; with KAFKA_ROUTES, $defs can have a schema of each topic, by its name"`
}

// Validate checks that the schema is one, for each of the stream's topics.
func (c *Config) Validate(topics []string) error {
	if c.Schema == "" {
		return nil
	}
	c.compiled = new(sync.Map)
	_, err := c.compile(c.Schema)
	if err == nil {
		_, err = c.compileTopics(topics)
	}
	if err != nil {
		hint, file := "", ""
		if c.File != "" {
			file, hint = "(file "+c.File+") ", "; correct the file, or write one: exportbridge schema infer -o FILE"
		} else if !json.Valid([]byte(c.Schema)) && !strings.ContainsAny(c.Schema, "{\n") { // the name of a file
			hint = "; for a file set EVENT_SCHEMA_FILE=events.schema.json"
		}
		return bridge.Problemf("EVENT_SCHEMA", "%sis not a JSON Schema: %v%s", file, err, hint)
	}
	return nil
}

// compile is Compile, once for each text.
func (c *Config) compile(text string) (*Schema, error) {
	if known, ok := c.compiled.Load(text); ok {
		return known.(*Schema), nil
	}
	made, err := Compile(text)
	if err == nil {
		c.compiled.Store(text, made)
	}
	return made, err
}

// compileTopics returns the JSON Schemas of a stream's topics, nil for a topic without one.
func (c *Config) compileTopics(topics []string) ([]*Schema, error) {
	all := make([]*Schema, len(topics))
	for i, topic := range topics {
		of := SchemaOf(c.Schema, topic, topics)
		if of == "" {
			continue
		}
		var err error
		if all[i], err = c.compile(of); err != nil {
			return nil, fmt.Errorf("the schema of topic %s: %w", topic, err)
		}
	}
	return all, nil
}

// SchemaOf returns the JSON Schema of the events of one of a stream's topics: its definition in
// $defs, or the whole schema if there is none. It keeps the definitions that are of no topic or
// that a reference names. It returns none if the schema has definitions of other topics only.
func SchemaOf(text, topic string, topics []string) string {
	var whole, defs, own map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &whole) != nil || json.Unmarshal(whole["$defs"], &defs) != nil {
		return text
	}
	_, defined := defs[topic]
	_ = json.Unmarshal(defs[topic], &own) // true, which is a schema too, is none of its own
	dialect, ofTopics := whole["$schema"], false
	for _, name := range topics {
		_, has := defs[name]
		ofTopics = ofTopics || has
		if !strings.Contains(text, `"#/$defs/`+name) {
			delete(defs, name)
		}
	}
	if own == nil {
		delete(whole, "$schema")
		if !defined && ofTopics && len(whole) == 1 {
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
