package exportsim_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge/exportapi/exportsim"
)

func named(t *testing.T, name string) exportsim.Form {
	t.Helper()
	form, ok := exportsim.FormNamed(name)
	if !ok {
		t.Fatalf("no form %s", name)
	}
	return form
}

func askToken(h http.Handler, client, secret string, form url.Values) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodPost, "/oauth/token", strings.NewReader(form.Encode()))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if client != "" {
		request.SetBasicAuth(client, secret)
	}
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, request)
	return recorder
}

func TestTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pass(2 * 365 * 24 * time.Hour) // the test's clock begins in 2000, too early for the simulator
		h := newHandler(t, exportsim.Config{Form: named(t, "auth0-logs"), Events: 10, APIKey: "se same%",
			TokenTTL: time.Minute})
		right := url.Values{"grant_type": {"client_credentials"}, "audience": {"https://acme.example/api/v2/"}}
		inBody := url.Values{"client_id": {"exporter"}, "client_secret": {"se same%"}}
		for name := range right {
			inBody[name] = right[name]
		}
		for _, test := range []struct {
			client, secret string
			form           url.Values
			want           int
		}{
			{"exporter", "se+same%25", right, 200},
			{"exporter", "se same%", right, 401},
			{"", "", inBody, 200},
			{"exporter", "wrong", right, 401},
			{"other", "se+same%25", right, 401},
			{"", "", right, 401},
			{"exporter", "se+same%25", url.Values{"grant_type": {"client_credentials"}}, 403},
			{"exporter", "sesame", url.Values{"grant_type": {"password"}}, 400},
		} {
			if r := askToken(h, test.client, test.secret, test.form); r.Code != test.want {
				t.Errorf("%s %s %v: %d, want %d: %s", test.client, test.secret, test.form, r.Code, test.want, r.Body)
			}
		}
		if r := recordStatus(h, "/oauth/token"); r.Code != 400 {
			t.Errorf("GET of a token: %d", r.Code)
		}
		reply := askToken(h, "exporter", "se+same%25", right).Body.Bytes()
		if seconds := string(at(reply, "expires_in")); seconds != "60" {
			t.Errorf("expires_in %s, want 60", seconds)
		}
		token := text(at(reply, "access_token"))
		status := func(value string) int {
			return recordStatus(h, "/api/v2/logs?from=0", "Authorization", value).Code
		}
		pass(59 * time.Second)
		for value, want := range map[string]int{
			"Bearer " + token: 200, token: 401, "Bearer": 401, "Bearer sesame": 401, "": 401,
			"Bearer 9" + token: 401, "Bearer " + token + "0": 401,
		} {
			if got := status(value); got != want {
				t.Errorf("%q: %d, want %d", value, got, want)
			}
		}
		pass(time.Second)
		if got := status("Bearer " + token); got != 401 {
			t.Errorf("an expired token gives %d", got)
		}
	})
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	h := newHandler(t, exportsim.Config{Form: named(t, "link"), APIKey: "sesame"})
	for _, test := range []struct {
		user, password string
		want           int
	}{{"exporter", "sesame", 200}, {"exporter", "", 401}, {"", "sesame", 401}, {"sesame", "exporter", 401}} {
		if got := recordStatus(h, "/items", "Authorization", basic(test.user,
			test.password).Get("Authorization")).Code; got != test.want {
			t.Errorf("%s:%s: %d, want %d", test.user, test.password, got, test.want)
		}
	}
	if got := recordStatus(h, "/items").Code; got != 401 {
		t.Errorf("no credentials: %d", got)
	}
	h = newHandler(t, exportsim.Config{Form: named(t, "next-url"), APIKey: "sesame", Events: 200})
	r := recordStatus(h, "http://api.example/export/events?api_key=sesame")
	next := text(at(r.Body.Bytes(), "links", "next"))
	if !strings.HasPrefix(next, "http://api.example/export/events?api_key=sesame&page_token=") {
		t.Errorf("next URL %q", next)
	}
	if got := recordStatus(h, "/export/events", "X-Api-Key", "sesame").Code; got != 401 {
		t.Errorf("key in a header: %d", got)
	}
	h = newHandler(t, exportsim.Config{Form: named(t, "last-item"), APIKey: "sesame"})
	if got := recordStatus(h, "/log").Code; got != 200 {
		t.Errorf("an API without keys: %d", got)
	}
}

// The policy allows as many requests as the limit, and no more.
func TestLimitPolicy(t *testing.T) {
	t.Parallel()
	for limit, want := range map[float64]string{3: `"default";q=3;w=1`, 0.1: `"default";q=1;w=10`, 1.5: `"default";q=2;w=2`} {
		h := newHandler(t, exportsim.Config{Form: named(t, "header-cursor"), RateLimit: limit})
		if got := recordStatus(h, "/feed").Header().Get("RateLimit-Policy"); got != want {
			t.Errorf("%v/s: policy %s, want %s", limit, got, want)
		}
	}
}

// A client that waits for the reset when nothing is left is never refused. A client that
// does not wait is.
func TestLimitHeaders(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		path, remaining, reset string
		status                 int
		retryAfter             bool
	}{
		"integer-cursor":   {"/changes", "RateLimit-Remaining", "RateLimit-Reset", 429, true},
		"header-cursor":    {"/feed", "", "", 429, true},
		"link":             {"/items", "X-RateLimit-Remaining", "X-RateLimit-Reset", 403, true},
		"okta-system-log":  {"/api/v1/logs", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset", 429, false},
		"auth0-logs":       {"/api/v2/logs", "X-RateLimit-Remaining", "X-RateLimit-Reset", 429, false},
		"github-audit-log": {"/orgs/acme/audit-log", "X-RateLimit-Remaining", "X-RateLimit-Reset", 403, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			pass(2 * 365 * 24 * time.Hour)
			h := newHandler(t, exportsim.Config{Form: named(t, name), RateLimit: 3})
			left := func(header http.Header) (n int, reset time.Duration) {
				if test.remaining == "" {
					fields := strings.Split(header.Get("RateLimit"), ";")
					n, _ = strconv.Atoi(strings.TrimPrefix(fields[1], "r="))
					seconds, _ := strconv.Atoi(strings.TrimPrefix(fields[2], "t="))
					return n, time.Duration(seconds) * time.Second
				}
				n, errLeft := strconv.Atoi(header.Get(test.remaining))
				at, errReset := strconv.ParseInt(header.Get(test.reset), 10, 64)
				if errLeft != nil || errReset != nil {
					t.Fatalf("%s: headers %v", name, header)
				}
				if strings.HasPrefix(test.reset, "X-") {
					return n, time.Until(time.Unix(at, 0))
				}
				return n, time.Duration(at) * time.Second
			}
			for range 3 {
				for want := 2; want >= 0; want-- {
					r := recordStatus(h, test.path)
					n, reset := left(r.Header())
					if r.Code != 200 || n != want || n == 0 && (reset <= 0 || reset > 2*time.Second) {
						t.Fatalf("%s: %d, %d left, want %d; reset in %s", name, r.Code, n, want, reset)
					}
				}
				refused := recordStatus(h, test.path)
				n, reset := left(refused.Header())
				if refused.Code != test.status || n != 0 || (refused.Header().Get("Retry-After") != "") != test.retryAfter {
					t.Fatalf("%s: %d, %d left, headers %v", name, refused.Code, n, refused.Header())
				}
				pass(reset)
				if r := recordStatus(h, test.path); r.Code != 200 {
					t.Fatalf("%s: %d after the reset", name, r.Code)
				}
				pass(time.Minute)
			}
		})
	}
}

func TestBodyOfPost(t *testing.T) {
	t.Parallel()
	h := newHandler(t, exportsim.Config{Form: named(t, "post"), Events: 300})
	post := func(media, body string) *httptest.ResponseRecorder {
		request := httptest.NewRequest(http.MethodPost, "/api/v2/events", strings.NewReader(body))
		request.Header.Set("Content-Type", media)
		recorder := httptest.NewRecorder()
		h.ServeHTTP(recorder, request)
		return recorder
	}
	for body, want := range map[string]int{
		`{}`: 200, `{"limit":7}`: 200,
		`{"limit":7,"start_time":"2026-11-01T00:00:01Z","end_time":"2026-11-01T02:00:00+01:00"}`: 200,
		`{"limit":"7"}`: 400, `{"limit":7.5}`: 400, `{"limit":1001}`: 400, `{"start_time":5}`: 400, `{"cursor":5}`: 400,
		`{"cursor":"x"}`: 400, `{"limit":[]}`: 400, `[]`: 400, ``: 400, `{"limit":`: 400,
	} {
		if r := post("application/json", body); r.Code != want {
			t.Errorf("%s: %d, want %d: %s", body, r.Code, want, r.Body)
		}
	}
	if r := post("text/plain", `{}`); r.Code != http.StatusUnsupportedMediaType {
		t.Errorf("text: %d", r.Code)
	}
	if r := recordStatus(h, "/api/v2/events"); r.Code != 405 || r.Header().Get("Allow") != "POST" {
		t.Errorf("GET: %d, Allow %q", r.Code, r.Header().Get("Allow"))
	}
	// A full last page says that it is the last one.
	for body, want := range map[string]string{`{"limit":299}`: "true", `{"limit":300}`: "false",
		`{"limit":301}`: "false"} {
		page := post("application/json", body).Body.Bytes()
		if more := string(at(page, "has_more")); more != want || text(at(page, "cursor")) == "" {
			t.Errorf("%s: has_more %s, want %s", body, more, want)
		}
	}
	h = newHandler(t, exportsim.Config{Form: named(t, "end-of-stream"), Events: 300})
	for size, want := range map[string]string{"299": "false", "300": "true", "301": "true"} {
		page := recordStatus(h, "/api/v2/incremental/events/cursor?per_page="+size).Body.Bytes()
		if end := string(at(page, "end_of_stream")); end != want || text(at(page, "after_cursor")) == "" {
			t.Errorf("%s events: end_of_stream %s, want %s", size, end, want)
		}
	}
}

func TestFormIsValidated(t *testing.T) {
	t.Parallel()
	err := (&exportsim.Config{TokenTTL: -1, Form: exportsim.Form{
		Name: "odd", Method: "PUT", Item: `{"a":1}`, ItemTimeFormat: "h", ItemsField: "root", CursorIn: "body",
		CursorKind: "float",
		TimeFormat: "none", Auth: "digest",
	}}).Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`form "odd": Method "PUT" is not one of: GET, POST`, "ItemTimeFormat", "CursorKind", "TimeFormat", "Auth",
		"Item does not end", "an array has no member", "token lifetime",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %q:\n%v", want, err)
		}
	}
	for _, name := range exportsim.FormNames() {
		if err := (&exportsim.Config{Form: named(t, name)}).Validate(); err != nil {
			t.Error(err)
		}
	}
}
