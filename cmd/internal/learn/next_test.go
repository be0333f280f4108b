package learn_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"exportbridge/cmd/internal/learn"
)

// TestOnePage: where all items fit on the first page, a smaller one proves the cursor; without
// one, an opaque cursor is taken with a question, a number is not.
func TestOnePage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		query, param string // of the page size
		next         func(r *http.Request, n int) string
		want         []string
		err          string
	}{
		"smaller pages": {"", "limit", func(_ *http.Request, n int) string { return fmt.Sprintf(`{"offset":"t%d"}`, n) },
			[]string{"EXPORT_CURSOR_PARAM=offset\n", "proven: 3 pages with 300 items", "with 14 requests",
				"PAGE_SIZE_PARAM=limit\n", "EXPORT_PAGE_SIZE=100\n"}, ""},
		"a smaller limit": {"?count=500", "count",
			func(_ *http.Request, n int) string { return fmt.Sprintf(`{"offset":"t%d"}`, n) },
			[]string{"EXPORT_CURSOR_PARAM=offset\n", "proven: 3 pages", "EXPORT_PAGE_SIZE_PARAM=count\n",
				"EXPORT_PAGE_SIZE=500\n"}, ""},
		"no smaller pages": {"", "-", func(_ *http.Request, n int) string { return fmt.Sprintf(`{"offset":"t%d"}`, n) },
			[]string{"EXPORT_CURSOR_PARAM=offset\n", "# ? not proven: the page at the cursor is empty",
				"EXPORT_PAGE_SIZE=320\n"}, ""},
		"a cursor in the command": {"?offset=t3&limit=50", "limit",
			func(_ *http.Request, n int) string { return fmt.Sprintf(`{"offset":"t%d"}`, n) },
			[]string{"EXPORT_CURSOR_PARAM=offset\n", "the curl command had offset", "proven: 3 pages with 150 items"}, ""},
		"a URL": {"", "limit", func(r *http.Request, n int) string {
			return fmt.Sprintf(`{"uri":"http://%s%s?offset=t%d&limit=%s"}`, r.Host, r.URL.Path, n,
				cmp.Or(r.URL.Query().Get("limit"), "999"))
		}, []string{"EXPORT_CURSOR_IN=next-url\n", "proven: 3 pages"}, ""},
		"a number": {"", "-", func(*http.Request, int) string { return "7" }, nil, "the page at the cursor is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := new(atomic.Int64)
			url := odd(t, asked, func(w http.ResponseWriter, r *http.Request) {
				v := r.URL.Query()
				from, _ := strconv.Atoi(strings.TrimPrefix(cmp.Or(v.Get("offset"), v.Get("next")), "t"))
				if v.Get("next") != "" {
					from = 320
				}
				size, err := strconv.Atoi(v.Get(c.param))
				if v.Get(c.param) == "999" || err != nil {
					size = 999
				} else if size > 100 && c.query == "" {
					w.WriteHeader(http.StatusBadRequest)
					return
				}
				n := min(size, 320-from)
				fmt.Fprintf(w, `{"data":%s,"next_page":%s}`, items(from, n, 1), c.next(r, from+n))
			})
			lesson, err := learn.Learn(t.Context(), parsed(t, "curl "+url+"/e"+c.query), nil)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, %+v", err, lesson)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			wantIn(t, lesson.Profile, c.want...)
			if n := asked.Load(); n > 16 || !strings.Contains(lesson.Profile, fmt.Sprintf("with %d requests", n)) {
				t.Errorf("%d requests\n%s", n, lesson.Profile)
			}
		})
	}
}

// TestLargeLimit: a limit above the largest page size is a parameter of each request.
func TestLargeLimit(t *testing.T) {
	t.Parallel()
	url := odd(t, new(atomic.Int64), func(w http.ResponseWriter, r *http.Request) {
		from, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Query().Get("cursor"), "c"))
		fmt.Fprintf(w, `{"items":%s,"cursor":"c%d"}`, items(from, 20, 1), from+20)
	})
	wantIn(t, learned(t, "curl '"+url+"/e?limit=50000'"), "EXPORT_PARAMS=limit=50000\n",
		"EXPORT_PAGE_SIZE_PARAM=none\n", "EXPORT_CURSOR_PARAM=cursor\n")
}

// TestBracketInValue: a bracket inside a text of a JSON value ends no parameter.
func TestBracketInValue(t *testing.T) {
	t.Parallel()
	url := odd(t, new(atomic.Int64), func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Cursor, X string
			Kinds     []string
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.X != "y" || body.Kinds[0] != "a[b" {
			t.Errorf("%+v, %v", body, err)
		}
		from, _ := strconv.Atoi(strings.TrimPrefix(body.Cursor, "c"))
		fmt.Fprintf(w, `{"items":%s,"cursor":"c%d"}`, items(from, 10, 1), from+10)
	})
	wantIn(t, learned(t, `curl -d '{"limit":10,"kinds":["a[b"],"x":"y"}' `+url+"/e"), "EXPORT_CURSOR_PARAM=cursor\n")
}

// TestNextURLOfPost: a next URL, which no POST can follow, ends no search for the cursor.
func TestNextURLOfPost(t *testing.T) {
	t.Parallel()
	url := odd(t, new(atomic.Int64), func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Cursor string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		from, _ := strconv.Atoi(strings.TrimPrefix(body.Cursor, "c"))
		w.Header().Set("Link", fmt.Sprintf(`</e?cursor=c%d>; rel="next"`, from+10))
		fmt.Fprintf(w, `{"items":%s,"cursor":"c%d"}`, items(from, 10, 1), from+10)
	})
	wantIn(t, learned(t, `curl -d '{"limit":10}' `+url+"/e"), "EXPORT_CURSOR_FIELD=/cursor\n")
}

// TestLinkToNoResults: where all items fit on the first page, whose link to the next one says that it
// has no results, a smaller page proves the link.
func TestLinkToNoResults(t *testing.T) {
	t.Parallel()
	url := odd(t, new(atomic.Int64), func(w http.ResponseWriter, r *http.Request) {
		from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
		size, _ := strconv.Atoi(cmp.Or(r.URL.Query().Get("limit"), "50"))
		n := min(size, 20-from)
		w.Header().Set("Link", fmt.Sprintf(`</e?limit=%d&cursor=%d>; rel="next"; results="%t"`, size, from+n, from+n < 20))
		fmt.Fprint(w, items(from, n, 1))
	})
	wantIn(t, learned(t, "curl '"+url+"/e?limit=50'"), "EXPORT_CURSOR_IN=link\n", "proven: 3 pages")
}
