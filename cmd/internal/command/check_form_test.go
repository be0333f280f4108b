package command

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// formList is the part of a list that a request selects by its start and end. The list has
// an item each minute. A form splits the part into pages.
type formList struct {
	first, all int // the first item of the whole list, and how many
	query      url.Values
	size       int
	queries    int // requests without a cursor up to now
}

// formPage is a page: its items within the list and its other members, or an error.
type formPage struct {
	from, to      int
	rest, refusal string
	link          string // the next URL in a header
}

// number is the number in the cursor.
func (l *formList) number(otherwise int) int {
	text := cmp.Or(l.query.Get("cursor"), l.query.Get("page"), l.query.Get("p"), l.query.Get("offset"))
	n, err := strconv.Atoi(strings.TrimPrefix(text, "c"))
	if err != nil {
		return otherwise
	}
	return n
}

// from is the page that begins at an item. next is the rest of the page, with the number of
// the next item.
func (l *formList) from(i int, next string) formPage {
	p := formPage{from: min(i, l.all), to: min(i+l.size, l.all)}
	if p.to < l.all && next != "" {
		p.rest = fmt.Sprintf(next, p.to)
	}
	return p
}

// page is the page whose number is in the cursor. Pages before it have size items.
func (l *formList) page(size int, next string) formPage {
	n := l.number(1)
	p := formPage{from: min((n-1)*size, l.all), to: min((n-1)*size+l.size, l.all)}
	if p.to < l.all {
		p.rest = fmt.Sprintf(next, n+1)
	}
	return p
}

// located is a page by a locator, which names the results of a query.
func (l *formList) located() formPage {
	l.size = 20
	if _, found, ok := strings.Cut(l.query.Get("cursor"), "-"); ok {
		l.all, _ = strconv.Atoi(found)
		return l.from(l.size, "")
	}
	p := l.from(0, "")
	if p.to < l.all {
		p.rest = fmt.Sprintf(`,"nextCursor":"q%d-%d"`, l.queries, l.all)
	}
	return p
}

// atMost is the list if the range is not longer than a limit.
func (l *formList) atMost(longest time.Duration, refusal string) formPage {
	start, _ := strconv.Atoi(l.query.Get("start"))
	end, _ := strconv.Atoi(l.query.Get("end"))
	if time.Duration(end-start)*time.Millisecond > longest {
		return formPage{refusal: refusal}
	}
	return formPage{to: l.all}
}

var listForms = map[string]func(l *formList) formPage{
	"page numbers": func(l *formList) formPage { return l.page(l.size, `,"nextCursor":%d`) },
	"page members": func(l *formList) formPage { return l.page(l.size, `,"next_page":%d`) },
	"page URLs": func(l *formList) formPage {
		return l.page(l.size, fmt.Sprintf(`,"nextCursor":"?page=%%d&pageSize=%d"`, l.size))
	},
	"page links": func(l *formList) formPage {
		p := l.page(l.size, fmt.Sprintf("<?p=%%d&pageSize=%d>; rel=next", l.size))
		p.link, p.rest = p.rest, ""
		return p
	},
	"batches": func(l *formList) formPage {
		l.size = 10
		return l.page(10, `,"nextCursor":%d`)
	},
	"segments": func(l *formList) formPage { return l.page(150, `,"nextCursor":%d`) },
	"offsets":  func(l *formList) formPage { return l.from(l.number(0), `,"nextCursor":%d`) },
	"sequence": func(l *formList) formPage {
		p := l.from(max(0, l.number(0)-l.first), "")
		if p.to < l.all {
			p.rest = fmt.Sprintf(`,"nextCursor":%d`, l.first+p.to)
		}
		return p
	},
	"locators": (*formList).located,
	"locators of a list that grows": func(l *formList) formPage {
		l.all += min(l.all, l.queries)
		return l.located()
	},
	"end of a stream": func(l *formList) formPage {
		p := l.from(l.number(0), `,"nextCursor":"c%d","drained":false`)
		p.rest = cmp.Or(p.rest, fmt.Sprintf(`,"nextCursor":"c%d","drained":true`, l.all))
		return p
	},
	"no page size": func(l *formList) formPage {
		l.size = 150
		return l.from(l.number(0), `,"nextCursor":"c%d"`)
	},
	"short pages": func(l *formList) formPage {
		l.size = 20
		return l.from(l.number(0), `,"nextCursor":"c%d"`)
	},
	"ranges": func(l *formList) formPage { return formPage{to: l.all} },
	"a week": func(l *formList) formPage {
		return l.atMost(7*24*time.Hour, `{"message":"the range must not exceed 7 days"}`)
	},
	"both bounds": func(l *formList) formPage {
		start, _ := strconv.Atoi(l.query.Get("start"))
		if end, err := strconv.Atoi(l.query.Get("end")); err != nil || end < start || l.query.Get("start") == "" {
			return formPage{refusal: `{"message":"start and end are required"}`}
		}
		return l.from(l.number(0), `,"nextCursor":"c%d"`)
	},
	"times of 13 digits": func(l *formList) formPage {
		if start, end := l.query.Get("start"), l.query.Get("end"); len(start) != 13 || len(end) != 13 {
			return formPage{refusal: `{"message":"Invalid request parameters","message_detail":"start"}`}
		}
		return l.from(l.number(0), `,"nextCursor":"c%d"`)
	},
	"times of 13 digits, no end": func(l *formList) formPage {
		if start := l.query.Get("start"); len(start) != 13 {
			return formPage{refusal: `{"message":"Invalid request parameters","message_detail":"start"}`}
		}
		l.all = 1000 - l.first
		return l.from(l.number(0), `,"nextCursor":"c%d"`)
	},
	"no milliseconds": func(l *formList) formPage {
		if start := l.query.Get("start"); strings.Contains(start, ".") {
			return formPage{refusal: `{"message":"start is no time: 2026-01-01T00:00:00Z"}`}
		}
		return l.from(l.number(0), `,"nextCursor":"c%d"`)
	},
	"a day": func(l *formList) formPage { return l.atMost(24*time.Hour, `{"message":"the range is too long"}`) },
}

// serveForm serves a list in a form. The list ends before now. Its items are ingested lateBy
// milliseconds after their time.
func serveForm(t *testing.T, form string, items, lateBy int) (url string, requests *atomic.Int64) {
	t.Helper()
	requests = new(atomic.Int64)
	var queries atomic.Int64
	const minute = 60_000
	begin := int(time.Now().UnixMilli())/minute*minute - (items+10)*minute
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		l := &formList{all: items, query: r.URL.Query()}
		if l.number(0) == 0 {
			l.queries = int(queries.Add(1))
		}
		l.size, _ = strconv.Atoi(l.query.Get("pageSize"))
		at := func(bound string, otherwise int) int {
			ms, err := strconv.Atoi(l.query.Get(bound))
			if err != nil {
				return otherwise
			}
			return min(items, max(0, (ms-begin+minute-1)/minute))
		}
		l.first = at("start", 0)
		l.all = max(0, at("end", items)-l.first)
		p := listForms[form](l)
		w.Header().Set("Content-Type", "application/json")
		if p.link != "" {
			w.Header().Set("Link", p.link)
		}
		if p.refusal != "" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprint(w, p.refusal)
			return
		}
		var all []string
		for i := l.first + p.from; i < l.first+p.to; i++ {
			when := begin + minute*i
			all = append(all,
				fmt.Sprintf(`{"eventId":"e%d","timestamp":%d,"userId":"u","systemTimestamp":%d}`, i, when, when+lateBy))
		}
		_, _ = fmt.Fprintf(w, `{"items":[%s]%s}`, strings.Join(all, ","), p.rest)
	}))
	t.Cleanup(api.Close)
	return api.URL, requests
}

// TestCheckSampleOfOnePage: check says that --sample asks for more than the page it shows.
func TestCheckSampleOfOnePage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		form, sample, want string
		items              int
	}{
		{"short pages", "320", "20 of the 320 items of --sample are shown", 50},
		{"short pages", "320", "", 20},
		{"short pages", "20", "", 50},
		{"offsets", "320", "200 of the 320 items of --sample are shown", 1000},
	} {
		api, _ := serveForm(t, test.form, test.items, 0)
		env := map[string]string{"EXPORT_URL": api, "EXPORT_PATH": "/list", "EXPORT_API_KEY": secretKey,
			"EXPORT_PAGE_SIZE": "200"}
		got := runProgram(t, env, "check", "--only", "api", "--sample", test.sample)
		if said := strings.Contains(got.stdout, "of --sample are shown"); said != (test.want != "") ||
			!strings.Contains(got.stdout, test.want) {
			t.Errorf("%+v: got %s", test, got.stdout)
		}
	}
}

// mostRequests is the maximum number of requests of a check of the API: for three pages, for
// the bounds of ranges, and four for the form of the list.
const mostRequests = 3 + 4 + 4

// TestCheckForms: by its requests, check recognizes lists that their cursor does not follow.
// If the requests prove nothing, check asks the user.
func TestCheckForms(t *testing.T) {
	t.Parallel()
	const page, offset = "--set EXPORT_CURSOR_PARAM=page", "--set EXPORT_CURSOR_PARAM=offset"
	const windows = "--set EXPORT_FOLLOW=windows --set EXPORT_START=2026-01-01"
	for _, test := range []struct {
		name, form, args string
		items, lateBy    int
		silent           bool // it has no finding
	}{
		{name: "page numbers", form: "page numbers", items: 1000, args: page},
		{name: "page numbers, few", form: "page numbers", items: 150, args: page},
		{name: "page numbers in another member", form: "page members", items: 1000, args: page +
			" --set EXPORT_CURSOR_FIELD=next_page"},
		{name: "page numbers, no page size", form: "batches", items: 1000, args: page + " --set EXPORT_PAGE_SIZE_PARAM=none"},
		{name: "page numbers in a URL", form: "page URLs", items: 1000, args: "--set EXPORT_CURSOR_IN=next-url"},
		{name: "page numbers in a Link header", form: "page links", items: 1000, args: "--set EXPORT_CURSOR_IN=link"},
		{name: "segments", form: "segments", items: 1000, args: page, silent: true},
		{name: "offsets", form: "offsets", items: 1000, args: offset},
		{name: "offsets without a start", form: "offsets", items: 1000, args: offset + " --set EXPORT_START_PARAM=none"},
		{name: "sequence", form: "sequence", items: 1000, silent: true},
		{name: "locators", form: "locators", items: 30},
		{name: "locators of a list that grows", form: "locators of a list that grows", items: 30},
		{name: "end of a stream", form: "end of a stream", items: 1000, args: "--set EXPORT_MORE_FIELD=drained"},
		{name: "end of a stream, few", form: "end of a stream", items: 120, args: "--set EXPORT_MORE_FIELD=drained"},
		{name: "end of a stream, right", form: "end of a stream", items: 1000, args: "--set EXPORT_MORE_FIELD=!drained"},
		{name: "no page size", form: "no page size", items: 1000},
		{name: "short pages", form: "short pages", items: 1000},
		{name: "a week", form: "a week", items: 1000, args: windows},
		{name: "a day", form: "a day", items: 1000, args: windows},
		{name: "both bounds", form: "both bounds", items: 1000, args: windows},
		{name: "times of 13 digits", form: "times of 13 digits", items: 1000, args: windows},
		{name: "times of 13 digits, an ignored end", form: "times of 13 digits, no end", items: 1000, args: windows},
		{name: "times of 13 digits, another format", form: "times of 13 digits", items: 1000, args: windows +
			" --set EXPORT_TIME_FORMAT=s"},
		{name: "both bounds, numbered", form: "both bounds", items: 30, args: windows +
			" --set EXPORT_CURSOR_IN=offset --set EXPORT_CURSOR_PARAM=offset"},
		{name: "both bounds, a bounded stream", form: "both bounds", items: 1000,
			args: "--set EXPORT_START=2026-01-01 --set EXPORT_END=2099-01-01"},
		{name: "both bounds, by the cursor", form: "both bounds", items: 1000},
		{name: "bounds in milliseconds", form: "ranges", items: 80, args: windows + " --set EXPORT_TIME_FORMAT=s"},
		{name: "bounds in milliseconds, a cursor", form: "offsets", items: 1000,
			args: "--set EXPORT_START=2026-01-01 --set EXPORT_TIME_FORMAT=us"},
		{name: "bounds in another format, ignored", form: "ranges", items: 80, args: windows +
			" --set EXPORT_TIME_FORMAT=rfc3339"},
		{name: "bounds without milliseconds", form: "no milliseconds", items: 30,
			args: "--set EXPORT_START=2026-01-01 --set EXPORT_TIME_FORMAT=rfc3339"},
		{name: "an empty list", form: "ranges", args: windows},
		{name: "late events", form: "ranges", items: 80, lateBy: 300_000, args: windows},
		{name: "events that are not late", form: "ranges", items: 80, lateBy: 30_000, args: windows},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			api, requests := serveForm(t, test.form, test.items, test.lateBy)
			env := map[string]string{"EXPORT_URL": api, "EXPORT_PATH": "/list", "EXPORT_API_KEY": secretKey,
				"EXPORT_PAGE_SIZE": "200"}
			got := runProgram(t, env, append([]string{"check", "--only", "api"}, strings.Fields(test.args)...)...)
			wantGolden(t, "check form "+test.name, got)
			if strings.Contains(got.stdout+got.stderr, secretKey) {
				t.Error("the key is printed")
			}
			if says := strings.Contains(got.stdout, "count"); test.silent && says {
				t.Errorf("a cursor is taken for a number: %s", got.stdout)
			}
			if n := requests.Load(); n > mostRequests {
				t.Errorf("%d requests, want at most %d", n, mostRequests)
			}
		})
	}
}
