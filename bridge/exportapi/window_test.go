package exportapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/windows"
)

// windowAPI is an API whose bounds have a format, and may be inclusive.
type windowAPI struct {
	format string
	bounds string // the API includes the "start", the "end", "both" or "none"
	coarse bool   // compare whole seconds
	times  []int64

	mu  sync.Mutex // guards cut
	cut int        // requests until the API fails; never below 0
}

func (a *windowAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	a.mu.Lock()
	a.cut--
	broken := a.cut == -1
	a.mu.Unlock()
	if broken {
		w.WriteHeader(http.StatusUnauthorized) // ends a bounded run
		return
	}
	from, to := a.parse(query.Get("from")), a.parse(query.Get("to"))
	var matching []string
	for i, at := range a.times {
		t := at
		if a.coarse {
			t -= t % 1000
		}
		starts := t > from || t == from && a.bounds != "end" && a.bounds != "none"
		if starts && (to == 0 || t < to || t == to && a.bounds != "start" && a.bounds != "none") {
			matching = append(matching, fmt.Sprintf(`{"eventId":"e%d","timestamp":%d}`, i, at))
		}
	}
	begin, _ := strconv.Atoi(query.Get("cursor"))
	end := min(begin+2, len(matching))
	next := "null"
	if end < len(matching) {
		next = quote(strconv.Itoa(end))
	}
	answer(`{"items":[`+strings.Join(matching[begin:end], ",")+`],"nextCursor":`+next+`}`)(w, r)
}

// parse returns a time in milliseconds.
func (a *windowAPI) parse(text string) int64 {
	if text == "" {
		return 0
	}
	if a.format == "rfc3339" {
		t, err := time.Parse("2006-01-02T15:04:05.000Z", text)
		if err != nil {
			panic(err)
		}
		return t.UnixMilli()
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	switch a.format {
	case "s":
		return n * 1000
	case "us":
		return n / 1000
	}
	return n
}

// Adjacent windows publish each event once, also at the boundary, for all formats and
// inclusions of the bounds, and after an interruption at any page.
func TestNeighbouringWindows(t *testing.T) {
	t.Parallel()
	const t0 = 1_700_000_000_000
	var times []int64
	for _, offset := range []int64{-1000, -1, 0, 0, 1, 400, 499, 500, 500, 500, 501, 999, 1000, 1000, 1499, 1500, 1500,
		1501, 1999, 2000, 2000, 2001, 2999, 3000, 3500} {
		times = append(times, t0+offset)
	}
	edges := []int64{t0, t0 + 500, t0 + 1000, t0 + 1500, t0 + 1501, t0 + 2000}
	for _, format := range []string{"ms", "s", "us", "rfc3339"} {
		for _, bounds := range []string{"start", "both", "none"} {
			for _, coarse := range []bool{false, true} {
				if coarse && format != "s" {
					continue // the API differs from its setting
				}
				for cut := -1; cut < 8; cut++ {
					t.Run(fmt.Sprintf("%s, includes %s, coarse %t, cut after %d", format, bounds, coarse, cut),
						func(t *testing.T) {
							t.Parallel()
							api := &windowAPI{format: format, bounds: bounds, coarse: coarse, times: times, cut: cut}
							server := listen(t, api)
							cfg := config(t, map[string]string{
								"EXPORT_URL": server.URL, "EXPORT_PAGE_SIZE": "2", "EXPORT_TIME_FORMAT": format,
								"EXPORT_END_INCLUSIVE":   strconv.FormatBool(bounds == "both"),
								"EXPORT_START_EXCLUSIVE": strconv.FormatBool(bounds == "none"),
								"EXPORT_START_PARAM":     "from", "EXPORT_END_PARAM": "to",
							})
							var got []string
							for i, from := range edges[:len(edges)-1] {
								to := newServers(t)
								origin := bridge.Origin{Start: from, End: edges[i+1]}
								plain := func(s bridge.Source) bridge.Source { return s }
								if err := runForm(t, cfg, origin, to, plain); err != nil { // cut off: a new process resumes
									must.Do(t, runForm(t, cfg, origin, to, plain))
								}
								for _, r := range to.topic.Records() {
									var item struct{ Timestamp int64 }
									must.Do(t, json.Unmarshal(r.Value, &item))
									if item.Timestamp < from || item.Timestamp >= edges[i+1] {
										t.Errorf("window %d to %d has %s", from-t0, edges[i+1]-t0, r.Value)
									}
									got = append(got, string(r.Value))
								}
								c := to.store.Checkpoint()
								if c.Events != int64(len(to.topic.Records())) || !c.Drained {
									t.Errorf("window %d: %d events counted of %d, drained %t", i, c.Events, len(to.topic.Records()), c.Drained)
								}
							}
							var want []string
							for i, at := range times {
								if at >= edges[0] && at < edges[len(edges)-1] {
									want = append(want, fmt.Sprintf(`{"eventId":"e%d","timestamp":%d}`, i, at))
								}
							}
							if !slices.Equal(got, want) {
								t.Errorf("got %v\nwant %v", got, want)
							}
						})
				}
			}
		}
	}
}

// A bound for which the API has no parameter is refused before a request.
func TestUnboundedAPI(t *testing.T) {
	t.Parallel()
	var seen recorder
	api := func(w http.ResponseWriter, r *http.Request) { seen.saw(r); answer(emptyPage)(w, r) }
	for name, tc := range map[string]struct {
		vars map[string]string
		at   bridge.Position
		want string // a part of the error, empty for none
	}{
		"end": {map[string]string{"EXPORT_END_PARAM": "none"},
			bridge.Position{Start: 1, End: 2, Window: true}, "EXPORT_END_PARAM=none"},
		"end, at a cursor": {map[string]string{"EXPORT_END_PARAM": "none"},
			bridge.Position{Cursor: "c", Start: 1, End: 2, Window: true}, "EXPORT_END_PARAM=none"},
		"start": {map[string]string{"EXPORT_START_PARAM": "none"}, bridge.Position{Start: 1},
			"EXPORT_START_PARAM=none"},
		"earliest": {map[string]string{"EXPORT_START_PARAM": "none", "EXPORT_END_PARAM": "none"},
			bridge.Position{}, ""},
		"start behind it":    {map[string]string{"EXPORT_START_PARAM": "none"}, bridge.Position{Cursor: "c", Start: 1}, ""},
		"start, but no end":  {map[string]string{"EXPORT_END_PARAM": "none"}, bridge.Position{Start: 1}, ""},
		"window to earliest": {map[string]string{"EXPORT_START_PARAM": "none"}, bridge.Position{End: 2, Window: true}, ""},
	} {
		before := len(seen.all())
		c := serve(t, api, tc.vars)
		_, err := fetchAll(t, c, tc.at)
		asked := len(seen.all()) - before
		if tc.want == "" {
			if err != nil || asked != 1 {
				t.Errorf("%s: %v, %d requests", name, err, asked)
			}
		} else if f := wantFault(t, err); f.Class != bridge.Permanent || f.Reason != bridge.ReasonConfig ||
			!strings.Contains(f.Error(), tc.want) || asked != 0 {
			t.Errorf("%s: got %v %q %v, %d requests", name, f.Class, f.Reason, f, asked)
		}
		if _, err := (exportapi.Inspector{Client: c}).Check(t.Context(), false); err != nil {
			t.Errorf("%s: check: %v", name, err)
		}
	}
	for name, bounded := range map[string]bool{"/timestamp": true, "/timestamp,none": false, "none": false} {
		for _, wide := range []map[string]string{{"EXPORT_END_INCLUSIVE": "true"}, {"EXPORT_TIME_FORMAT": "s"}, nil} {
			vars := map[string]string{"EXPORT_ITEM_TIME": name}
			maps.Copy(vars, wide)
			cfg := config(t, vars)
			if err := cfg.Bounded(); (err == nil) != (bounded || wide == nil) ||
				err != nil && !strings.Contains(err.Error(), "EXPORT_ITEM_TIME") {
				t.Errorf("items with time %s, %v: %v", name, wide, err)
			}
		}
	}
	cfg := exportapi.DefaultConfig()
	if cfg.Bounded() != nil || cfg.Starts() != nil {
		t.Error("the default has no bounds")
	}
	cfg.EndParam = "none"
	if cfg.Bounded() == nil || cfg.Starts() != nil {
		t.Error("without an end there are windows")
	}
	cfg.StartParam, cfg.Params = "none", "q={start}..{end}"
	if cfg.Bounded() != nil || cfg.Starts() != nil || cfg.Refuse(bridge.Position{Start: 1}) == nil ||
		cfg.Refuse(bridge.Position{End: 1, Window: true}) == nil {
		t.Error("bounds inside of one value: no windows, or a range with one of them")
	}
	if cfg.Params = "from={start}"; cfg.Bounded() == nil || cfg.Starts() != nil || cfg.Refuse(bridge.Position{}) != nil {
		t.Error("a start as a value: windows, or no export from the earliest event on")
	}
}

// If the API rejects the range of a query, the hint names the longest range before the
// parameters.
func TestRangeTooLong(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		at := &windowAPI{}
		query := r.URL.Query()
		if at.parse(query.Get("to"))-at.parse(query.Get("from")) > (30 * time.Minute).Milliseconds() {
			http.Error(w, `{"error":"the range is too long"}`, http.StatusBadRequest)
			return
		}
		answer(emptyPage)(w, r)
	}, map[string]string{"EXPORT_START_PARAM": "from", "EXPORT_END_PARAM": "to", "EXPORT_TIME_FORMAT": "ms"})
	end := time.Now().Add(-time.Minute).UnixMilli()
	at := bridge.Position{Start: end - (2 * time.Hour).Milliseconds(), End: end, Window: true}
	cfg := windows.DefaultConfig()
	cfg.PageSize, cfg.MaxBytes, cfg.Timeout = 100, 1<<20, time.Minute
	_, err := windows.NewRange(c, cfg).Fetch(t.Context(), at)
	f := wantFault(t, err)
	if f.Class != bridge.Permanent || !strings.HasPrefix(f.Hint, "lower EXPORT_MAX_WINDOW") ||
		!strings.Contains(f.Hint, "EXPORT_PARAMS") {
		t.Errorf("%v, hint %q; want one that names EXPORT_MAX_WINDOW first", f, f.Hint)
	}
	cfg.MaxWindow = 20 * time.Minute
	if _, err := windows.NewRange(c, cfg).Fetch(t.Context(), at); err != nil {
		t.Errorf("within what the API lists: %v", err)
	}
}
