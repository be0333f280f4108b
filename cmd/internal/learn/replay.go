package learn

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/exportapi/jsonpointer"
	"exportbridge/cmd/internal/config"
)

// replay serves a recording by its settings. It requires no key.
type replay struct {
	recording Recording
	page      []byte // the JSON of Recording.Page
	export    exportapi.Config
	times     []int64 // of the items, nil if they have none
}

// numberBase is added to a cursor that is a number. Without it, the cursor would look like the
// count of the items before it.
const numberBase = 1 << 40

// NewReplay returns a handler that serves the pages of a recording to requests by its profile.
// The handler rejects a request with another parameter.
func NewReplay(file []byte) (http.Handler, error) {
	h := new(replay)
	d := decoder(file)
	d.DisallowUnknownFields()
	if err := d.Decode(&h.recording); err != nil {
		return nil, fmt.Errorf("the file is no recording of exportbridge learn --record: %w", err)
	}
	if len(h.recording.Items) == 0 {
		return nil, errors.New("the file is no recording of exportbridge learn --record: it has no items")
	}
	environ := []string{"EXPORT_URL=http://localhost", "EXPORT_AUTH=none"}
	if h.recording.Settings["EXPORT_ITEM_TIME"] != none { // numbered pages need windows, and windows need times
		environ = append(environ, "EXPORT_FOLLOW=windows", "EXPORT_START=-1d")
	}
	for name, value := range h.recording.Settings {
		if !recorded.MatchString(name) {
			return nil, fmt.Errorf("the recording has the setting %s, which no recording has:"+
				" take the file as exportbridge learn wrote it", name)
		}
		environ = append(environ, name+"="+value)
	}
	s, err := config.Load(config.Sources{Environ: environ}, config.UsesExport)
	if err != nil {
		return nil, fmt.Errorf("settings of the recording: %w", err)
	}
	h.export = s.Streams[0].Export
	if h.page, err = json.Marshal(h.recording.Page); err != nil {
		return nil, fmt.Errorf("page of the recording: %w", err)
	}
	for _, t := range exportapi.ItemTimes(h.recording.Items) {
		if slices.Contains(h.export.ItemTime, t.Pointer) {
			h.times = t.Times
		}
	}
	return h, nil
}

// refusal is the error of a request that gets no page.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func refused(format string, args ...any) error {
	return &refusal{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// ServeHTTP serves one page.
func (h *replay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	body, err := h.answer(w.Header(), r)
	if no, ok := errors.AsType[*refusal](err); ok {
		w.WriteHeader(no.status)
		body = map[string]string{"message": no.text}
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(body) // fails only if the client is gone
}

func (h *replay) answer(header http.Header, r *http.Request) (page any, err error) {
	v, err := h.values(r)
	if err != nil {
		return nil, err
	}
	items, err := h.within(v)
	if err != nil {
		return nil, err
	}
	size := h.export.PageSize
	if text := v.Get(h.export.PageSizeParam); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, refused("%s must be a number above 0", h.export.PageSizeParam)
		}
		size = min(n, h.export.MaxPageSize)
	}
	from, size, err := h.begin(v, items, size)
	if err != nil {
		return nil, err
	}
	to := min(from+size, len(items))
	list := make([]any, 0, size)
	for _, i := range items[from:to] {
		list = append(list, h.recording.Items[i])
	}
	if h.export.ItemsField == root {
		page = list
	} else {
		if err := decoder(h.page).Decode(&page); err != nil || page == nil {
			page = make(map[string]any)
		}
		set(page, h.export.ItemsField, list)
	}
	h.name(header, page, r, place{to, size, to < len(items)})
	return page, nil
}

// values returns the parameters of a request, and an error if its path, method or parameters are
// wrong. The name of a parameter inside an object of the body is its JSON pointer.
func (h *replay) values(r *http.Request) (url.Values, error) {
	v := r.URL.Query()
	if h.export.Method == http.MethodPost && r.Method == http.MethodPost {
		text, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			return nil, refused("the body cannot be read")
		}
		all, err := paramsOf(&Request{Method: r.Method, URL: &url.URL{}, Body: string(text)})
		if err != nil {
			return nil, refused("%v", err)
		}
		for _, p := range all {
			v.Add(p.name, p.value)
		}
	}
	cursor := v.Has(h.export.CursorParam)
	path := h.export.Path
	if cursor {
		path = cmp.Or(h.export.CursorPath, path)
	}
	switch asked := r.URL.EscapedPath(); {
	case asked != path && asked != h.export.CursorPath:
		return nil, &refusal{http.StatusNotFound, "there is nothing at this path"}
	case asked != path:
		return nil, refused("%s is not of a request to %s", h.export.CursorParam, asked)
	case r.Method != h.export.Method:
		return nil, &refusal{http.StatusMethodNotAllowed, "only " + h.export.Method + " is allowed"}
	}
	known := []string{h.export.CursorParam, cmp.Or(h.recording.KeyParam, none)}
	if !cursor || !h.export.CursorAlone {
		known = append(known, h.export.PageSizeParam, h.export.StartParam, h.export.EndParam)
		known = append(known, h.recording.Params...)
	}
	known = slices.DeleteFunc(known, func(name string) bool { return name == none })
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if !slices.Contains(known, name) {
			return nil, refused("the parameter %s is unknown: use %s", name, strings.Join(known, ", "))
		}
	}
	for _, name := range h.recording.Required {
		if !v.Has(name) {
			return nil, refused("the parameter %s is required", name)
		}
	}
	return v, nil
}

// within returns the indexes of the items within the bounds of a request.
func (h *replay) within(v url.Values) (items []int, err error) {
	start, errStart := h.bound(v, h.export.StartParam, math.MinInt64)
	end, errEnd := h.bound(v, h.export.EndParam, math.MaxInt64)
	for i := range h.recording.Items {
		if h.times != nil {
			at := h.times[i]
			if at < start || at == start && h.export.StartExclusive || at > end || at == end && !h.export.EndInclusive {
				continue
			}
		}
		items = append(items, i)
	}
	return items, cmp.Or(errStart, errEnd)
}

// bound returns a bound in milliseconds since the epoch.
func (h *replay) bound(v url.Values, name string, unset int64) (int64, error) {
	text := v.Get(name)
	if text == "" {
		return unset, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch h.export.TimeFormat {
	case "s":
		n *= 1000
	case "us":
		n /= 1000
	case rfc3339, rfc3339Seconds:
		var at time.Time
		at, err = time.Parse(time.RFC3339, text)
		n = at.UnixMilli()
	}
	if err != nil || h.export.TimeFormat == rfc3339Seconds && strings.Contains(text, ".") {
		return 0, refused("%s must be a time in the format %s", name, h.export.TimeFormat)
	}
	return n, nil
}

// begin returns the index of a page's first item in items, and the size of the page.
func (h *replay) begin(v url.Values, items []int, size int) (from, of int, err error) {
	text := v.Get(h.export.CursorParam)
	if text == "" {
		return 0, size, nil
	}
	invalid := refused("the cursor is not valid")
	switch h.export.CursorIn {
	case "last-item":
		for n, i := range items {
			if fmt.Sprint(jsonpointer.At(h.recording.Items[i], h.export.CursorField)) == text {
				return n + 1, size, nil
			}
		}
		return 0, 0, invalid
	case "page-number", "offset":
		step, standard := size, "1"
		if h.export.CursorIn == "offset" {
			step, standard = 1, "0"
		}
		first, _ := strconv.Atoi(cmp.Or(h.export.CursorFirst, standard)) // validated
		n, err := strconv.Atoi(text)
		if err != nil || n < first {
			return 0, 0, invalid
		}
		return min(min(n-first, len(items))*step, len(items)), size, nil // the first min prevents an overflow
	}
	place, count, _ := strings.Cut(strings.TrimPrefix(text, "r"), "-")
	n, err := strconv.Atoi(place)
	if n >= numberBase {
		n -= numberBase
	}
	if err != nil || n < 0 || n > len(items) {
		return 0, 0, invalid
	}
	if asked, err := strconv.Atoi(count); err == nil && h.export.CursorAlone {
		size = min(max(asked, 1), h.export.MaxPageSize)
	}
	return n, size, nil
}

// place is the end of a page, and whether another page follows.
type place struct {
	next, size int
	more       bool
}

// name writes the cursor of the next page into the page or its header.
func (h *replay) name(header http.Header, page any, r *http.Request, p place) {
	field, ends := strings.CutPrefix(h.export.MoreField, "!")
	if field != "" {
		set(page, field, p.more != ends)
	}
	cursor := fmt.Sprintf("r%d-%d", p.next, p.size)
	query := r.URL.Query()
	query.Set(h.export.CursorParam, cursor)
	target := "http://" + r.Host + r.URL.EscapedPath() + "?" + query.Encode()
	switch in := h.export.CursorIn; {
	case !p.more && field == "":
	case in == "link":
		header.Set("Link", "<"+target+`>; rel="next"`)
	case in == "header":
		header.Set(h.export.CursorField, cursor)
	case in == "next-url":
		set(page, h.export.CursorField, target)
	case in == "body" && h.recording.Number:
		set(page, h.export.CursorField, numberBase+p.next)
	case in == "body" || in == "":
		set(page, h.export.CursorField, cursor)
	}
}
