package learn_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"exportbridge/cmd/internal/learn"
)

// plainAPI lists 30 items oldest first, by a cursor, to any request. item has the members of item
// n beside its id.
func plainAPI(t *testing.T, item func(n int) string) string {
	t.Helper()
	return odd(t, new(atomic.Int64), func(w http.ResponseWriter, r *http.Request) {
		from, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Query().Get("cursor"), "c"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		to := min(30, from+max(limit, 1))
		var all []string
		for n := from; n < to; n++ {
			all = append(all, fmt.Sprintf(`{"id":"i%d"%s}`, n, item(n)))
		}
		next := "null"
		if to < 30 {
			next = fmt.Sprintf(`"c%d"`, to)
		}
		fmt.Fprintf(w, `{"items":[%s],"next_cursor":%s}`, strings.Join(all, ","), next)
	})
}

// at is the time of item n, as a member.
func at(n int) string { return fmt.Sprintf(`,"created_at":%d`, 1_790_000_000+100*n) }

// No profile has the key, whatever its parameter or header is called. A parameter with a similar
// name stays in the profile.
func TestKeyStaysOut(t *testing.T) {
	t.Parallel()
	base := plainAPI(t, at)
	const key = "Sesame-opens-1"
	for _, options := range []string{
		"&api_key=KEY", "&api-key=KEY", "&X-Api-Key=KEY", "&subscription-key=KEY", "&access-token=KEY", "&session_token=KEY",
		"&access_key=KEY", "&api_secret=KEY", "&client-secret=KEY", "&jwt=KEY", "&hapikey=KEY", "&key=KEY", "&auth=KEY",
		"&sig=KEY", "' -H 'CB-ACCESS-PASSPHRASE: KEY", "' -H 'X-Jwt: KEY", "' -H 'X-Credential: KEY", "' -b 'sid=KEY",
		"' -H 'X-Api-Key: other-key-1' -H 'Cookie: sid=KEY", "' -H 'X-Api-Key: other-key-1' -H 'X-Jwt: KEY", "' -u 'me:KEY",
	} {
		profile := learned(t, "curl '"+base+"/v1/items?limit=5"+strings.ReplaceAll(options, "KEY", key)+"'")
		if strings.Contains(profile, key) || strings.Contains(profile, "EXPORT_AUTH=none") {
			t.Errorf("%s: the key is in\n%s", options, profile)
		}
	}
	profile := learned(t, "curl '"+base+"/v1/items?limit=5&sort_key=a&author=b&keyword=c&auth_type=d&tokens_used=e'")
	wantIn(t, profile, "EXPORT_AUTH=none\n", "EXPORT_PARAMS=auth_type=d,author=b,keyword=c,sort_key=a,tokens_used=e\n")
	for _, command := range []string{
		"curl -H 'X-Api-Key: other' '" + base + "/e?limit=5&client-secret=KEY'", `curl -d '{"client":{"secret":"KEY"}}' ` + base,
	} {
		_, err := learn.Learn(t.Context(), parsed(t, strings.ReplaceAll(command, "KEY", key)), nil)
		if err == nil || !strings.Contains(err.Error(), "holds a credential by its name") || strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", command, err)
		}
	}
}

// A part of the path that looks like a token is a question.
func TestTokenInPath(t *testing.T) {
	t.Parallel()
	base := plainAPI(t, at)
	for path, token := range map[string]bool{
		"/bot123456:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/items": true, "/services/T01/gEXoNqRWnxv8VYwcFtpWYXZ5": true,
		"/v1/accounts/4f0a3c1e9b7d4a52b8c6e1f2a3b4c5d6/audit_logs": false, "/v1/organizationAuditLogEntries": false,
	} {
		profile := learned(t, "curl '"+base+path+"?limit=5'")
		if strings.Contains(profile, "looks like a token") != token {
			t.Errorf("%s\n%s", path, profile)
		}
	}
}

// Headers that the program sets, and headers without a value, are left out of the profile. Browsers
// and users of curl write them into their commands.
func TestHeadersOfBrowsers(t *testing.T) {
	t.Parallel()
	base := plainAPI(t, at)
	for _, header := range []string{
		"Accept:", "X-Api-Key:", "TE: trailers", "Keep-Alive: timeout=5", "Content-Encoding: identity", "Upgrade: h2c",
		"User-Agent: me", "Connection: close",
	} {
		lesson, err := learn.Learn(t.Context(), parsed(t, "curl -H '"+header+"' "+base+"/e?limit=5"), nil)
		if err != nil {
			t.Errorf("%s: %v", header, err)
		} else if strings.Contains(lesson.Profile, "EXPORT_HEADERS") || !strings.Contains(lesson.Profile, "EXPORT_AUTH=none") {
			t.Errorf("%s is in\n%s", header, lesson.Profile)
		}
	}
}
