package records

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/kafkarecord"
	"exportbridge/cmd/internal/process"
)

const recordTime = "2006-01-02T15:04:05.000Z"

// newRecordPrinter returns a function that appends a record in the form of the options,
// as a line of at most this width; 0 is no limit. For a terminal, misleading characters
// are escaped in JSON and replaced elsewhere.
func newRecordPrinter(o *tailOptions, width int, terminal bool) (func([]byte, *kgo.Record) []byte, error) {
	switch {
	case (o.json || o.format == "json") && terminal:
		return func(to []byte, r *kgo.Record) []byte {
			return append(to, process.PrintableJSON(string(appendRecordJSON(nil, r)))...)
		}, nil
	case o.json, o.format == "json": // as rpk has it
		return appendRecordJSON, nil
	case o.format != "":
		f, err := kgo.NewRecordFormatter(o.format)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", o.format, err)
		}
		if !terminal {
			return f.AppendRecord, nil
		}
		return func(to []byte, r *kgo.Record) []byte {
			line := bytes.NewBuffer(to)
			_, _ = process.Text{To: line}.Write(f.AppendRecord(nil, r)) // into memory
			return line.Bytes()
		}, nil
	}
	return func(to []byte, r *kgo.Record) []byte {
		line := recordLine(r, o.meta, o.several)
		if width > 0 {
			line = process.Cut(line, width)
		}
		return append(append(to, line...), '\n')
	}, nil
}

// recordLine is a record in one line: time, topic if there are several, place, key, type,
// origin, value.
func recordLine(r *kgo.Record, meta, several bool) string {
	key := "-"
	if r.Key != nil {
		key = string(r.Key)
	}
	parts := []string{r.Timestamp.UTC().Format(recordTime)}
	if several {
		parts = append(parts, r.Topic)
	}
	parts = append(parts, fmt.Sprintf("%d@%d", r.Partition, r.Offset), key,
		cmp.Or(shortType(TypeOf(r)), "-"), cmp.Or(deadletter.Header(r, kafkarecord.HeaderOrigin), "-"))
	if wrong := deadletter.Header(r, kafkarecord.HeaderErrorMessage); wrong != "" {
		parts = append(parts, fmt.Sprintf("[%s: %s]", deadletter.Header(r, kafkarecord.HeaderReason), wrong))
	}
	if meta {
		for _, h := range r.Headers {
			parts = append(parts, h.Key+"="+string(h.Value))
		}
	}
	return process.Printable(strings.Join(append(parts, valueText(r.Value)), "  "))
}

// valueText is a value on one line.
func valueText(value []byte) string {
	if value == nil {
		return "(tombstone)"
	}
	var b bytes.Buffer
	if bytes.ContainsAny(value, "\r\n\t") && json.Compact(&b, value) == nil {
		return b.String()
	}
	return string(value)
}

// TypeOf is the full type of a record, from its header or else from the event; "" if
// it has none.
func TypeOf(r *kgo.Record) string {
	if full := deadletter.Header(r, kafkarecord.HeaderType); full != "" {
		return full
	}
	var event struct {
		Payload struct {
			Type   string `json:"type"`
			AtType string `json:"@type"`
		} `json:"payload"`
	}
	if json.Unmarshal(r.Value, &event) != nil {
		return ""
	}
	return cmp.Or(event.Payload.Type, event.Payload.AtType)
}

// shortType is the last part of a type: orderPlaced of com.croct.event.orderPlaced.
func shortType(full string) string {
	return full[strings.LastIndexByte(full, '.')+1:]
}

// recordJSON is a record as one JSON document.
type recordJSON struct {
	Topic     string            `json:"topic"`
	Partition int32             `json:"partition"`
	Offset    int64             `json:"offset"`
	Time      time.Time         `json:"time"`
	Key       *string           `json:"key"`
	Headers   map[string]string `json:"headers"`
	Value     json.RawMessage   `json:"value,omitempty"`
	// Base64 is a value that is neither JSON nor text.
	Base64 string `json:"value_base64,omitempty"`
}

// appendRecordJSON appends a record as a line of JSON. It keeps the numbers and the order
// of members of the value.
func appendRecordJSON(to []byte, r *kgo.Record) []byte {
	doc := recordJSON{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Time: r.Timestamp.UTC(),
		Headers: make(map[string]string, len(r.Headers)),
	}
	if r.Key != nil {
		key := string(r.Key)
		doc.Key = &key
	}
	for _, h := range r.Headers {
		doc.Headers[h.Key] = string(h.Value)
	}
	switch {
	case r.Value == nil:
		doc.Value = json.RawMessage("null")
	case json.Valid(r.Value):
		doc.Value = r.Value
	case utf8.Valid(r.Value):
		doc.Value, _ = json.Marshal(string(r.Value)) // text always encodes
	default:
		doc.Base64 = base64.StdEncoding.EncodeToString(r.Value)
	}
	b := bytes.NewBuffer(to)
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(&doc) // every field encodes, into memory
	return b.Bytes()
}
