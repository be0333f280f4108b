package bridgetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"exportbridge/bridge"
)

// Poison fills the memory of released pages. It is in no valid UTF-8 text, so
// whoever shows it has used a page after its release.
const Poison = 0xfe

// NewPage returns an undecoded page whose memory is poisoned on release.
func NewPage(at bridge.Position, body []byte) *bridge.Page {
	return &bridge.Page{At: at, Body: body, Size: int64(len(body)), RequestedAt: time.Now(), ArrivedAt: time.Now(), ServerTime: time.Now(), Recycle: poisonPage}
}

func poisonPage(p *bridge.Page) {
	for i := range p.Body {
		p.Body[i] = Poison
	}
	for i := range p.Events {
		e := &p.Events[i]
		for _, b := range [][]byte{e.Raw, e.ID, e.Key, e.Type, e.Subject} {
			for j := range b {
				b[j] = Poison
			}
		}
	}
}

// DecodePage splits the page's body and sets Next, Events, Items and Source.
func DecodePage(p *bridge.Page) error {
	members, twice, err := splitObject(p.Body)
	if err == nil && twice != "" {
		err = fmt.Errorf("member %q is there twice", twice)
	}
	if err != nil {
		return malformed(err)
	}
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

// splitObject returns the members of the one object in body as sub-slices of
// it, by their names in exactly this case, and a name that is there twice.
func splitObject(body []byte) (members map[string]json.RawMessage, twice string, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, "", fmt.Errorf("body begins with %v, want an object: %w", t, orUnexpected(err))
	}
	members = make(map[string]json.RawMessage)
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, "", err
		}
		key, ok := name.(string)
		if !ok {
			return nil, "", fmt.Errorf("member name is %v", name)
		}
		if _, seen := members[key]; seen {
			twice = key
		}
		if members[key], err = nextValue(d, body); err != nil {
			return nil, "", fmt.Errorf("member %q: %w", key, err)
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, "", err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, "", errors.New("body goes on after the object")
	}
	return members, twice, nil
}

// itemsOf returns the items: none where null stands for them, or where nothing does
// and the page has nothing but a cursor and its metadata.
func itemsOf(members map[string]json.RawMessage) ([]json.RawMessage, error) {
	raw, there := members["items"]
	_, cursor := members["nextCursor"]
	if _, metadata := members["metadata"]; string(raw) == "null" || !there && cursor && (len(members) == 1 || metadata && len(members) == 2) {
		return nil, nil
	}
	return splitArray(raw)
}

func splitArray(body json.RawMessage) ([]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, fmt.Errorf("items is %v, want an array: %w", t, orUnexpected(err))
	}
	var items []json.RawMessage
	for d.More() {
		item, err := nextValue(d, body)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", len(items), err)
		}
		items = append(items, item)
	}
	_, err := d.Token()
	return items, err
}

// nextValue returns the decoder's next value as a sub-slice of body, which the
// decoder reads from its beginning.
func nextValue(d *json.Decoder, body []byte) (json.RawMessage, error) {
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return nil, err
	}
	end := int(d.InputOffset())
	begin := end - len(raw)
	return body[begin:end:end], nil
}

func orUnexpected(err error) error {
	if err == nil {
		return errors.New("unexpected token")
	}
	return err
}

func decodeCursor(raw json.RawMessage) (string, error) {
	if raw == nil || string(raw) == "null" {
		return "", nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", fmt.Errorf("nextCursor: %w", err)
	}
	const replacement = "\ufffd" // what encoding/json makes of a broken character
	if !utf8.Valid(raw) || strings.Contains(s, replacement) && !strings.Contains(string(raw), replacement) {
		return "", errors.New("nextCursor is not valid Unicode")
	}
	return s, nil
}

// decodeEvent is lenient: what it cannot read of an item is absent.
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
	fields, _, _ := splitObject(raw)
	e.ID, e.Key, e.Subject = text(fields["eventId"]), text(fields["userId"]), text(fields["userId"])
	if payload := fields["payload"]; len(payload) > 0 && payload[0] == '{' {
		members, _, _ := splitObject(payload)
		e.Type = text(members["type"])
	}
	if err := json.Unmarshal(fields["timestamp"], &e.Time); err != nil {
		e.Defect = bridge.DefectTime
	}
	return e
}

// text returns the string in raw, or nil where raw is none.
func text(raw json.RawMessage) []byte {
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		return nil
	}
	return []byte(*s)
}

// Answer is what an export API sends back for one request.
type Answer struct {
	// Body is the page. It goes out with status 200 as application/json.
	Body string
	// Cut breaks the connection in the middle of Body.
	Cut bool
	// Outage sends status 503 instead of Body.
	Outage bool
	// Hang sends nothing until the client gives up.
	Hang bool
	// Rest, if not nil, holds the second half of Body, or what Cut does, back
	// until it is closed or the client gives up.
	Rest <-chan struct{}
}
