package learn_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
)

// service is an API as its public documentation describes it, with 240 events.
type service struct {
	curl string // of the documentation; URL is the base
	// params are all its parameters. It rejects others if strict is set, and else ignores them.
	params   string
	strict   bool
	start    string
	end      string
	required bool // of start and end
	unit     string
	item     func(e event) string
	newest   bool
	size     string
	most     int
	page     func(w http.ResponseWriter, r *http.Request, v url.Values, items string, at, n, all int)
	at       func(v url.Values) int // of the first item
	path     string
	then     string // the path of requests with a cursor, if it is another one

	want  []string      // of the profile
	every time.Duration // between two events; 0 is 20 s
	hint  string        // at the end of an error about a parameter
	// endInclusive is the value that the profile must have proven.
	endInclusive bool
	// startExclusive leaves out an event at the start.
	startExclusive bool
	// seconds is set if items have their time without its fraction: nothing can be proven.
	seconds bool
}

type event struct {
	n  int
	at time.Time
}

const events = 240

var began = time.Now().Add(-2 * time.Hour).Truncate(time.Minute).UTC()

// event returns an event; most have a time with a fraction of a second.
func (s *service) event(n int) event {
	fraction := time.Duration(n%3) * 137 * time.Millisecond
	if s.every > 0 {
		fraction = 0
	}
	return event{n, began.Add(time.Duration(n)*cmp.Or(s.every, 20*time.Second) + fraction)}
}

func instant(text string) (time.Time, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 1e12 {
		return time.UnixMilli(n), nil
	} else if err == nil {
		return time.Unix(n, 0), nil
	}
	return time.Parse(time.RFC3339, text)
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	refuse := func(status int, format string, args ...any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"message": fmt.Sprintf(format, args...)})
	}
	v := r.URL.Query()
	if r.Method == http.MethodPost {
		v = url.Values{}
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			refuse(http.StatusBadRequest, "not JSON")
			return
		}
		flat(v, "", body)
	}
	known := strings.Fields(s.params)
	switch {
	case r.Header.Get("Authorization") == "" && (r.Header.Get("X-Auth-Key") != "Sesame" ||
		r.Header.Get("X-Auth-Email") == "") && r.Header.Get("Fastly-Key") == "":
		refuse(http.StatusUnauthorized, "no key")
		return
	case s.then != "" && r.URL.Path == s.then:
		if known = []string{"cursor"}; !v.Has("cursor") {
			refuse(http.StatusBadRequest, "cursor is missing")
			return
		}
	case r.URL.Path != s.path:
		refuse(http.StatusNotFound, "not found")
		return
	case s.required && (!v.Has(s.start) || !v.Has(s.end)):
		refuse(http.StatusBadRequest, "%s and %s are required", s.start, s.end)
		return
	}
	for name := range v {
		if s.strict && !slices.Contains(known, name) {
			refuse(http.StatusBadRequest, "the parameter %s is not supported%s", name, s.hint)
			return
		}
	}
	s.list(w, r, v, refuse)
}

func flat(v url.Values, at string, body map[string]any) {
	for name, value := range body {
		if inside, ok := value.(map[string]any); ok {
			flat(v, at+name+"/", inside)
			continue
		}
		v.Set(at+name, fmt.Sprint(value))
	}
}

func (s *service) list(w http.ResponseWriter, r *http.Request, v url.Values, refuse func(int, string, ...any)) {
	var found []event
	var from, to time.Time
	for name, bound := range map[string]*time.Time{s.start: &from, s.end: &to} {
		if name == "" || !v.Has(name) {
			continue
		}
		var err error
		text, rfc := v.Get(name), strings.HasPrefix(s.unit, "rfc3339")
		fraction := s.unit == "rfc3339 without fractions" && strings.Contains(text, ".")
		if *bound, err = instant(text); err != nil || rfc != strings.Contains(text, "T") || fraction {
			refuse(http.StatusBadRequest, "%s must be a time in the format %s", name, s.unit)
			return
		}
	}
	for n := range events {
		e := s.event(n)
		early := e.at.Before(from) || s.startExclusive && e.at.Equal(from)
		if !from.IsZero() && early || !to.IsZero() && (e.at.After(to) || e.at.Equal(to) && !s.endInclusive) {
			continue
		}
		found = append(found, e)
	}
	if s.newest {
		slices.Reverse(found)
	}
	size := s.most
	if v.Has(s.size) {
		size, _ = strconv.Atoi(v.Get(s.size))
	}
	at := min(s.at(v)*map[bool]int{true: size, false: 1}[v.Has("page")], len(found))
	last := min(at+min(size, s.most), len(found))
	var texts []string
	for _, e := range found[at:last] {
		texts = append(texts, s.item(e))
	}
	s.page(w, r, v, "["+strings.Join(texts, ",")+"]", at, last, len(found))
}

// opaque reads a cursor such as c50.
func opaque(name string) func(url.Values) int {
	return func(v url.Values) int {
		n, _ := strconv.Atoi(strings.TrimPrefix(v.Get(name), "c"))
		return n
	}
}

// cursorText returns a cursor in JSON, null after the end.
func cursorText(n, all int) string {
	if n >= all {
		return "null"
	}
	return fmt.Sprintf("%q", "c"+strconv.Itoa(n))
}

func rfc(e event) string { return e.at.Format("2006-01-02T15:04:05.000Z") }

var actions = []string{"login", "logout", "create", "delete"}

var services = map[string]*service{
	// https://developer.atlassian.com/cloud/admin/organization/rest/api-group-events/
	"atlassian": {
		curl: `curl --request GET --url 'URL/admin/v1/orgs/4711/events' --header 'Authorization: Bearer Sesame' --header 'Accept: application/json'`,
		path: "/admin/v1/orgs/4711/events", params: "cursor q from to action limit", start: "from", end: "to", unit: "ms",
		endInclusive: true,
		newest:       true, size: "limit", most: 50, at: opaque("cursor"),
		item: func(e event) string {
			return fmt.Sprintf(`{"id":"e%d","type":"events","attributes":{"time":%q,"action":%q,"actor":{"id":"u%d","name":"Jo"},"context":[],"container":[]},"links":{"self":"https://api.example/e%[1]d"}}`,
				e.n, rfc(e), actions[e.n%4], e.n%7)
		},
		page: func(w http.ResponseWriter, r *http.Request, _ url.Values, items string, _, n, all int) {
			next := "null"
			if n < all {
				next = fmt.Sprintf(`"http://%s%s?cursor=c%d"`, r.Host, r.URL.Path, n)
			}
			fmt.Fprintf(w, `{"data":%s,"meta":{"next":%s,"page_size":50},"links":{"self":"http://%s%s","prev":null,"next":%s}}`,
				items, cursorText(n, all), r.Host, r.URL.Path, next)
		},
		want: []string{"EXPORT_FOLLOW=windows", "EXPORT_START_PARAM=from", "EXPORT_END_PARAM=to", "EXPORT_TIME_FORMAT=ms",
			"EXPORT_CURSOR_PARAM=cursor", "EXPORT_ITEM_TYPE=/attributes/action", "EXPORT_PAGE_SIZE_PARAM=limit"},
	},
	// https://developers.miro.com/reference/enterprise-get-audit-logs
	"miro": {
		curl: fmt.Sprintf(`curl -H 'authorization: Bearer Sesame' -H 'accept: application/json' 'URL/v2/audit/logs?createdAfter=%s&createdBefore=%s&limit=50'`,
			began.Add(-time.Minute).Format(time.RFC3339), began.Add(2*time.Hour).Format(time.RFC3339)),
		path: "/v2/audit/logs", params: "createdAfter createdBefore cursor limit sorting", strict: true,
		start: "createdAfter", end: "createdBefore", required: true, unit: "rfc3339",
		size: "limit", most: 100, at: opaque("cursor"),
		item: func(e event) string {
			return fmt.Sprintf(`{"id":"e%d","context":{"ip":"127.0.0.1"},"object":{"id":"%[1]d","name":"o"},"createdAt":%q,"createdBy":{"type":"user","id":"u%d"},"details":{},"category":"c","event":%q}`,
				e.n, rfc(e), e.n%7, actions[e.n%4])
		},
		page: func(w http.ResponseWriter, _ *http.Request, _ url.Values, items string, at, n, all int) {
			fmt.Fprintf(w, `{"limit":50,"size":%d,"data":%s,"cursor":%s,"type":"cursor-list"}`, n-at, items, cursorText(n, all))
		},
		want: []string{"EXPORT_FOLLOW=windows", "EXPORT_START_PARAM=createdAfter", "EXPORT_END_PARAM=createdBefore",
			"EXPORT_CURSOR_PARAM=cursor", "EXPORT_ITEM_TYPE=/event"},
	},
	// https://developer.pagerduty.com/api-reference/, List audit records
	"pagerduty": {
		curl: `curl --request GET --url URL/audit/records --header 'Accept: application/json' --header 'Authorization: Token token=Sesame' --header 'Content-Type: application/json'`,
		path: "/audit/records", params: "limit cursor since until root_resource_types[] actor_type actor_id method_type " +
			"actions[]", strict: true, start: "since", end: "until", unit: "rfc3339",
		newest: true, size: "limit", most: 100, at: opaque("cursor"),
		item: func(e event) string {
			return fmt.Sprintf(`{"id":"e%d","self":null,"execution_time":%q,"execution_context":{"request_id":"r"},"actors":[{"id":"u%d","type":"user_reference"}],"method":{"type":"browser"},"root_resource":{"id":"P%d","type":"user_reference"},"action":%q,"details":{}}`,
				e.n, rfc(e), e.n%7, e.n%3, actions[e.n%4])
		},
		page: func(w http.ResponseWriter, _ *http.Request, _ url.Values, items string, _, n, all int) {
			fmt.Fprintf(w, `{"records":%s,"next_cursor":%s,"limit":100}`, items, cursorText(n, all))
		},
		want: []string{"EXPORT_FOLLOW=windows", "EXPORT_START_PARAM=since", "EXPORT_END_PARAM=until",
			"EXPORT_CURSOR_PARAM=cursor", "EXPORT_PAGE_SIZE_PARAM=limit"},
	},
	// https://developers.cloudflare.com/api/resources/audit_logs/
	"cloudflare": {
		curl: `curl URL/client/v4/accounts/4711/audit_logs -H 'X-Auth-Email: jo@example.com' -H 'X-Auth-Key: Sesame'`,
		path: "/client/v4/accounts/4711/audit_logs", params: "since before page per_page direction id hide_user_logs",
		start: "since", end: "before", unit: "rfc3339", seconds: true,
		newest: true, size: "per_page", most: 100,
		at: func(v url.Values) int { n, _ := strconv.Atoi(cmp.Or(v.Get("page"), "1")); return n - 1 },
		item: func(e event) string {
			return fmt.Sprintf(`{"id":"e%d","action":{"result":true,"type":%q},"actor":{"id":"u%d","type":"user"},"interface":"API","metadata":{},"newValue":"","oldValue":"","owner":{"id":"o"},"resource":{"id":"r","type":"account"},"when":%q}`,
				e.n, actions[e.n%4], e.n%7, e.at.Format(time.RFC3339))
		},
		page: func(w http.ResponseWriter, _ *http.Request, _ url.Values, items string, _, _, _ int) {
			fmt.Fprintf(w, `{"errors":[],"messages":[],"result":%s,"success":true}`, items)
		},
		want: []string{"EXPORT_FOLLOW=windows", "EXPORT_START_PARAM=since", "EXPORT_END_PARAM=before",
			"EXPORT_CURSOR_IN=page-number", "EXPORT_CURSOR_PARAM=page", "EXPORT_ITEM_TYPE=/action/type",
			"EXPORT_KEY_HEADER=X-Auth-Key"},
	},
	// https://www.twilio.com/docs/usage/monitor-events
	"twilio": {
		curl: `curl -X GET 'URL/v1/Events?PageSize=20' -u AC123:Sesame`,
		path: "/v1/Events", params: "ActorSid EventType ResourceSid SourceIpAddress StartDate EndDate PageSize Page PageToken",
		start: "StartDate", end: "EndDate", unit: "rfc3339", seconds: true, endInclusive: true,
		newest: true, size: "PageSize", most: 1000, at: opaque("PageToken"),
		item: func(e event) string {
			return fmt.Sprintf(`{"sid":"AE%032d","account_sid":"AC123","actor_sid":"US%d","actor_type":"user","description":null,"event_type":%q,"event_date":%q,"resource_sid":"PN1","source":"web","url":"https://monitor.example/v1/Events/AE"}`,
				e.n, e.n%7, actions[e.n%4], e.at.Format(time.RFC3339))
		},
		page: func(w http.ResponseWriter, r *http.Request, v url.Values, items string, _, n, all int) {
			next := "null"
			if n < all {
				w := url.Values{"PageSize": {v.Get("PageSize")}, "Page": {"1"}, "PageToken": {fmt.Sprintf("c%d", n)}}
				for _, name := range []string{"StartDate", "EndDate"} {
					if v.Has(name) {
						w.Set(name, v.Get(name))
					}
				}
				next = fmt.Sprintf(`"http://%s%s?%s"`, r.Host, r.URL.Path, w.Encode())
			}
			fmt.Fprintf(w, `{"events":%s,"meta":{"page":0,"page_size":50,"first_page_url":"http://%s%s?PageSize=50&Page=0","previous_page_url":null,"url":"http://%[2]s%[3]s?PageSize=50&Page=0","next_page_url":%s,"key":"events"}}`,
				items, r.Host, r.URL.Path, next)
		},
		want: []string{"EXPORT_FOLLOW=windows", "EXPORT_START_PARAM=StartDate", "EXPORT_END_PARAM=EndDate",
			"EXPORT_CURSOR_IN=next-url", "EXPORT_ITEM_TYPE=/event_type", "EXPORT_ITEM_ID=/sid"},
	},
	// https://developer.box.com/reference/get-events/
	"box": {
		curl: fmt.Sprintf(`curl -i -X GET 'URL/2.0/events?stream_type=admin_logs&limit=50&created_after=%s' -H 'authorization: Bearer Sesame'`,
			began.Add(-time.Minute).Format(time.RFC3339)),
		path: "/2.0/events", params: "stream_type stream_position limit event_type created_after created_before",
		start: "created_after", end: "created_before", unit: "rfc3339", seconds: true,
		size: "limit", most: 500, at: opaque("stream_position"),
		item: func(e event) string {
			return fmt.Sprintf(`{"type":"event","event_id":"e%d","created_at":%q,"created_by":{"id":"u%d","type":"user"},"event_type":%q,"source":{"id":"s","type":"file"}}`,
				e.n, e.at.Format("2006-01-02T15:04:05-07:00"), e.n%7, actions[e.n%4])
		},
		page: func(w http.ResponseWriter, _ *http.Request, _ url.Values, items string, at, n, _ int) {
			fmt.Fprintf(w, `{"chunk_size":%d,"entries":%s,"next_stream_position":"c%d"}`, n-at, items, n)
		},
		want: []string{"EXPORT_START_PARAM=created_after", "EXPORT_END_PARAM=created_before", "KAFKA_KEY=/created_by/id",
			"EXPORT_CURSOR_PARAM=stream_position", "EXPORT_CURSOR_FIELD=/next_stream_position", "EXPORT_ITEM_TYPE=/event_type",
			"EXPORT_ITEM_ID=/event_id"},
	},
	// https://www.dropbox.com/developers/documentation/http/teams#team_log-get_events
	"dropbox": {
		curl: fmt.Sprintf(`curl -X POST URL/2/team_log/get_events --header 'Authorization: Bearer Sesame' --header 'Content-Type: application/json' --data '{"limit":50,"time":{"start_time":"%s","end_time":"%s"}}'`,
			began.Add(-time.Minute).Format(time.RFC3339), began.Add(2*time.Hour).Format(time.RFC3339)),
		path: "/2/team_log/get_events", then: "/2/team_log/get_events/continue",
		params: "limit account_id time/start_time time/end_time category", strict: true,
		start: "time/start_time", end: "time/end_time", unit: "rfc3339", seconds: true, size: "limit", most: 1000,
		at: opaque("cursor"),
		item: func(e event) string {
			return fmt.Sprintf(`{"timestamp":%q,"event_category":{".tag":"logins"},"actor":{".tag":"user","user":{"account_id":"u%d"}},"event_type":{".tag":%q,"description":"d"},"details":{".tag":"d%[4]d"}}`,
				e.at.Format(time.RFC3339), e.n%7, actions[e.n%4], e.n)
		},
		page: func(w http.ResponseWriter, _ *http.Request, _ url.Values, items string, _, n, all int) {
			fmt.Fprintf(w, `{"events":%s,"cursor":"c%d","has_more":%v}`, items, n, n < all)
		},
		want: []string{"EXPORT_METHOD=POST", "EXPORT_START_PARAM=/time/start_time", "EXPORT_CURSOR_PARAM=cursor",
			"EXPORT_CURSOR_ALONE=true", "EXPORT_CURSOR_PATH=/2/team_log/get_events/continue", "EXPORT_MORE_FIELD=/has_more",
			"EXPORT_ITEM_TYPE=/event_type/.tag"},
	},
	// https://developers.hubspot.com/docs/api-reference/account-account-info-v3/audit-logs
	"hubspot": {
		curl: `curl --request GET --url 'URL/account-info/v3/activity/audit-logs?limit=50' --header 'Authorization: Bearer Sesame'`,
		path: "/account-info/v3/activity/audit-logs", params: "actingUserId after limit occurredAfter occurredBefore sort",
		strict: true, start: "occurredAfter", end: "occurredBefore", unit: "rfc3339",
		newest: true, size: "limit", most: 100, at: opaque("after"),
		item: func(e event) string {
			return fmt.Sprintf(`{"id":"e%d","category":"LOGIN","subCategory":"s","action":%q,"targetObjectId":"t","occurredAt":%q,"actingUser":{"userId":%d,"userEmail":"jo@example.com"}}`,
				e.n, actions[e.n%4], rfc(e), e.n%7)
		},
		page: func(w http.ResponseWriter, r *http.Request, v url.Values, items string, _, n, all int) {
			if n >= all {
				fmt.Fprintf(w, `{"results":%s}`, items)
				return
			}
			v.Set("after", fmt.Sprintf("c%d", n))
			fmt.Fprintf(w, `{"results":%s,"paging":{"next":{"after":"c%d","link":"http://%s%s?%s"}}}`, items, n, r.Host,
				r.URL.Path, v.Encode())
		},
		want: []string{"EXPORT_FOLLOW=windows", "EXPORT_START_PARAM=occurredAfter", "EXPORT_END_PARAM=occurredBefore",
			"EXPORT_CURSOR_FIELD=/paging/next/after", "EXPORT_CURSOR_PARAM=after", "with 9 requests"},
	},
	// https://launchdarkly.com/docs/api/audit-log/get-audit-log-entries
	"launchdarkly": {
		curl: `curl -H 'Authorization: Sesame' 'URL/api/v2/auditlog?limit=20'`,
		path: "/api/v2/auditlog", params: "before after q limit spec", start: "after", end: "before", unit: "ms",
		newest: true, size: "limit", most: 20, at: func(url.Values) int { return 0 },
		item: func(e event) string {
			return fmt.Sprintf(`{"_id":"e%d","_links":{"self":{"href":"/api/v2/auditlog/e%[1]d","type":"application/json"}},"date":%d,"kind":%q,"name":"n","member":{"_id":"u%d"}}`,
				e.n, e.at.UnixMilli(), actions[e.n%4], e.n%7)
		},
		page: func(w http.ResponseWriter, r *http.Request, v url.Values, items string, _, n, all int) {
			var list []struct{ Date int64 }
			if err := json.Unmarshal([]byte(items), &list); err != nil || n >= all {
				fmt.Fprintf(w, `{"items":%s,"_links":{}}`, items)
				return
			}
			v.Set("before", strconv.FormatInt(list[len(list)-1].Date, 10))
			fmt.Fprintf(w, `{"items":%s,"_links":{"next":{"href":"%s?%s","type":"application/json"}}}`, items, r.URL.Path,
				v.Encode())
		},
		want: []string{"EXPORT_FOLLOW=windows", "EXPORT_START_PARAM=after", "EXPORT_END_PARAM=before",
			"EXPORT_CURSOR_IN=next-url", "EXPORT_CURSOR_FIELD=/_links/next/href", "with 8 requests"},
	},
	// https://www.fastly.com/documentation/reference/api/account/events/
	"fastly": {
		curl: `curl 'URL/events?page[size]=50&sort=-created_at' -H 'Fastly-Key: Sesame'`,
		path: "/events", params: "filter[created_at][gte] filter[created_at][lt] page[size] page[number] sort",
		start: "filter[created_at][gte]", end: "filter[created_at][lt]", unit: "rfc3339 without fractions", seconds: true,
		newest: true, size: "page[size]", most: 100,
		at: func(v url.Values) int { n, _ := strconv.Atoi(cmp.Or(v.Get("page[number]"), "1")); return 50 * (n - 1) },
		item: func(e event) string {
			return fmt.Sprintf(`{"id":"e%d","type":"event","attributes":{"event_type":%q,"created_at":%q,"user_id":"u%d"}}`,
				e.n, actions[e.n%4], e.at.Format(time.RFC3339), e.n%7)
		},
		page: func(w http.ResponseWriter, r *http.Request, v url.Values, items string, at, n, all int) {
			links := "{}"
			if n < all {
				v.Set("page[number]", strconv.Itoa(at/50+2))
				links = fmt.Sprintf(`{"next":"http://%s%s?%s"}`, r.Host, r.URL.Path, v.Encode())
			}
			fmt.Fprintf(w, `{"data":%s,"links":%s}`, items, links)
		},
		want: []string{
			"EXPORT_FOLLOW=windows", "EXPORT_START_PARAM=filter[created_at][gte]", "EXPORT_END_PARAM=filter[created_at][lt]",
			"EXPORT_TIME_FORMAT=rfc3339-seconds", "EXPORT_ITEM_TYPE=/attributes/event_type",
		},
	},
	// https://docs.sentry.io/api/ (audit logs), newest first without bounds
	"sentry": {
		curl: `curl 'URL/api/0/organizations/acme/audit-logs/' -H 'Authorization: Bearer Sesame'`,
		path: "/api/0/organizations/acme/audit-logs/", params: "cursor event actor per_page", unit: "rfc3339",
		newest: true, size: "per_page", most: 50, at: opaque("cursor"),
		item: func(e event) string {
			return fmt.Sprintf(`{"id":"e%d","actor":{"id":"u%d","name":"Jo"},"event":%q,"ipAddress":"127.0.0.1","note":"n","targetObject":1,"dateCreated":%q}`,
				e.n, e.n%7, actions[e.n%4], rfc(e))
		},
		page: func(w http.ResponseWriter, r *http.Request, v url.Values, items string, _, n, all int) {
			v.Set("cursor", fmt.Sprintf("c%d", n))
			w.Header().Set("Link", fmt.Sprintf(`<http://%s%s?cursor=c0>; rel="previous"; results="false"; cursor="c0", <http://%[1]s%[2]s?%s>; rel="next"; results="%v"; cursor="c%d"`,
				r.Host, r.URL.Path, v.Encode(), n < all, n))
			fmt.Fprintf(w, `{"rows":%s,"options":["login"]}`, items)
		},
		want: []string{"EXPORT_FOLLOW=windows", "EXPORT_START_PARAM=none", "EXPORT_END_PARAM=none", "EXPORT_CURSOR_IN=link"},
	},
}

// TestDocumented learns services from the curl command of their documentation, and reads
// their events with the profile. At most one setting is added by hand.
func TestDocumented(t *testing.T) {
	t.Parallel()
	for name, s := range services {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := serve(t, s)
			first := lesson(t, strings.ReplaceAll(s.curl, "URL", base))
			profile := first.Profile
			for _, line := range s.want {
				if !strings.Contains(profile, line+"\n") {
					t.Errorf("%s is not in the profile", line)
				}
			}
			if n := strings.Count(profile, "# to be set"); n > 1 {
				t.Errorf("%d settings must be added by hand", n)
			}
			inclusive := fmt.Sprintf("\nEXPORT_END_INCLUSIVE=%v\n", s.endInclusive)
			if s.seconds {
				inclusive = "\n#EXPORT_END_INCLUSIVE=\n"
			}
			if s.end != "" && !strings.Contains(profile, inclusive) {
				t.Errorf("%s is not in the profile", inclusive)
			}
			if strings.Contains(profile, "Sesame") {
				t.Error("the profile has the key")
			}
			t.Cleanup(func() {
				if t.Failed() || testing.Verbose() {
					t.Log(profile)
				}
			})
			follow(t, s, profile)
			wantReplayed(t, first, s.curl, base)
		})
	}
}

// follow reads all events with a profile.
func follow(t *testing.T, s *service, profile string) {
	t.Helper()
	r := open(t, profile, "Sesame", true)
	at := bridge.Position{Start: r.stream.Engine.Origin.Start}
	if s.newest || s.required {
		start, end := r.stream.Export.Bounds()
		at = bridge.Position{Window: true}
		if start {
			at.Start = began.UnixMilli() - 1
		}
		if end {
			at.End = began.Add(3 * time.Hour).UnixMilli()
		}
	}
	seen := make(map[int64]bool)
	for range 40 {
		page := r.read(at)
		for _, e := range page.Events {
			seen[e.Time] = true
			if e.Defect != bridge.DefectNone || len(e.Type) == 0 {
				t.Fatalf("%v, type %q", e.Defect, e.Type)
			}
		}
		items := page.Items
		at.Cursor = page.Next
		if page.Release(); at.Cursor == "" || items == 0 {
			break
		}
	}
	if len(seen) != events {
		t.Errorf("%d of %d events were read", len(seen), events)
	}
}
