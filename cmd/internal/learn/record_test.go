package learn_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cmd/internal/learn"
)

// settingsOf returns the settings of a profile without comments, host and values that depend on time.
func settingsOf(profile string) string {
	var lines []string
	for line := range strings.Lines(profile) {
		if strings.TrimSpace(line) != "" && line[0] != '#' && !strings.HasPrefix(line, "EXPORT_URL=") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// replayed serves the recording of a lesson.
func replayed(t *testing.T, l *learn.Lesson) (url string, file []byte) {
	t.Helper()
	recording := must.Get(l.Recording())(t)
	file = must.Get(json.Marshal(recording))(t)
	h, err := learn.NewReplay(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, l.Profile)
	}
	return serve(t, h), file
}

// wantReplayed learns the same from the recording of a lesson, with the same command, and reads it
// with the profile.
func wantReplayed(t *testing.T, first *learn.Lesson, command, base string) {
	t.Helper()
	url, file := replayed(t, first)
	for _, secret := range []string{"Sesame", "exporter", "orderPlaced\",\"x", "Jo\"", "jo@example.com", base} {
		if strings.Contains(string(file), secret) {
			t.Errorf("the recording has %s:\n%.3000s", secret, file)
		}
	}
	again := lesson(t, strings.ReplaceAll(command, "URL", url))
	if got, want := settingsOf(again.Profile), settingsOf(first.Profile); got != want {
		t.Fatalf("from the recording was learned\n%s\nin place of\n%s", again.Profile, first.Profile)
	}
	var r learn.Recording
	must.Do(t, json.Unmarshal(file, &r))
	if n := readRecording(t, again.Profile); n != len(r.Items) || n < 20 {
		t.Errorf("%d of %d items were read\n%s", n, len(r.Items), again.Profile)
	}
}

// readRecording counts the items that are read with a profile.
func readRecording(t *testing.T, profile string) int {
	t.Helper()
	r := open(t, profile, "any", true, "EXPORT_HEADERS=Dd-Api-Key: Other")
	at := bridge.Position{Start: r.stream.Engine.Origin.Start}
	if strings.Contains(profile, "EXPORT_FOLLOW=windows") {
		start, end := r.stream.Export.Bounds()
		if at = (bridge.Position{Window: true}); start {
			at.Start = 1
		}
		if end {
			at.End = time.Now().Add(time.Hour).UnixMilli()
		}
	}
	seen := make(map[string]bool)
	for range 20 {
		page := r.read(at)
		for _, e := range page.Events {
			if seen[string(e.Raw)] = true; e.Defect != bridge.DefectNone {
				t.Fatalf("%v: %s", e.Defect, e.Raw)
			}
		}
		at.Cursor = page.Next
		if page.Release(); at.Cursor == "" {
			break
		}
	}
	return len(seen)
}

// TestReplayEscapedPath: the path of a recording may have an escaped slash.
func TestReplayEscapedPath(t *testing.T) {
	t.Parallel()
	url := odd(t, new(atomic.Int64), func(w http.ResponseWriter, r *http.Request) {
		v := r.URL.Query()
		size, _ := strconv.Atoi(v.Get("limit"))
		from, _ := strconv.Atoi(strings.TrimPrefix(v.Get("after"), "c"))
		w.Header().Set("Link", fmt.Sprintf(`<%s?limit=%d&after=c%d>; rel="next"`, r.URL.EscapedPath(), size, from+size))
		fmt.Fprint(w, items(from, size, 1))
	})
	const command = "curl -H 'X-Api-Key: Sesame' 'URL/groups/acme%2Fsub/audit?limit=10'"
	wantReplayed(t, lesson(t, strings.ReplaceAll(command, "URL", url)), command, url)
}

// TestRedaction: texts get other letters of the same length, the same ones for the same
// text; the values that a profile reads are kept.
func TestRedaction(t *testing.T) {
	t.Parallel()
	base := serve(t, services["atlassian"])
	l := lesson(t, strings.ReplaceAll(services["atlassian"].curl, "URL", base))
	_, file := replayed(t, l)
	var r struct {
		Page  struct{ Meta, Links map[string]any }
		Items []struct {
			ID         string
			Attributes struct {
				Time, Action string
				Actor        struct{ ID, Name string }
			}
		}
	}
	must.Do(t, json.Unmarshal(file, &r))
	letters := regexp.MustCompile(`^[a-z]{2}$`)
	for n, item := range r.Items {
		a, e := item.Attributes, services["atlassian"].event(events-1-n)
		if a.Time != rfc(e) || a.Action != actions[e.n%4] || !strings.HasPrefix(item.ID, "e") {
			t.Errorf("item %d is %+v", n, item)
		}
		if !letters.MatchString(a.Actor.Name) || a.Actor.Name == "Jo" || a.Actor.Name != r.Items[0].Attributes.Actor.Name ||
			!letters.MatchString(a.Actor.ID) {
			t.Errorf("the actor of item %d is %+v", n, a.Actor)
		}
	}
	if len(r.Items) != 150 || r.Page.Meta["page_size"] != 50.0 || r.Page.Meta["next"] != nil {
		t.Errorf("%d items, page %+v", len(r.Items), r.Page)
	}
}

// A name that differs from item to item is that of a person or object: it is no type, and a recording
// does not have it. Nor does it have a type that differs so.
func TestNoNamesRecorded(t *testing.T) {
	t.Parallel()
	for member, want := range map[string]string{"name": "none", "action": "/action"} {
		base := plainAPI(t, func(n int) string { return at(n) + fmt.Sprintf(`,%q:"Jane Roe %d"`, member, n*n%17) })
		l := lesson(t, "curl '"+base+"/v1/users?limit=5'")
		wantIn(t, l.Profile, "EXPORT_ITEM_TYPE="+want+"\n")
		if _, file := replayed(t, l); strings.Contains(string(file), "Jane") {
			t.Errorf("the recording has a name: %.2000s", file)
		}
	}
	base := plainAPI(t, func(n int) string { return at(n) + fmt.Sprintf(`,"name":"login %d"`, n%2) })
	l := lesson(t, "curl '"+base+"/v1/users?limit=5'")
	wantIn(t, l.Profile, "EXPORT_ITEM_TYPE=/name\n")
	if _, file := replayed(t, l); !strings.Contains(string(file), "login 1") {
		t.Errorf("the recording lacks a type: %.2000s", file)
	}
}

// TestKeyInIDs: a page that repeats a credential in a kept value is not recorded.
func TestKeyInIDs(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"Sesame", "second-key-2"} {
		s := audit()
		item := s.item
		s.item = func(e event) string { return strings.Replace(item(e), `"id":"`, `"id":"`+id+`-`, 1) }
		l := lesson(t, auditCommand+serve(t, s)+"/audit?limit=50' -H 'X-Jwt: Bearer second-key-2'")
		if _, err := l.Recording(); err == nil || !strings.Contains(err.Error(), "would have the key") {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestShortKey: the letters in place of texts are never a key, however short.
func TestShortKey(t *testing.T) {
	t.Parallel()
	base := plainAPI(t, func(n int) string {
		return at(n) + fmt.Sprintf(`,"note":%q`, strings.Repeat("note ", 50)+fmt.Sprint(n))
	})
	l := lesson(t, "curl -H 'X-Api-Key: qx' '"+base+"/v1/users?limit=5'")
	if _, err := l.Recording(); err != nil {
		t.Error(err)
	}
}

// A recording of items without times can be served too.
func TestReplayWithoutTimes(t *testing.T) {
	t.Parallel()
	base := plainAPI(t, func(int) string { return `,"type":"x"` })
	for _, command := range []string{"curl 'URL/e?limit=10'", "curl 'URL/e?limit=10&since=2020-01-01T00:00:00Z'"} {
		wantReplayed(t, lesson(t, strings.ReplaceAll(command, "URL", base)), command, base)
	}
}

// A number far beyond the last page has an empty page.
func TestReplayFarPage(t *testing.T) {
	t.Parallel()
	cloudflare, offset := services["cloudflare"], audit()
	numbers(offset, "startAt", 0)
	for _, c := range []struct {
		s                      *service
		curl, query, list, has string
	}{
		{cloudflare, cloudflare.curl, cloudflare.path + "?page=", "result", "EXPORT_CURSOR_IN=page-number"},
		{offset, auditCommand + "URL/audit?limit=50'", "/audit?startAt=", "entries", "EXPORT_CURSOR_IN=offset"},
	} {
		l := lesson(t, strings.ReplaceAll(c.curl, "URL", serve(t, c.s)))
		wantIn(t, l.Profile, c.has)
		url, _ := replayed(t, l)
		for _, number := range []string{"4000", "9223372036854775807", "184467440737095518"} {
			r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url+c.query+number, http.NoBody))(t)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Errorf("%s%s: %v", c.query, number, err)
				continue
			}
			body := must.Get(io.ReadAll(resp.Body))(t)
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"`+c.list+`":[]`) {
				t.Errorf("%s%s: %s, %.300s", c.query, number, resp.Status, body)
			}
		}
	}
}

// TestReplayRefuses: a replay rejects requests that no profile sends, and NewReplay other files.
func TestReplayRefuses(t *testing.T) {
	t.Parallel()
	base := serve(t, services["dropbox"])
	url, file := replayed(t, lesson(t, strings.ReplaceAll(services["dropbox"].curl, "URL", base)))
	for request, want := range map[string]int{
		"GET /2/team_log/get_events":                              http.StatusMethodNotAllowed,
		"POST /2/team_log/get_event":                              http.StatusNotFound,
		`POST /2/team_log/get_events {"limit":5}`:                 http.StatusOK,
		`POST /2/team_log/get_events {"limit":0}`:                 http.StatusBadRequest,
		`POST /2/team_log/get_events {"other":5}`:                 http.StatusBadRequest,
		`POST /2/team_log/get_events {"cursor":"r5-5"}`:           http.StatusNotFound,
		`POST /2/team_log/get_events/continue {"cursor":"r5-5"}`:  http.StatusOK,
		`POST /2/team_log/get_events/continue {"cursor":"x"}`:     http.StatusBadRequest,
		`POST /2/team_log/get_events {"time":{"start_time":"x"}}`: http.StatusBadRequest,
	} {
		words := strings.SplitN(request, " ", 3)
		r := must.Get(http.NewRequestWithContext(t.Context(), words[0], url+words[1],
			strings.NewReader(strings.Join(words[2:], ""))))(t)
		resp := must.Get(http.DefaultClient.Do(r))(t)
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", request, resp.Status, want)
		}
	}
	for text, want := range map[string]string{
		"EXPORT_PATH=/e": "is no recording", `{"items":[]}`: "has no items", `{"items":[{}],"other":1}`: "is no recording",
		strings.Replace(string(file), `"EXPORT_METHOD":"POST"`, `"EXPORT_METHOD":"PUT"`, 1):   "EXPORT_METHOD",
		strings.Replace(string(file), `"EXPORT_METHOD":"POST"`, `"EXPORT_HEADERS":"A: b"`, 1): "EXPORT_HEADERS",
	} {
		if _, err := learn.NewReplay([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %s", text, err, want)
		}
	}
}
