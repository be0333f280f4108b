package contract

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"exportbridge/bridge/kafkarecord"
)

// Stream is what a Document says of a stream.
type Stream struct {
	Name, Topic string
	// Routed are the topics of routes.
	Routed []string
	// DeadTopic is the dead-letter topic; empty leaves it out.
	DeadTopic string
	// AttestTopic is the topic of the attestation, empty for none.
	AttestTopic string
	// Key is the JSON pointer to the record key, or none. Headers is the value of
	// BRIDGE_HEADERS.
	Key, Headers string
	// Late reports whether the stream marks late events.
	Late bool
	// Schema is the JSON Schema of the events, empty for any.
	Schema string
	// Private is set if rules for private data change events. Encrypted are the JSON pointers of
	// encrypted values, KeysTopic the topic of their keys.
	Private   bool
	Encrypted []string
	KeysTopic string
}

// Cluster is what a Document says of Kafka.
type Cluster struct {
	Brokers []string
	TLS     bool
}

// Document is an AsyncAPI 3 document. Its JSON form is the document.
type Document struct {
	AsyncAPI           string               `json:"asyncapi"`
	Info               info                 `json:"info"`
	DefaultContentType string               `json:"defaultContentType"`
	Servers            map[string]server    `json:"servers"`
	Channels           map[string]channel   `json:"channels"`
	Operations         map[string]operation `json:"operations"`
	Components         components           `json:"components"`
}

type info struct {
	Title       string `json:"title"`
	Version     string `json:"version"`
	Description string `json:"description"`
}

type server struct {
	Host     string `json:"host"`
	Protocol string `json:"protocol"`
}

type channel struct {
	Address  string               `json:"address"`
	Messages map[string]reference `json:"messages"`
	Bindings kafkaBinding         `json:"bindings"`
}

type operation struct {
	Action   string      `json:"action"`
	Channel  reference   `json:"channel"`
	Messages []reference `json:"messages"`
}

type components struct {
	Messages map[string]message `json:"messages"`
	Schemas  map[string]any     `json:"schemas,omitempty"`
}

type message struct {
	Title       string       `json:"title"`
	Description string       `json:"description"`
	ContentType string       `json:"contentType,omitempty"`
	Headers     *headers     `json:"headers,omitempty"`
	Payload     any          `json:"payload"`
	Bindings    kafkaBinding `json:"bindings"`
	Encryption  *encryption  `json:"x-encryption,omitempty"`
}

// encryption is an extension: it says which values of a payload are encrypted.
type encryption struct {
	Pointers  []string  `json:"pointers"`
	Value     reference `json:"value"`
	KeysTopic string    `json:"keysTopic"`
}

type headers struct {
	Type       string            `json:"type"`
	Required   []string          `json:"required,omitempty"`
	Properties map[string]header `json:"properties"`
}

type header struct {
	Type        string   `json:"type"`
	Description string   `json:"description"`
	Enum        []string `json:"enum,omitempty"`
	Format      string   `json:"format,omitempty"`
	Pattern     string   `json:"pattern,omitempty"`
}

type kafkaBinding struct {
	Kafka binding `json:"kafka"`
}

type binding struct {
	Topic   string `json:"topic,omitempty"`
	Key     *key   `json:"key,omitempty"`
	Version string `json:"bindingVersion"`
}

type key struct {
	Type        []string `json:"type"`
	Description string   `json:"description"`
}

type reference struct {
	Ref string `json:"$ref"`
}

// anything is the schema true, which the schema of AsyncAPI rejects as a payload.
var anything = struct{}{}

const bindingVersion = "0.5.0"

// about describes what all streams have in common.
const about = `Topics that exportbridge publishes. Read them with isolation.level=read_committed. ` +
	`Records of one key are in the order of the export. Deduplicate by ce_id together with ce_source. ` +
	`The timestamp of a record is the event time, or the publish time where the topic would not keep the event; ` +
	`it can go back. The value of a header is text in UTF-8.`

// NewDocument describes streams of one cluster.
func NewDocument(streams []Stream, kafka Cluster) (*Document, error) {
	d := &Document{
		AsyncAPI: "3.0.0", Info: info{"exportbridge", "1.0.0", about}, DefaultContentType: "application/json",
		Servers: make(map[string]server), Channels: make(map[string]channel), Operations: make(map[string]operation),
		Components: components{Messages: make(map[string]message), Schemas: make(map[string]any)},
	}
	protocol := "kafka"
	if kafka.TLS {
		protocol = "kafka-secure"
	}
	for i, broker := range kafka.Brokers {
		d.Servers[fmt.Sprintf("kafka-%d", i+1)] = server{broker, protocol}
	}
	for i := range streams {
		if err := d.describe(&streams[i]); err != nil {
			return nil, fmt.Errorf("stream %s: %w", streams[i].Name, err)
		}
	}
	return d, nil
}

func (d *Document) describe(s *Stream) error {
	topics, whole := append([]string{s.Topic}, s.Routed...), ""
	value := "The value is the event as the API sent it, byte for byte."
	letter := "An item that could not be published. The value is the item as the API sent it, which may not be JSON, " +
		"or a JSON object with its size, hash and place if it is too large for the topic."
	if s.Private {
		value = "The value is the event as the API sent it, after rules for private data; the header eb-redacted names them."
		letter = "An item that could not be published. The value is the item after rules for private data, or a JSON " +
			"object with its size, hash and place: if a rule cannot be applied, or if the item is no JSON object or too " +
			"large for the topic."
	}
	sealed, err := d.encryption(s)
	if err != nil {
		return err
	}
	if sealed != nil {
		value += " x-encryption says which values are encrypted; in a pointer, * stands for each element of an array."
	}
	for i, topic := range topics {
		event := message{
			Title: "Event of stream " + s.Name, ContentType: d.DefaultContentType,
			Description: value, Headers: describeHeaders(s.headers(nil)), Payload: anything, Bindings: s.key(),
			Encryption: sealed,
		}
		name := s.Name
		if i > 0 {
			name = fmt.Sprintf("%s.route-%d", s.Name, i)
		}
		if text := SchemaOf(s.Schema, topic, topics); text != "" {
			of := name
			if text == s.Schema { // topics share it
				whole = cmp.Or(whole, name)
				of = whole
			}
			if event.Payload, err = d.schema(of, text); err != nil {
				return err
			}
		}
		d.add(name, topic, event)
	}
	if s.AttestTopic != "" {
		if err := d.attestation(s); err != nil {
			return err
		}
	}
	if s.DeadTopic != "" {
		d.add(s.Name+".dead-letter", s.DeadTopic, message{ // a stream has no dot in its name
			Title:       "Dead letter of stream " + s.Name,
			Description: letter,
			Headers:     describeHeaders(s.headers(kafkarecord.DeadLetterHeaders())), Payload: anything, Bindings: s.key(),
			Encryption: sealed,
		})
	}
	return nil
}

// schema adds a JSON Schema with a name, and returns the reference to it.
func (d *Document) schema(name, text string) (any, error) {
	made, err := embedded(text, "#/components/schemas/"+name)
	if err != nil {
		return nil, err
	}
	d.Components.Schemas[name] = made
	return reference{"#/components/schemas/" + name}, nil
}

// sealedSchema is the JSON Schema of the string in place of an encrypted value.
//
//go:embed sealed.schema.json
var sealedSchema string

// encryption describes the values of EVENT_ENCRYPT, nil for none.
func (d *Document) encryption(s *Stream) (*encryption, error) {
	if len(s.Encrypted) == 0 {
		return nil, nil //nolint:nilnil // no encryption, and no error
	}
	const name = "exportbridge.encrypted-value" // a stream has no dot in its name
	_, err := d.schema(name, sealedSchema)
	return &encryption{s.Encrypted, reference{"#/components/schemas/" + name}, s.KeysTopic}, err
}

// attestSchema is the JSON Schema of an attest.Record.
//
//go:embed attest.schema.json
var attestSchema string

// attestation describes the records of BRIDGE_ATTEST.
func (d *Document) attestation(s *Stream) error {
	payload, err := d.schema("exportbridge.attestation", attestSchema) // a stream has no dot in its name
	if err != nil {
		return err
	}
	own := Stream{Headers: "cloudevents"}
	all := own.headers(nil)
	for i := range all {
		if h := &all[i]; h.Name == kafkarecord.HeaderOrigin {
			h.Values, h.Meaning = []string{"attest"}, "how the record was published: by BRIDGE_ATTEST"
		}
	}
	d.add(s.Name+".attest", s.AttestTopic, message{
		Title: "Attestation of stream " + s.Name, ContentType: d.DefaultContentType,
		Description: "What the API listed of a past period, and what of it the topics have. Each record has the hash of " +
			"the value of the one before.",
		Headers: describeHeaders(all), Payload: payload,
		Bindings: kafkaBinding{binding{Version: bindingVersion, Key: &key{[]string{"string"}, "The name of the stream."}}},
	})
	return nil
}

// add adds a message and its operation to the channel of a topic, which streams may share.
func (d *Document) add(name, topic string, m message) {
	d.Components.Messages[name] = m
	c, ok := d.Channels[topic]
	if !ok {
		c = channel{
			Address: topic, Messages: make(map[string]reference),
			Bindings: kafkaBinding{binding{Topic: topic, Version: bindingVersion}},
		}
		d.Channels[topic] = c
	}
	c.Messages[name] = reference{"#/components/messages/" + name}
	at := "#/channels/" + topic
	d.Operations["publish-"+name] = operation{"send", reference{at}, []reference{{at + "/messages/" + name}}}
}

func (s *Stream) key() kafkaBinding {
	b := binding{Version: bindingVersion}
	if s.Key != "none" {
		b.Key = &key{[]string{"string", "null"},
			"The value at " + s.Key + " of the event, as text. An event without it has a record without a key."}
	}
	return kafkaBinding{b}
}

// headers returns the headers of the stream's records. Those of dead letters, which are
// cut where an item is too large, have letter too.
func (s *Stream) headers(letter []kafkarecord.Header) []kafkarecord.Header {
	all := letter
	for _, h := range kafkarecord.EventHeaders() {
		named := s.Headers == "cloudevents" || s.Headers == "minimal" && h.Minimal
		if letter != nil { // by this header the bridge finds the stream's dead letters
			h.Always = h.Name == kafkarecord.HeaderStream
			named = named || h.Always
		}
		if named && (h.Name != kafkarecord.HeaderLate || s.Late) {
			all = append(all, h)
		}
	}
	return all
}

// describeHeaders returns the schema of headers, nil for none.
func describeHeaders(all []kafkarecord.Header) *headers {
	if len(all) == 0 {
		return nil
	}
	h := &headers{Type: "object", Properties: make(map[string]header)}
	for i := range all {
		of := header{Type: "string", Description: all[i].Meaning, Enum: all[i].Values, Format: all[i].Form}
		if of.Format == "integer" {
			of.Format, of.Pattern = "", "^[0-9]+$"
		}
		h.Properties[all[i].Name] = of
		if all[i].Always {
			h.Required = append(h.Required, all[i].Name)
		}
	}
	return h
}

// embedded returns a JSON Schema as a part of a document, where it stands at a pointer.
func embedded(text, at string) (any, error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var schema any
	if err := decoder.Decode(&schema); err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	switch schema {
	case true:
		return anything, nil
	case false:
		return map[string]any{"not": anything}, nil
	}
	object := schema.(map[string]any) // else Compile had rejected it
	dialect, _ := object["$schema"].(string)
	version, id := "2020-12", "$id"
	for _, draft := range []string{"draft-04", "draft-06", "draft-07", "2019-09"} {
		if strings.Contains(dialect, draft) {
			version = draft
		}
	}
	other := version == "draft-04"
	if other {
		id = "id"
	}
	delete(object, id) // references begin at the document
	_ = walk(object, func(part map[string]any) error {
		other = other || usesNewer(part)
		return nil
	})
	if other {
		at += "/schema"
	}
	err := walk(object, func(part map[string]any) error { return moveRef(part, id, at) })
	if err != nil || other {
		return map[string]any{"schemaFormat": "application/schema+json;version=" + version, "schema": object}, err
	}
	delete(object, "$schema")
	return object, nil
}

// walk calls visit with a schema and with the schemas within it.
func walk(schema any, visit func(map[string]any) error) error {
	switch schema := schema.(type) {
	case map[string]any:
		if err := visit(schema); err != nil {
			return err
		}
		for keyword, part := range schema {
			if slices.Contains([]string{"const", "enum", "default", "examples"}, keyword) { // they hold values
				continue
			}
			parts := []any{part}
			if named, ok := part.(map[string]any); ok && slices.Contains(mapsOfSchemas, keyword) {
				parts = slices.Collect(maps.Values(named))
			}
			if err := walk(parts, visit); err != nil {
				return err
			}
		}
	case []any:
		for _, part := range schema {
			if err := walk(part, visit); err != nil {
				return err
			}
		}
	}
	return nil
}

// mapsOfSchemas are the keywords whose members are names, and not keywords.
var mapsOfSchemas = []string{
	"properties", "patternProperties", "dependencies", "dependentSchemas", "dependentRequired", "$defs", "definitions",
}

// newer are the keywords that the schemas of AsyncAPI, which extend draft 7, lack.
var newer = []string{
	"prefixItems", "unevaluatedProperties", "unevaluatedItems", "dependentSchemas", "dependentRequired", "minContains",
	"maxContains", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef",
}

// usesNewer reports whether a schema, without those within it, is not one of AsyncAPI too.
// Those tools read that know no other format.
func usesNewer(schema map[string]any) bool {
	_, refers := schema["$ref"].(string)
	return refers && len(schema) > 1 || // draft 7 ignores the others
		slices.ContainsFunc(newer, func(keyword string) bool { _, ok := schema[keyword]; return ok })
}

// moveRef has a reference within the schema of the events begin at a pointer: in a document,
// # is the document. id is the keyword that would give a part another base.
func moveRef(schema map[string]any, id, at string) error {
	if base, ok := schema[id].(string); ok {
		return fmt.Errorf("a part of the schema has the %s %s; remove it, and refer to the part by a pointer", id, base)
	}
	if ref, ok := schema["$ref"].(string); ok {
		if ref != "#" && !strings.HasPrefix(ref, "#/") {
			return fmt.Errorf("the schema refers to %s; a document needs a pointer such as #/$defs/name", ref)
		}
		schema["$ref"] = at + ref[1:]
	}
	return nil
}

// JSON returns the document as indented JSON.
func (d *Document) JSON() (string, error) {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(d)
	return text.String(), err
}

// YAML returns the document as YAML.
func (d *Document) YAML() (string, error) {
	text, err := d.JSON()
	if err != nil {
		return "", err
	}
	return yamlOf(strings.NewReader(text))
}
