package bridgetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"exportbridge/bridge"
)

// Poison fills the memory of released pages. No valid UTF-8 text contains it, so its
// presence proves the use of a released page.
const Poison = 0xfe

// NewPage returns an undecoded page whose memory is poisoned on release.
func NewPage(at bridge.Position, body []byte) *bridge.Page {
	return &bridge.Page{At: at, Body: body, RequestedAt: time.Now(), ArrivedAt: time.Now(), ServerTime: time.Now(),
		Recycle: poisonPage}
}

func poisonPage(p *bridge.Page) {
	poison(p.Body)
	for i := range p.Events {
		e := &p.Events[i]
		for _, b := range [][]byte{e.Raw, e.ID, e.Key, e.Type, e.Subject} {
			poison(b)
		}
	}
}

// poison copies, because the race detector records a write per byte otherwise.
func poison(b []byte) {
	if len(b) == 0 {
		return
	}
	b[0] = Poison
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// DecodePage splits the page's body and sets Next, Events, Items and Source.
func DecodePage(p *bridge.Page) error {
	body := bytes.TrimSpace(p.Body)
	if err := validObject(body); err != nil {
		return malformed(err)
	}
	members := make(map[string]json.RawMessage)
	for name, value := range parts(body) {
		key := string(unquote(name))
		if _, seen := members[key]; seen {
			return malformed(fmt.Errorf("member %q is there twice", key))
		}
		members[key] = value
	}
	var err error
	if p.Next, err = decodeCursor(members["nextCursor"]); err != nil {
		return malformed(err)
	}
	items, err := itemsOf(members)
	if err != nil {
		return malformed(err)
	}
	var metadata struct {
		Organization, Workspace, Application struct{ Slug string }
	}
	if raw, ok := members["metadata"]; ok {
		if err := json.Unmarshal(raw, &metadata); err != nil {
			return malformed(err)
		}
	}
	p.Source = bridge.SourceIdentity{
		Organization: metadata.Organization.Slug, Workspace: metadata.Workspace.Slug, Application: metadata.Application.Slug,
	}
	p.Items = len(items)
	p.Events = make([]bridge.Event, len(items))
	for i, raw := range items {
		p.Events[i] = decodeEvent(raw, i)
	}
	return nil
}

func malformed(err error) error {
	return &bridge.Fault{Class: bridge.Malformed, Code: "decode", Reason: bridge.ReasonSchema,
		Hint: "compare the body with the export API's schema", Err: fmt.Errorf("decode page: %w", err)}
}

func validObject(body []byte) error {
	if !json.Valid(body) {
		return json.Unmarshal(body, new(any)) // to get the error
	}
	if body[0] != '{' {
		return errors.New("body is not an object")
	}
	return nil
}

// parts iterates over the members of an object, or over the items of an array, whose names
// are nil. All are sub-slices of raw, which is valid and begins and ends with its brackets.
// json.Decoder takes ten times as long, and tests read millions of items.
func parts(raw []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		var name []byte
		for i := 1; i < len(raw)-1; i++ {
			if bytes.IndexByte(between, raw[i]) >= 0 {
				continue
			}
			end := endOf(raw, i)
			value := raw[i:end:end]
			i = end - 1
			if raw[0] == '{' && name == nil {
				name = value
				continue
			}
			if !yield(name, value) {
				return
			}
			name = nil
		}
	}
}

// between has the characters that separate values.
var between = []byte(" \t\r\n,:")

// endOf returns the end of the value that begins at i.
func endOf(raw []byte, i int) int {
	for depth := 0; ; i++ {
		switch raw[i] {
		case '"':
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		default:
			if depth == 0 { // a number, true, false or null
				return i + bytes.IndexAny(raw[i:], ",]} \t\r\n")
			}
		}
		if depth == 0 {
			return i + 1
		}
	}
}

// itemsOf returns the items. A page has none if the value is null, or if the page has only
// a cursor and metadata.
func itemsOf(members map[string]json.RawMessage) (items []json.RawMessage, err error) {
	raw, there := members["items"]
	_, cursor := members["nextCursor"]
	_, metadata := members["metadata"]
	switch {
	case string(raw) == "null", !there && cursor && (len(members) == 1 || metadata && len(members) == 2):
		return nil, nil
	case !there || raw[0] != '[':
		return nil, errors.New("items is not an array")
	}
	for _, item := range parts(raw) {
		items = append(items, item)
	}
	return items, nil
}

func decodeCursor(raw json.RawMessage) (string, error) {
	if raw == nil || string(raw) == "null" {
		return "", nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", fmt.Errorf("nextCursor: %w", err)
	}
	const replacement = "\ufffd" // what encoding/json decodes an invalid character to
	if !utf8.Valid(raw) || strings.Contains(s, replacement) && !strings.Contains(string(raw), replacement) {
		return "", errors.New("nextCursor is not valid Unicode")
	}
	return s, nil
}

// decodeEvent is lenient: a part of an item that it cannot read is absent.
func decodeEvent(raw json.RawMessage, index int) bridge.Event {
	e := bridge.Event{Raw: raw, Index: index}
	if raw[0] != '{' {
		e.Defect = bridge.DefectNotObject
		return e
	}
	if !utf8.Valid(raw) {
		e.Defect, e.Time = bridge.DefectBadText, bridge.NoTime
		return e
	}
	var timestamp []byte
	for name, value := range parts(raw) {
		switch string(unquote(name)) {
		case "eventId":
			e.ID = text(value)
		case "userId":
			e.Key, e.Subject = text(value), text(value)
		case "payload":
			e.Type = typeOf(value)
		case "timestamp":
			timestamp = value
		}
	}
	if string(timestamp) == "null" {
		return e
	}
	if n, err := strconv.ParseInt(string(timestamp), 10, 64); err == nil {
		e.Time = n
	} else {
		e.Defect = bridge.DefectTime
	}
	return e
}

func typeOf(payload []byte) (found []byte) {
	if payload[0] == '{' {
		for name, value := range parts(payload) {
			if string(unquote(name)) == "type" {
				found = text(value)
			}
		}
	}
	return found
}

// text returns a copy of the string in raw, or nil if raw is no string.
func text(raw []byte) []byte { return bytes.Clone(unquote(raw)) }

// unquote returns the string in raw, or nil if raw is no string. A string without escapes
// is a sub-slice of raw.
func unquote(raw []byte) []byte {
	if raw[0] != '"' {
		return nil
	}
	if plain := raw[1 : len(raw)-1]; bytes.IndexByte(plain, '\\') < 0 && utf8.Valid(plain) {
		return plain
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil
	}
	return []byte(s)
}

// Answer is the response of an export API to one request.
type Answer struct {
	// Body is the page. It is sent with status 200 as application/json.
	Body string
	// Cut breaks the connection in the middle of Body.
	Cut bool
	// Outage sends status 503 instead of Body.
	Outage bool
	// Hang sends nothing until the client gives up.
	Hang bool
	// Unread is the Unread of the page.
	Unread bridge.Unread
}
