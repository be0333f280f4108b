package exportapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// node is a value of a document that is read completely, with all members.
type node struct {
	raw     jsontext.Value
	members []member
	items   []node
}

// member is a member of an object. exact is false if its name has an unpaired surrogate.
type member struct {
	name  string
	exact bool
	node
}

// readTree reads a document that encoding/json finds valid.
func readTree(body []byte) node {
	d := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	raw, err := d.ReadValue()
	if err != nil {
		panic(err)
	}
	return treeOf(bytes.Clone(raw))
}

func treeOf(raw jsontext.Value) node {
	n := node{raw: raw}
	d := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if kind := raw.Kind(); kind != '{' && kind != '[' {
		return n
	}
	_, _ = d.ReadToken()
	for kind := d.PeekKind(); kind != '}' && kind != ']'; kind = d.PeekKind() {
		var m member
		if raw.Kind() == '{' {
			name, err := d.ReadValue()
			if err != nil {
				panic(err)
			}
			text, err := jsontext.AppendUnquote(nil, name)
			m.name, m.exact = string(text), err == nil
		}
		value, err := d.ReadValue()
		if err != nil {
			panic(err)
		}
		m.node = treeOf(bytes.Clone(value))
		if n.raw.Kind() == '{' {
			n.members = append(n.members, m)
		} else {
			n.items = append(n.items, m.node)
		}
	}
	return n
}

// at returns the value at a path, nil if it is absent. It fails if a member on the path
// occurs twice, or is not an object.
func (n *node) at(names ...string) (*node, error) {
	for i, name := range names {
		if i > 0 && (n.raw.Kind() == 'n' || n.raw.Kind() == '[' && len(n.items) == 0) {
			return nil, nil
		}
		if n.raw.Kind() != '{' {
			return nil, fmt.Errorf("no object at %v", names[:i])
		}
		var found []*node
		for j := range n.members {
			if m := &n.members[j]; m.exact && m.name == name {
				found = append(found, &m.node)
			}
		}
		if len(found) > 1 {
			return nil, fmt.Errorf("%s twice", name)
		}
		if len(found) == 0 {
			return nil, nil
		}
		n = found[0]
	}
	return n, nil
}

// formOracle reads pages of a form in the simplest way.
type formOracle struct {
	cfg                 Config
	items, cursor, more []string
	// listed and told are set if earlier pages had items, and said whether more follow.
	listed, told bool
}

func names(field string) []string {
	if !strings.HasPrefix(field, "/") {
		return []string{field}
	}
	return strings.Split(field[1:], "/") // no escapes in these tests
}

// read returns the items and the next cursor, or an error.
func (o *formOracle) read(body []byte, h http.Header) (items []string, next string, err error) {
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	if !json.Valid(body) || !utf8.Valid(body) {
		return nil, "", fmt.Errorf("not JSON")
	}
	page := readTree(body)
	list := &page
	if o.items != nil {
		if page.raw.Kind() != '{' {
			return nil, "", fmt.Errorf("no object")
		}
		if list, err = page.at(o.items...); err != nil {
			return nil, "", fmt.Errorf("no items: %w", err)
		}
	}
	absent := list == nil
	if absent {
		list = new(node)
	} else if kind := list.raw.Kind(); kind != 'n' && kind != '[' || len(list.items) > maxItems {
		return nil, "", fmt.Errorf("no array, or a long one")
	}
	listed := list.raw.Kind() == '['
	defer func() {
		if err == nil && !listed {
			err = o.unlisted(&page, absent, next)
		}
		o.listed = o.listed || err == nil && listed
		if err != nil {
			items, next = nil, ""
		}
	}()
	for _, item := range list.items {
		items = append(items, string(item.raw))
	}
	if o.items != nil {
		if _, err := page.at(metadataField); err != nil {
			return nil, "", err
		}
	}
	var cursor *node
	told := false
	if in := o.cfg.CursorIn; in == inBody || in == inNextURL {
		if cursor, err = page.at(o.cursor...); err != nil {
			return nil, "", err
		}
	}
	if o.more != nil {
		more, err := page.at(o.more...)
		negated := strings.HasPrefix(o.cfg.MoreField, "!")
		switch {
		case err != nil:
			return nil, "", err
		case more == nil || more.raw.Kind() == 'n':
			if o.told && !negated {
				_, err = o.inBody(cursor)
				return items, "", err
			}
			if next, err = o.inBody(cursor); err != nil || !o.told && (!negated || next == "") {
				return nil, "", fmt.Errorf("does not say whether more follow: %w", err)
			}
		case more.raw.Kind() != 't' && more.raw.Kind() != 'f':
			return nil, "", fmt.Errorf("no boolean")
		default:
			o.told, told = true, true
			if ended := (more.raw.Kind() == 'f') != negated; ended {
				return items, "", nil
			}
		}
	}
	if next, err = o.next(cursor, list, h); err != nil {
		return nil, "", err
	}
	if told && next == "" {
		return nil, "", fmt.Errorf("more without a cursor")
	}
	return items, next, nil
}

// inBody reads a cursor of the page itself.
func (o *formOracle) inBody(cursor *node) (string, error) {
	if in := o.cfg.CursorIn; in != inBody && in != inNextURL {
		return "", nil
	}
	return o.next(cursor, new(node), nil)
}

// unlisted returns nil for a page that may be empty and have no array of items.
func (o *formOracle) unlisted(page *node, absent bool, next string) error {
	has := func(names []string) bool {
		v, err := page.at(names...)
		return err == nil && v != nil
	}
	known := !absent || next != "" || o.more != nil && has(o.more) || o.cfg.CursorIn == inBody && has(o.cursor)
	paths := [][]string{o.items, {metadataField}}
	if o.cfg.CursorIn == inBody {
		paths = append(paths, o.cursor)
	}
	if o.more != nil {
		paths = append(paths, o.more)
	}
	if foreign(page, paths) { // the client's own tests cover this
		return errForeign
	}
	if !known && !o.listed {
		return fmt.Errorf("no items")
	}
	return nil
}

// errForeign marks a page without items that has other members.
var errForeign = fmt.Errorf("other members")

// foreign reports whether an object has members that are on no path.
func foreign(n *node, paths [][]string) bool {
	for i := range n.members {
		var below [][]string
		for _, p := range paths {
			if len(p) > 0 && n.members[i].exact && p[0] == n.members[i].name {
				below = append(below, p[1:])
			}
		}
		if below == nil {
			return true
		}
		if slices.ContainsFunc(below, func(p []string) bool { return len(p) > 0 }) && foreign(&n.members[i].node, below) {
			return true
		}
	}
	return false
}

func (o *formOracle) next(cursor, list *node, h http.Header) (next string, err error) {
	switch {
	case o.cfg.CursorIn == inHeader:
		return h.Get(o.cfg.CursorField), nil
	case o.cfg.CursorIn == inLastItem && len(list.items) > 0:
		if cursor, err = list.items[len(list.items)-1].at(o.cursor...); err != nil {
			return "", err
		}
		defer func() {
			if next == "" && err == nil {
				err = fmt.Errorf("no cursor in the last item")
			}
		}()
	}
	if cursor == nil || cursor.raw.Kind() == 'n' {
		return "", nil
	}
	switch cursor.raw.Kind() {
	case '"':
		text, err := jsontext.AppendUnquote(nil, cursor.raw)
		return string(text), err
	case '0':
		if o.cfg.CursorIn == inNextURL || bytes.ContainsAny(cursor.raw, ".eE") || string(cursor.raw) == "-0" {
			return "", fmt.Errorf("no integer")
		}
		return string(cursor.raw), nil
	}
	return "", fmt.Errorf("of another kind")
}

// formRival is a client and an oracle of a form.
type formRival struct {
	client *Client
	oracle formOracle
}

func newFormRivals(t testing.TB) (all []formRival) {
	t.Helper()
	for _, f := range []Config{
		{ItemsField: "/data/items", CursorField: "/data/next"},
		{ItemsField: "/data/items", CursorField: "/metadata/next"},
		{ItemsField: "items", CursorField: "/a/b/c", PageMapping: PageMapping{MoreField: "/a/more"}},
		{ItemsField: "/items", CursorField: "next", PageMapping: PageMapping{MoreField: "!/metadata/end"}},
		{ItemsField: "root", CursorField: "/id", PageMapping: PageMapping{CursorIn: inLastItem}},
		{ItemsField: "items", CursorField: "/a/b", PageMapping: PageMapping{CursorIn: inLastItem, MoreField: "more"}},
		{ItemsField: "root", CursorField: "X-Next", PageMapping: PageMapping{CursorIn: inHeader}},
	} {
		cfg := DefaultConfig()
		cfg.APIKey, cfg.ItemsField, cfg.CursorField, cfg.PageMapping = "k3y", f.ItemsField, f.CursorField, f.PageMapping
		if cfg.CursorIn == "" {
			cfg.CursorIn = inBody
		}
		c := must.Get(New(cfg))(t)
		t.Cleanup(c.Close)
		o := formOracle{cfg: cfg, cursor: names(cfg.CursorField)}
		if cfg.ItemsField != rootField {
			o.items = names(cfg.ItemsField)
		}
		if cfg.MoreField != "" {
			o.more = names(strings.TrimPrefix(cfg.MoreField, "!"))
		}
		all = append(all, formRival{c, o})
	}
	return all
}

var formSeeds = []string{
	`{"data":{"items":[{"timestamp":1},2],"next":"a"},"metadata":{"next":"b","end":false,"organization":"o"}}`,
	`{"data":{"items":[],"next":123456789012345678901}}`, `{"data":{"next":null,"items":[{}]},"data":null}`,
	`{"a":{"b":{"c":"x"},"more":true},"items":[1,{"a":{"b":7}}],"more":true,"next":"n","metadata":{"end":false}}`,
	`{"items":[{"a":{"b":"\u0041"}}],"more":false,"a":{"more":false,"b":null}}`,
	`{"items":[],"metadata":{"end":true},"next":false}`,
	`{"m\u006fre":true,"items":[{"\u0061":{"b":"c","b":"d"}}]}`, `[{"id":1},{"id":"x","id2":2}]`, `[{"id":-0}]`, `[]`,
	` [ null , {"id" : "\ud83d\ude00" } ] `, `[{"id":null}]`, `[[{"id":1}]]`,
	`{"items":[{"a":[{"b":1}]}],"more":true}`, `{"items":[{"a":null}],"more":true}`,
	`{"metadata":[],"items":[],"next":"x"}`,
}

var formPieces = []string{`"next":"x",`, `"items":[],`, `"data":{},`, `"data":{"items":[]},`, `"more":true,`,
	`"more":false,`, `"end":true,`, `"id":"y",`, `"id":5,`, `"a":{"b":"z"},`, `"b":1e3,`,
	`"metadata":{},`, `"metadata":null,`, `null`, `true`, `-0`, `12`, `"\ud800"`, `{}`, `[]`, `,`, `}`, `]`}

// check compares a client and an oracle on one body.
func (r *formRival) check(t testing.TB, body []byte, header string) (isPage bool) {
	t.Helper()
	h := http.Header{"X-Next": {header}}
	if !utf8.ValidString(header) {
		h.Del("X-Next")
	}
	items, next, errOracle := r.oracle.read(body, h)
	p := &bridge.Page{Body: body}
	errClient := r.client.pages.next(p, r.client.faults.urls.first, h, nil)
	if _, marks, _ := repair(body); marks != nil && errClient == nil {
		r.oracle.listed, r.oracle.told = r.client.pages.listed.Load(), r.client.pages.told
		return slices.ContainsFunc(p.Events, func(e bridge.Event) bool { return e.Defect == bridge.DefectBadText })
	}
	if errors.Is(errOracle, errForeign) {
		return errClient == nil
	}
	if (errOracle == nil) != (errClient == nil) {
		t.Fatalf("%s in %s: the client says %v, the oracle %v\nbody %q", r.oracle.cfg.CursorField,
			r.oracle.cfg.CursorIn, errClient, errOracle, body)
	}
	if errClient != nil {
		return false
	}
	if p.Next != next || len(p.Events) != len(items) {
		t.Fatalf("%s: the client reads %q and %d items, the oracle %q and %d\nbody %q", r.oracle.cfg.CursorField,
			p.Next, len(p.Events), next, len(items), body)
	}
	for i, item := range items {
		if string(p.Events[i].Raw) != item {
			t.Fatalf("item %d is %s, not %s", i, p.Events[i].Raw, item)
		}
	}
	// Decode reads the page again, and must have the same result.
	again := &bridge.Page{Body: body, Next: p.Next}
	if err := r.client.Decode(again); err != nil || len(again.Events) != len(items) {
		t.Fatalf("decoded as %d items, %v\nbody %q", len(again.Events), err, body)
	}
	return true
}

// TestFormsAgainstOracle compares the client with an independent reader in each form.
func TestFormsAgainstOracle(t *testing.T) {
	t.Parallel()
	count, seed := must.Number(t, "DECODE_MUTATIONS", 20_000), must.Number(t, "DECODE_SEED", 1)
	all := newFormRivals(t)
	m := mutator{Rand: rand.New(rand.NewPCG(uint64(seed), 9))}
	pages := 0
	for _, s := range formSeeds {
		m.seeds, m.pages = append(m.seeds, []byte(s)), append(m.pages, []byte(s))
		for i := range all {
			if all[i].check(t, []byte(s), "h") {
				pages++
			}
		}
	}
	if pages < 12 {
		t.Errorf("only %d seeds are pages", pages)
	}
	pages = 0
	for range count {
		body := m.next()
		if m.IntN(2) == 0 {
			body = bytes.Clone(m.seeds[m.IntN(len(m.seeds))])
			for range 1 + m.IntN(2) {
				m.body = body
				m.insertBehind(m.IntN(len(body)+1), "{[:,", m.piece(formPieces))
				body = m.body
			}
		}
		if all[m.IntN(len(all))].check(t, bytes.Clone(body), "h") {
			pages++
		}
	}
	if pages < count/50 {
		t.Errorf("only %d pages: the mutations are too coarse to find anything", pages)
	}
	t.Logf("%d pages: no difference", pages)
}

// FuzzForms is TestFormsAgainstOracle, guided by coverage.
func FuzzForms(f *testing.F) {
	for _, s := range formSeeds {
		f.Add([]byte(s), "header")
	}
	all := newFormRivals(f)
	f.Fuzz(func(t *testing.T, body []byte, header string) {
		for i := range all {
			all[i].check(t, body, strings.TrimSpace(header))
		}
	})
}

// A next URL that is followed stays on the server and below the path, and has the same
// cursor when it comes back.
func FuzzNextURL(f *testing.F) {
	for _, s := range []string{"?a=b", "/v1/x?y=%2e", "https://api.example/v1/a", "//api.example:443/v1", "../x",
		"/v1/%2e%2e/x", "https://evil.example/v1", "/v1/a;b/c?k3y=1&k=v", "/v1/k3y?s=t&x=k3y&s=u&=k3y", "?s=", "x/y?=&&;"} {
		f.Add(s, "<"+s+`>; rel="next"`)
	}
	cfg := DefaultConfig()
	cfg.URL, cfg.APIKey, cfg.CursorIn, cfg.KeyQuery, cfg.Params = "https://api.example/v1", "k3y", inLink, "k", "s=t"
	cfg.ItemsField = rootField
	c := must.Get(New(cfg))(f)
	f.Cleanup(c.Close)
	f.Fuzz(func(t *testing.T, ref, link string) {
		for i, h := range []http.Header{{"Link": {link}}, {"Link": {"<" + ref + ">;rel=next"}}} {
			p := &bridge.Page{Body: []byte(`[]`)}
			if c.pages.next(p, c.faults.urls.first, h, nil) != nil || p.Next == "" {
				continue
			}
			to, err := c.requests.target(bridge.Position{Cursor: p.Next}, cfg.PageSize)
			if err != nil {
				t.Fatalf("cursor %q cannot be requested: %v", p.Next, err)
			}
			clean := path.Clean(to.Path)
			if to.Scheme != "https" || to.Host != "api.example" || clean != "/v1" && !strings.HasPrefix(clean, "/v1/") {
				t.Fatalf("%q leads to %s", p.Next, to.Redacted())
			}
			sent, err := url.Parse("https://api.example" + to.RequestURI())
			if err != nil || sent.Host != "api.example" || sent.Path != to.Path {
				t.Fatalf("%q is sent as %q: %v", p.Next, to.RequestURI(), err)
			}
			query := sent.Query()
			if !slices.Equal(query["k"], []string{"k3y"}) {
				t.Fatalf("%q is sent with %v", p.Next, slices.Collect(maps.Keys(query)))
			}
			if again := c.requests.cursorsAt(bridge.Position{}).Next(to, c.faults.urls.first, ""); again != p.Next {
				t.Fatalf("cursor %q comes back as %q", p.Next, again)
			}
			if at, err := url.Parse(ref); i == 1 && err == nil && !strings.Contains(ref, ">") {
				named := c.faults.urls.first.ResolveReference(at).Query()
				delete(named, "k")
				delete(query, "k")
				if !maps.EqualFunc(named, query, slices.Equal[[]string]) {
					t.Fatalf("%q is sent as %q for %q", p.Next, to.RequestURI(), ref)
				}
			}
		}
	})
}
