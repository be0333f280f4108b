package learn

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"regexp"
	"slices"

	"exportbridge/bridge/exportapi/jsonpointer"
)

// Recording has the pages that a profile was learned from, with other letters in place of
// texts: the same letters for the same text within a recording. Ids, times, types that repeat,
// numbers and the names of members are kept.
type Recording struct {
	// Settings are the settings of the profile by which pages are requested and read.
	Settings map[string]string `json:"settings"`
	// Params are the names of further parameters. Their values are left out.
	Params []string `json:"params,omitempty"`
	// KeyParam is the parameter of the key. Any value of it is accepted.
	KeyParam string `json:"keyParam,omitempty"`
	// Required are the parameters that each request must have.
	Required []string `json:"required,omitempty"`
	// Number is set if the cursor is a number.
	Number bool `json:"number,omitempty"`
	// Page is the first page without its items, null if a page is an array.
	Page any `json:"page"`
	// Items are in the order of the list.
	Items []map[string]any `json:"items"`
}

// recorded matches the settings that a recording has. None of them names the user or the host.
var recorded = regexp.MustCompile(`^EXPORT_(PATH|METHOD|ITEMS_FIELD|MORE_FIELD|CURSOR_\w+|(MAX_)?PAGE_SIZE(_PARAM)?` +
	`|(START|END)_PARAM|TIME_FORMAT|START_EXCLUSIVE|END_INCLUSIVE|ITEM_\w+)$`)

// record returns the recording of what was learned.
func (l *learner) record() (*Recording, error) {
	r := &Recording{Settings: make(map[string]string), KeyParam: l.profile.value("EXPORT_KEY_QUERY")}
	for name, f := range l.profile.findings {
		if f.value != "" && recorded.MatchString(name) {
			r.Settings[name] = f.value
		}
	}
	for _, p := range l.profile.params() {
		r.Params = append(r.Params, p.name)
	}
	if l.required {
		r.Required = []string{r.Settings["EXPORT_START_PARAM"], r.Settings["EXPORT_END_PARAM"]}
	}
	r.Number = len(l.pages) > 0 && isNumber(l.pages[0].Next)
	items, err := l.pages.items()
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		items = l.page.items
	}
	hide := redaction{secrets: l.command.secrets}
	_, _ = rand.Read(hide.key[:]) // it never fails
	kept := l.kept(items)
	for _, item := range items {
		r.Items = append(r.Items, hide.value(item, "", kept).(map[string]any))
	}
	if l.page.list != root {
		r.Page = hide.value(l.page.Page(), "", nil)
		l.page.clear(r.Page)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("record the pages: %w", err)
	}
	if l.command.secrets.in(string(text)) { // in an id, for example
		return nil, errors.New("the recording would have the key of the request, which the pages repeat:" +
			" nothing was recorded")
	}
	return r, nil
}

// kept returns the JSON pointers of the id, cursor and times of an item, and of its type if that
// repeats: a member that differs from item to item may be a name.
func (l *learner) kept(items []map[string]any) []string {
	pointers := []string{l.profile.value("EXPORT_ITEM_ID")}
	kind := l.profile.value("EXPORT_ITEM_TYPE")
	var kinds []string
	for _, item := range items {
		kinds = append(kinds, fmt.Sprint(jsonpointer.At(item, kind)))
	}
	if repeats(kinds) {
		pointers = append(pointers, kind)
	}
	if l.profile.value("EXPORT_CURSOR_IN") == "last-item" {
		pointers = append(pointers, l.profile.value("EXPORT_CURSOR_FIELD"))
	}
	for _, t := range l.page.times {
		pointers = append(pointers, t.Pointer)
	}
	return pointers
}

// clear removes the items and the next cursors of a page.
func (l *listing) clear(page any) {
	set(page, l.list, []any{})
	for _, place := range l.Next {
		if place.In == "body" || place.In == "next-url" {
			set(page, place.Field, nil)
		}
	}
}

// redaction replaces texts. Each recording has another key, which is stored nowhere.
type redaction struct {
	key     [32]byte
	secrets credentials
}

// value returns a copy of a JSON value with other texts, except at the pointers in kept.
func (r *redaction) value(value any, at string, kept []string) any {
	switch v := value.(type) {
	case map[string]any:
		object := make(map[string]any, len(v))
		for name, inside := range v {
			object[name] = r.value(inside, jsonpointer.Append(at, name), kept)
		}
		return object
	case []any:
		list := make([]any, len(v))
		for i, inside := range v {
			list[i] = r.value(inside, fmt.Sprintf("%s/%d", at, i), kept)
		}
		return list
	case string:
		if !slices.Contains(kept, at) {
			return r.text(v)
		}
	}
	return value
}

// drawTries is how many times letters are drawn that happen to have a secret.
const drawTries = 100

// text returns letters in place of a text, of the same length.
func (r *redaction) text(text string) string {
	hash := hmac.New(sha256.New, r.key[:])
	hash.Write([]byte(text)) // never fails
	random := mathrand.NewChaCha8([32]byte(hash.Sum(nil)))
	letters := make([]byte, len(text))
	for range drawTries {
		for i := range letters {
			letters[i] = 'a' + byte(random.Uint64()%26)
		}
		if !r.secrets.in(string(letters)) {
			break
		}
	}
	return string(letters)
}

// set sets a field of a page that is an object.
func set(page any, field string, value any) {
	if object, ok := page.(map[string]any); ok {
		jsonpointer.Set(object, field, value)
	}
}
