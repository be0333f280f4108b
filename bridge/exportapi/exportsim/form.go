package exportsim

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Form is the shape of an export API: where a page has its items and its cursor, what the
// parameters are called, and how requests authenticate. The content is the same in every
// form. An empty field has the value of the default form, which is the zero value.
// FormNamed returns others.
//
// Fields are named like the EXPORT_ settings of exportbridge. A field of a page is the name
// of a member, or a JSON pointer, which begins with a slash.
type Form struct {
	// Name selects the form; empty for the default one.
	Name string
	// Path is the path of the events. NextPath, if set, replaces it in next URLs and is
	// served too.
	Path, NextPath string
	// Method is GET, or POST with the parameters as a JSON object.
	Method string

	// Item is the template of an item, see template, that contains an event. It ends with
	// "event":<event>}. If it is empty, events are items, and there are sessions and users.
	Item string
	// ItemID, ItemTime, ItemType and ItemSubject are pointers into an item, and
	// ItemTimeFormat is ms, s, us, rfc3339 or none. They describe Item.
	ItemID, ItemTime, ItemTimeFormat, ItemType, ItemSubject string

	// Late is the maximum time by which the time of an item is earlier than its place in
	// the order, for one item in eight. Requests with an end then list items by that time.
	Late time.Duration

	// ItemsField is a member, or root if the page is the array.
	ItemsField string
	// OmitEmpty leaves out ItemsField if a page has no items.
	OmitEmpty bool
	// CursorIn is body, header, last-item, next-url (in the body) or link (RFC 8288).
	// CursorField is the place in there. With page-number and offset, which need the
	// CursorKind offset, a page names no next page.
	CursorIn, CursorField string
	// CursorKind is opaque, seq, log-id or offset. A cursor of kind seq or log-id is the
	// key of the last item and never expires: seq is an integer beyond 2^53, log-id is
	// digits in a string. If a list is newest first, it continues with the items before
	// that key. A form with Clocked may have offset, the number of items before the page.
	CursorKind string
	// MoreField is a boolean that is true while more items follow, or with ! before it, at
	// the end. With it every page has a cursor.
	MoreField string
	// EndOfResults is the end unless Config has one. BoundedEnd is the end for requests
	// with an end, if it is a different one.
	EndOfResults, BoundedEnd EndOfResults
	// ExactEnd ends the results with a full page if nothing follows. Otherwise an empty
	// page follows.
	ExactEnd bool
	// NewestFirst lists backwards, unless a request has the parameter Ascending, which is a
	// name or name=value.
	NewestFirst bool
	Ascending   string
	// Clocked makes the form an audit list: it lists what has happened until now by
	// Config.Clock, newest first. Grow and SetStock have no effect.
	Clocked bool
	// Links are the relations of the Link header, in order. With LinkLines each has its own
	// header line.
	Links     []string
	LinkLines bool
	// RelativeNext writes next URLs without scheme and host.
	RelativeNext bool

	// The names of the parameters; none if the API has no such parameter.
	CursorParam, PageSizeParam, StartParam, EndParam string
	// CursorAlone refuses requests with a cursor and any other parameter except the key. An
	// opaque cursor then contains the page size too.
	CursorAlone bool
	// PhraseParam has the bounds as created:>=TIME or created:FROM..TO, both inclusive, as
	// dates or RFC 3339 times.
	PhraseParam string
	// FilterField is compared with the bounds in the parameter $filter, as FIELD ge TIME
	// and FIELD le TIME, both inclusive, as RFC 3339 times.
	FilterField string
	// TimeFormat of the bounds is ms, s, us or rfc3339.
	TimeFormat                   string
	StartExclusive, EndInclusive bool
	// PageSize is the size of a page if a request has none.
	PageSize, MaxPageSize int

	// Auth is key, basic, oauth2 or none. It applies if Config has an APIKey, which is the
	// key, the password of User, or the secret of the client User.
	Auth, User string
	// KeyHeader and KeyPrefix, or KeyQuery, are the place of the key. Next URLs repeat a
	// key from the query.
	KeyHeader, KeyPrefix, KeyQuery string
	// TokenPath issues tokens (client credentials), only for Audience if that is set.
	TokenPath, Audience string

	// LimitHeaders is the prefix of the headers about Config.RateLimit, or RateLimit for
	// the structured header; empty for none.
	LimitHeaders string
	// LimitStatus is 429 or 403. With NoRetryAfter, only LimitHeaders have the wait.
	LimitStatus  int
	NoRetryAfter bool
	// Error is the body of an error, with the placeholders <status>, <title>, <kind> and
	// <text>. Empty means a problem of RFC 9457.
	Error string
}

// Values of the fields of Form.
const (
	inBody, inHeader, inLastItem, inNextURL, inLink          = "body", "header", "last-item", "next-url", "link"
	inPage, inOffset                                         = "page-number", "offset"
	kindOpaque, kindSeq, kindLogID, kindOffset               = "opaque", "seq", "log-id", "offset"
	formatMillis, formatSeconds, formatMicros, formatRFC3339 = "ms", "s", "us", "rfc3339"

	authKey, authBasic, authOAuth2 = "key", "basic", "oauth2"

	none, root = "none", "root"

	filterParam = "$filter"
)

func (f Form) withDefaults(c Config) Form {
	or := func(value *string, or string) { *value = cmp.Or(*value, or) }
	or(&f.Path, "/events")
	or(&f.Method, http.MethodGet)
	or(&f.ItemTimeFormat, formatMillis)
	or(&f.ItemsField, "items")
	or(&f.CursorIn, inBody)
	or(&f.CursorField, "nextCursor")
	or(&f.CursorKind, kindOpaque)
	f.EndOfResults = cmp.Or(c.EndOfResults, f.EndOfResults, EmptyCursor)
	if f.MoreField != "" {
		f.EndOfResults = EmptyItems
	}
	f.BoundedEnd = cmp.Or(f.BoundedEnd, f.EndOfResults)
	or(&f.CursorParam, "cursor")
	or(&f.PageSizeParam, "pageSize")
	or(&f.StartParam, "start")
	or(&f.EndParam, "end")
	or(&f.TimeFormat, formatMillis)
	f.PageSize = cmp.Or(f.PageSize, defaultPageSize)
	f.MaxPageSize = cmp.Or(f.MaxPageSize, maxPageSize)
	or(&f.Auth, authKey)
	or(&f.KeyHeader, "X-Api-Key")
	f.LimitStatus = cmp.Or(f.LimitStatus, http.StatusTooManyRequests)
	return f
}

// validate reports all problems of a form with defaults.
func (f Form) validate() error {
	var errs []error
	oneOf := func(field, value string, values ...string) {
		if !slices.Contains(values, value) {
			errs = append(errs, fmt.Errorf("form %q: %s %q is not one of: %s", f.Name, field, value, strings.Join(values, ", ")))
		}
	}
	oneOf("Method", f.Method, http.MethodGet, http.MethodPost)
	oneOf("ItemTimeFormat", f.ItemTimeFormat, formatMillis, formatSeconds, formatMicros, formatRFC3339, none)
	oneOf("CursorIn", f.CursorIn, inBody, inHeader, inLastItem, inNextURL, inLink, inPage, inOffset)
	oneOf("CursorKind", f.CursorKind, kindOpaque, kindSeq, kindLogID, kindOffset)
	oneOf("TimeFormat", f.TimeFormat, formatMillis, formatSeconds, formatMicros, formatRFC3339)
	oneOf("Auth", f.Auth, authKey, authBasic, authOAuth2, none)
	if f.Item != "" && !strings.HasSuffix(f.Item, eventMember+"<event>}") {
		errs = append(errs, fmt.Errorf("form %q: Item does not end with %s<event>}", f.Name, eventMember))
	}
	if f.ItemsField == root && (f.MoreField != "" || f.CursorIn == inBody || f.CursorIn == inNextURL) {
		errs = append(errs, fmt.Errorf("form %q: an array has no member for a cursor, choose another CursorIn", f.Name))
	}
	if f.Clocked && (!f.NewestFirst || f.Late > 0) || f.CursorKind == kindOffset && !f.Clocked {
		errs = append(errs, fmt.Errorf("form %q: Clocked goes with NewestFirst and without Late, offset with Clocked",
			f.Name))
	}
	return errors.Join(errs...)
}

// Backwards reports whether the form always lists newest first, so that its cursor cannot
// be followed.
func (f Form) Backwards() bool { return f.NewestFirst && f.Ascending == "" }

// newestFirst reports whether a request with these parameters lists backwards.
func (f *Form) newestFirst(values url.Values) bool {
	name, value, _ := strings.Cut(f.Ascending, "=")
	return f.NewestFirst && (!values.Has(name) || value != "" && values.Get(name) != value)
}

// Setting is a setting of exportbridge.
type Setting struct{ Name, Value string }

// Settings returns the settings with which exportbridge reads the form at a URL, without
// the key. It omits defaults of exportbridge.
func (f Form) Settings(base string) []Setting {
	f = f.withDefaults(Config{})
	list := []Setting{{"EXPORT_URL", base}}
	add := func(name, value, standard string) {
		if value != standard {
			list = append(list, Setting{name, value})
		}
	}
	if f.Clocked {
		add("EXPORT_FOLLOW", "windows", "cursor")
	}
	add("EXPORT_PATH", f.Path, "/events")
	add("EXPORT_METHOD", f.Method, http.MethodGet)
	if f.Item != "" {
		add("EXPORT_ITEM_ID", f.ItemID, "")
		add("EXPORT_ITEM_TIME", cmp.Or(f.ItemTime, none), "")
		add("EXPORT_ITEM_INGESTED", none, "")
		add("EXPORT_ITEM_TYPE", f.ItemType, "")
		add("EXPORT_ITEM_SUBJECT", f.ItemSubject, "")
		add("KAFKA_KEY", f.ItemSubject, "")
	}
	add("EXPORT_ITEM_TIME_FORMAT", f.ItemTimeFormat, formatMillis)
	add("EXPORT_ITEMS_FIELD", f.ItemsField, "items")
	add("EXPORT_CURSOR_IN", f.CursorIn, inBody)
	add("EXPORT_CURSOR_FIELD", f.CursorField, "nextCursor")
	add("EXPORT_MORE_FIELD", f.MoreField, "")
	if f.CursorIn != inLink && f.CursorIn != inNextURL {
		add("EXPORT_CURSOR_PARAM", f.CursorParam, "cursor")
	}
	add("EXPORT_CURSOR_ALONE", strconv.FormatBool(f.CursorAlone), "false")
	add("EXPORT_PAGE_SIZE_PARAM", f.PageSizeParam, "pageSize")
	add("EXPORT_MAX_PAGE_SIZE", strconv.Itoa(f.MaxPageSize), strconv.Itoa(maxPageSize))
	add("EXPORT_PAGE_SIZE", strconv.Itoa(f.MaxPageSize), strconv.Itoa(maxPageSize))
	add("EXPORT_START_PARAM", f.StartParam, "start")
	add("EXPORT_END_PARAM", f.EndParam, "end")
	add("EXPORT_TIME_FORMAT", f.TimeFormat, formatMillis)
	add("EXPORT_END_INCLUSIVE", strconv.FormatBool(f.EndInclusive), "false")
	if name, value, _ := strings.Cut(f.Ascending, "="); name != "" {
		add("EXPORT_PARAMS", name+"="+cmp.Or(value, firstKey), "")
	}
	if f.FilterField != "" {
		add("EXPORT_PARAMS", fmt.Sprintf("%s=%s ge {start} and %[2]s le {end}", filterParam, f.FilterField), "")
	}
	add("EXPORT_AUTH", f.Auth, authKey)
	switch f.Auth {
	case authKey:
		add("EXPORT_KEY_QUERY", f.KeyQuery, "")
		add("EXPORT_KEY_PREFIX", f.KeyPrefix, "")
		add("EXPORT_KEY_HEADER", f.KeyHeader, "X-Api-Key")
	case authBasic:
		add("EXPORT_AUTH_USER", f.User, "")
	case authOAuth2:
		add("EXPORT_OAUTH2_TOKEN_URL", base+f.TokenPath, "")
		add("EXPORT_OAUTH2_CLIENT_ID", f.User, "")
		add("EXPORT_OAUTH2_PARAMS", "audience="+f.Audience, "audience=")
	}
	return list
}
