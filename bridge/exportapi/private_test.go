package exportapi_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi"
)

// privateKeys are two lines of EVENT_HASH_KEY.
var privateKeys = "k1 " + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32)) +
	"\nk2 " + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{2}, 32))

func withKeys(vars map[string]string) map[string]string {
	vars["EVENT_HASH_KEY"] = privateKeys
	return vars
}

// TestPrivate: what the topic gets has no private data, wherever it was in the item, and the
// values of the record are those of the changed item.
func TestPrivate(t *testing.T) {
	t.Parallel()
	const item = `{"eventId":"secret-id","userId":"secret-user","timestamp":1,"payload":{"type":"secret-type","n":1.0},` +
		`"context":{"ip":"secret-ip"}}`
	c := serve(t, answer(`{"items":[`+item+`]}`), withKeys(map[string]string{
		"EVENT_HASH": "/eventId,/userId", "EVENT_MASK": "/payload/type:last4", "EVENT_DROP": "/context/ip",
	}))
	p := must.Get(fetchAll(t, c, bridge.Position{}))(t)
	e := &p.Events[0]
	for name, text := range map[string][]byte{
		"raw": e.Raw, "id": e.ID, "key": e.Key, "type": e.Type, "subject": e.Subject,
	} {
		if len(text) == 0 || bytes.Contains(text, []byte("secret")) {
			t.Errorf("%s is %q", name, text)
		}
		if !bytes.Contains(e.Raw, text) {
			t.Errorf("%s is %q, which the item lacks: %s", name, text, e.Raw)
		}
	}
	if e.Defect != "" || e.Time != 1 || !bytes.HasSuffix(e.Raw, []byte(`,"n":1.0},"context":{}}`)) {
		t.Errorf("%s, defect %q, time %d", e.Raw, e.Defect, e.Time)
	}
	if again, err := c.DecodeRecord(e.Raw, string(e.ID)); err != nil || !bytes.Equal(again.Events[0].Raw, e.Raw) ||
		!bytes.Equal(again.Events[0].ID, e.ID) {
		t.Errorf("DecodeRecord: %+v, %v; want the event again", again, err)
	}
}

// TestPrivateValues: the values of an event are what a reader of its record finds, whatever
// kind of value was hashed.
func TestPrivateValues(t *testing.T) {
	t.Parallel()
	var items []string
	for _, user := range []string{
		`"u"`, `"\u0075"`, `""`, `null`, `7`, `true`, "\"u\x7f\"", `"u","user":"v"`,
		`null,"user":"v"`, `null,"user":"u\n"`,
	} {
		item := `{"eventId":"` + strconv.Itoa(len(items)) + `","timestamp":1,"payload":{"type":"t"},"userId":` + user + `}`
		items = append(items, item)
	}
	page := answer(`{"items":[` + strings.Join(items, ",") + `]}`)
	for _, more := range []map[string]string{
		{"EVENT_HASH": "/userId"},
		{"EVENT_HASH": "/userId,/user", "KAFKA_KEY": "/user"},
		{"EVENT_HASH": "/userId,/user", "EXPORT_ITEM_SUBJECT": "/userId,/user"},
		{"EVENT_HASH": "/user", "KAFKA_KEY": "/user"},
		{"EVENT_DROP": "/user", "EVENT_MASK": "/userId:last4"},
	} {
		read := serve(t, page, map[string]string{
			"KAFKA_KEY":           cmp.Or(more["KAFKA_KEY"], "/userId"),
			"EXPORT_ITEM_SUBJECT": cmp.Or(more["EXPORT_ITEM_SUBJECT"], "/userId"),
		})
		p := must.Get(fetchAll(t, serve(t, page, withKeys(more)), bridge.Position{}))(t)
		for i := range p.Events {
			got := &p.Events[i]
			if got.Withheld() { // a mask of a boolean
				continue
			}
			want := &must.Get(read.DecodeItem(got.Raw))(t).Events[0]
			values := func(e *bridge.Event) [][]byte { return [][]byte{e.ID, e.Key, e.Type, e.Subject} }
			if !reflect.DeepEqual(values(got), values(want)) {
				t.Errorf("%v, %s: %q, want %q", more, items[i], values(got), values(want))
			}
		}
	}
}

// TestPrivateOtherID: a hash of what is no id takes the place of no id. The record's id is the one
// that the item has, and a reader of the record finds it again.
func TestPrivateOtherID(t *testing.T) {
	t.Parallel()
	for item, want := range map[string]string{
		`{"eventId":true,"id":"b","timestamp":1}`:     "b",
		`{"eventId":"\u0001","id":"b","timestamp":1}`: "b",
		`{"eventId":true,"timestamp":1}`:              "",
	} {
		c := serve(t, answer(`{"items":[`+item+`]}`), withKeys(map[string]string{"EVENT_HASH": "/eventId"}))
		e := &must.Get(fetchAll(t, c, bridge.Position{}))(t).Events[0]
		if string(e.ID) != want {
			t.Errorf("%s: id %q, want %q", item, e.ID, want)
		}
		id := string(e.AppendRecordID(nil))
		again := &must.Get(c.DecodeRecord(e.Raw, id))(t).Events[0]
		if got := string(again.AppendRecordID(nil)); got != id {
			t.Errorf("%s: its record has id %q, and %q for a reader", item, id, got)
		}
	}
}

// TestPrivateWithheld: an item with private data that no rule is certain to find has no
// bytes and no values, but the identity that it had.
func TestPrivateWithheld(t *testing.T) {
	t.Parallel()
	for item, want := range map[string]bridge.Defect{
		`{"eventId":"a","timestamp":1,"userId":"u","context":"{\"ip\":1}"}`:                  bridge.DefectPrivate,
		`{"eventId":"a","timestamp":1,"userId":"u","context":{"ip":1,"ip":2}}`:               bridge.DefectPrivate,
		`{"eventId":"a","timestamp":1,"userId":"u","context":{"x":"` + "\xff" + `","ip":1}}`: bridge.DefectBadText,
		`["secret"]`: bridge.DefectNotObject,
	} {
		vars := withKeys(map[string]string{"EVENT_DROP": "/context/ip"})
		p := must.Get(fetchAll(t, serve(t, answer(`{"items":[`+item+`]}`), vars), bridge.Position{}))(t)
		e := &p.Events[0]
		if !e.Withheld() || e.Key != nil || e.Subject != nil || e.Type != nil || e.Defect != want {
			t.Errorf("%q: %+v; want nothing of it, and %s", item, e, want)
		}
		if hasID := want != bridge.DefectNotObject; hasID != (string(e.ID) == "a") {
			t.Errorf("%q: id %q, which no rule changes", item, e.ID)
		}
	}
}

// TestPrivateRulesEnded: once the rules have ended, and only the key is left, the dead letter of an
// item that is no JSON object has the item, as without a key.
func TestPrivateRulesEnded(t *testing.T) {
	t.Parallel()
	page := answer(`{"items":[{"eventId":"a","timestamp":1,"x":NaN},["b"]]}`)
	p := must.Get(fetchAll(t, serve(t, page, withKeys(map[string]string{})), bridge.Position{}))(t)
	want := must.Get(fetchAll(t, serve(t, page, nil), bridge.Position{}))(t)
	for i := range want.Events {
		got, want := &p.Events[i], &want.Events[i]
		if !bytes.Equal(got.Raw, want.Raw) || got.Defect != want.Defect || !bytes.Equal(got.ID, want.ID) {
			t.Errorf("%q, defect %s, id %s; want %q, %s, %s", got.Raw, got.Defect, got.ID, want.Raw, want.Defect, want.ID)
		}
	}
}

// TestPrivateWithoutTime: an item that has no readable time, and to which a rule cannot be applied, has no time: its
// letter has no ce_time.
func TestPrivateWithoutTime(t *testing.T) {
	t.Parallel()
	const item = `{"eventId":"a","timestamp":"yesterday","context":{"ip":"1"},"context":{"ip":"2"}}`
	c := serve(t, answer(`{"items":[`+item+`]}`), withKeys(map[string]string{"EVENT_DROP": "/context/ip"}))
	p := must.Get(fetchAll(t, c, bridge.Position{}))(t)
	text, dated := new(bridge.EventTimes).Append(nil, &p.Events[0])
	if dated || p.Events[0].Defect != bridge.DefectPrivate {
		t.Errorf("defect %s, ce_time %s, want none", p.Events[0].Defect, text)
	}
}

// TestPrivateKeepsIdentities: items that differ in private data alone stay different, and an
// item keeps the identity that it had before there were rules.
func TestPrivateKeepsIdentities(t *testing.T) {
	t.Parallel()
	page := answer(`{"items":[{"closeTime":1,"ip":"a"},{"closeTime":1,"ip":"b"}]}`)
	read := func(vars map[string]string) []bridge.Event {
		vars["EXPORT_RESOURCE"] = "sessions"
		p := must.Get(fetchAll(t, serve(t, page, vars), bridge.Position{}))(t)
		return p.Events
	}
	before, after := read(map[string]string{}), read(withKeys(map[string]string{"EVENT_DROP": "/ip"}))
	if !bytes.Equal(after[0].Raw, after[1].Raw) || after[0].Identity() == after[1].Identity() ||
		bytes.Equal(after[0].Form(), after[1].Form()) {
		t.Errorf("%+v: want equal bytes and different identities", after)
	}
	for i := range after {
		was, ok := after[i].WasIdentity()
		if !ok || was != before[i].Identity() || after[i].Identity() == was {
			t.Errorf("item %d: identity %x before, %x known from then, %x now",
				i, before[i].Identity(), was, after[i].Identity())
		}
		if !after[i].HasRecordID(string(before[i].AppendRecordID(nil))) {
			t.Errorf("item %d: its old record id is unknown", i)
		}
	}
}

// TestPrivateHidesErrors: no error quotes what the API says.
func TestPrivateHidesErrors(t *testing.T) {
	t.Parallel()
	problem := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"error":"no user secret@example.com"}`))
		}
	}
	for _, status := range []int{http.StatusOK, http.StatusBadRequest, http.StatusServiceUnavailable} {
		_, err := fetchAll(t, serve(t, problem(status), withKeys(map[string]string{"EVENT_DROP": "/x"})), bridge.Position{})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%d: %v; want an error without the text", status, err)
		}
		if _, err = fetchAll(t, serve(t, problem(status), nil), bridge.Position{}); !strings.Contains(err.Error(), "secret") {
			t.Errorf("%d: %v; want the text without rules", status, err)
		}
	}
}

// TestPrivateRefuses: rules that a stream cannot work with are refused.
func TestPrivateRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ variable, value, want string }{
		{"EVENT_DROP", "/eventId", "EVENT_DROP /eventId changes /eventId, which identifies items"},
		{"EVENT_MASK", "/id", "EVENT_MASK /id changes /id, which identifies items"},
		{"EVENT_HASH", "/timestamp", "by which the stream knows its position"},
		{"EVENT_DROP", "/systemTimestamp", "EXPORT_ITEM_INGESTED=none"},
		{"EVENT_DROP", "/payload,x", "must begin with /"},
	} {
		cfg := config(t, withKeys(map[string]string{tc.variable: tc.value}))
		if _, err := exportapi.New(cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s=%s: %v, want %q", tc.variable, tc.value, err, tc.want)
		}
	}
	last := config(t, withKeys(map[string]string{"EVENT_DROP": "/c", "EXPORT_CURSOR_IN": "last-item",
		"EXPORT_CURSOR_FIELD": "/c/d"}))
	if _, err := exportapi.New(last); err == nil || !strings.Contains(err.Error(), "which is the next cursor") {
		t.Errorf("a rule on the cursor: %v", err)
	}
}

// TestPrivateFingerprint: a first key is no other source, but another key, and none, are.
func TestPrivateFingerprint(t *testing.T) {
	t.Parallel()
	of := func(vars map[string]string) bridge.Fingerprint {
		cfg := config(t, vars)
		return cfg.Fingerprint(func(string) bool { return false })
	}
	none, first := of(nil), of(withKeys(map[string]string{"EVENT_DROP": "/x"}))
	line1, line2, _ := strings.Cut(privateKeys, "\n")
	rotated := of(map[string]string{"EVENT_HASH": "/y", "EVENT_HASH_KEY": line1})
	other := of(map[string]string{"EVENT_DROP": "/x", "EVENT_HASH_KEY": line2})
	for _, tc := range []struct {
		from, to bridge.Fingerprint
		want     bool
	}{{none, first, false}, {first, rotated, false}, {first, none, true}, {first, other, true}} {
		change := tc.from.Changed(tc.to, "cursor")
		if blocked := len(change.Other) > 0; blocked != tc.want || len(change.Unproven) > 0 {
			t.Errorf("from %s to %s: changed %q, want blocked %v", tc.from, tc.to, change, tc.want)
		}
	}
}
