package exportapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"exportbridge/bridge"
)

func TestProblemText(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ kind, body, want, not string }{
		"newest": {"application/problem+json",
			`{"title":"Invalid","status":400,"detail":"pageSize is 0","type":"https://x.example/p"}`,
			"400 Bad Request: Invalid: pageSize is 0 (https://x.example/p)", "status 400"},
		"details": {"application/json", `{"title":"Invalid","details":"pageSize is 0"}`,
			"400 Bad Request: Invalid: pageSize is 0", ""},
		"another status": {"application/json", `{"title":"Invalid","status":422}`, "Invalid (status 422)", ""},
		"odd types": {"application/json", `{"title":["Invalid"],"detail":"no","details":{"a":1},"status":"400"}`,
			"400 Bad Request: Invalid: no", "map"},
		"violations": {"application/json",
			`{"title":"Invalid","detail":"see below","violations":[{"field":"pageSize","message":"exceeds 1000"},` +
				`{"path":"start","reason":"no time"},"end: missing"]}`,
			"400 Bad Request: Invalid: pageSize: exceeds 1000; start: no time; end: missing: see below", ""},
		"half violations": {"application/json", `{"violations":[{"field":"end"},{"message":"no time"},{"code":7},7,null]}`,
			"400 Bad Request: end; no time", ";;"},
		"odd violations": {"application/json", `{"title":"Invalid","violations":{"field":"end"}}`,
			"400 Bad Request: Invalid: end", "field"},
		"many violations": {"application/json", `{"violations":[` + strings.Repeat(`"x\u001b[31m",`, 99) + `"y"]}`,
			"x[31m; x[31m; x[31m; x[31m; x[31m; 95 more", "y"},
		"long violation": {"application/json", `{"violations":[{"field":"` + strings.Repeat("x", 1000) +
			`","message":"no"}]}`, strings.Repeat("x", 200) + "...", strings.Repeat("x", 201)},
		"key in one": {"application/json", `{"violations":[{"field":"` + testKey + `","message":` + quote(testCursor) +
			`}]}`, "***: cursor " + bridge.CursorHash(testCursor), "sk-"},
		"not an object": {"application/json", `["Invalid"]`, "400 Bad Request", "Invalid"},
		"not JSON":      {"text/html", `{"title":"Invalid"}`, "400 Bad Request", "Invalid"},
		"no type":       {"", `Invalid`, "400 Bad Request", "Invalid"},
		"cut":           {"application/json", `{"title":"Invalid"`, "400 Bad Request", "Invalid"},
		"huge":          {"application/json", `{"title":"` + strings.Repeat("x", 100<<10) + `"}`, "400 Bad Request", "xxx"},
		"long": {"application/json", `{"title":"` + strings.Repeat("x", 1000) + `"}`, strings.Repeat("x", 200) +
			"...", strings.Repeat("x", 201)},
		"key cut in half": {"application/json", `{"title":"` + strings.Repeat("x", 195) + testKey + `"}`, "xxx***", "sk-"},
		"key with breaks": {"application/json", `{"title":"` + strings.ReplaceAll(testKey, "t", `t\u0000\u200b`) + `"}`,
			"***", "sk-"},
		"message": {"application/json", `{"message":"cursor cannot be combined with a ResetCursor"}`,
			"400 Bad Request: cursor cannot be combined with a ResetCursor", ""},
		"error": {"application/json", `{"ok":false,"error":"invalid_limit"}`, "400 Bad Request: invalid_limit",
			"false"},
		"error object": {"application/json",
			`{"error":{"code":400,"message":"limit is invalid","status":"INVALID_ARGUMENT"}}`,
			"400 Bad Request: limit is invalid", "INVALID"},
		"capitals": {"application/json", `{"Error":{"Message":"limit is invalid"}}`,
			"400 Bad Request: limit is invalid", ""},
		"oauth": {"application/json", `{"error":"invalid_request","error_description":"no limit"}`,
			"400 Bad Request: invalid_request: no limit", ""},
		"errors": {"application/json",
			`{"errors":[{"message":"no limit"},{"detail":"no start"},{"field":"end","message":"is past"},"odd"]}`,
			"400 Bad Request: no limit; no start; end: is past; odd", ""},
		"list of details": {"application/json", `{"detail":[{"loc":["query","limit"],"msg":"not a number"}]}`,
			"400 Bad Request: not a number", "query"},
		"msg": {"application/json", `{"msg":"Record not found","detail":"no event"}`,
			"400 Bad Request: Record not found: no event", ""},
		"message_detail": {"application/json",
			`{"code":40002,"message":"Invalid request parameters","message_detail":"maxtime","stat":"FAIL"}`,
			"400 Bad Request: Invalid request parameters: maxtime", "FAIL"},
		"the status": {"application/json", `{"statusCode":400,"error":"Bad Request","message":"no limit"}`,
			"400 Bad Request: no limit", ""},
		"key in an error": {"application/json", `{"error":{"message":"\u001b[31m` + testKey + ` at ` + testCursor + `"}}`,
			"400 Bad Request: [31m*** at cursor " + bridge.CursorHash(testCursor), "sk-"},
		"text": {"text/plain; charset=utf-8", "ascending is\r\n\x1b[31mrequired, " + testKey,
			"400 Bad Request: ascending is [31mrequired, ***", "sk-"},
		"JSON as text": {"text/plain", `{"message":"no limit"}`, "400 Bad Request: no limit", "message"},
		"long text": {"text/plain", strings.Repeat("x", 100<<10), strings.Repeat("x", 200) + "...",
			strings.Repeat("x", 201)},
		"cursor": {"application/json", `{"title":` + quote("no page at "+testCursor) + `}`, "no page at cursor " +
			bridge.CursorHash(testCursor), "eyJ0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.kind)
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, tc.body)
			}, nil)
			_, err := fetchAll(t, c, bridge.Position{Cursor: testCursor})
			f := wantFault(t, err)
			if !strings.Contains(f.Error(), tc.want) || tc.not != "" && strings.Contains(f.Error(), tc.not) {
				t.Errorf("got %q, want %q in it and not %q", f, tc.want, tc.not)
			}
		})
	}
}

// The parts of a static header and of a cursor are hidden like the whole.
func TestHiddenParts(t *testing.T) {
	t.Parallel()
	mapped := map[string]string{"EXPORT_CURSOR_IN": "next-url"}
	for name, tc := range map[string]struct {
		vars       map[string]string
		cursor     string
		said, want string
	}{
		"token without its scheme": {map[string]string{"EXPORT_HEADERS": "X-Token: Bearer s3cr3t-token"}, testCursor,
			"invalid token s3cr3t-token", "invalid token ***"},
		"session without its name": {map[string]string{"EXPORT_HEADERS": "Cookie: sid=s3cr3t/1; theme=d"}, testCursor,
			"no session s3cr3t/1!", "no session ***!"},
		"quoted token": {map[string]string{"EXPORT_HEADERS": "X-Token: Token token=\"s3cr3t\""}, testCursor,
			"s3cr3t is bad", "*** is bad"},
		"longest first": {map[string]string{"EXPORT_API_KEY": "s3cr", "EXPORT_HEADERS": "X-Token: s3cr3t-token"},
			testCursor, "s3cr3t-token, s3cr", "***, ***"},
		"query of a next URL": {mapped, "/events?n=1000&after=SECRET/123", "bad after: SECRET/123",
			"bad after: cursor "},
		"query, unescaped": {mapped, "/events?after=SECRET%2f123+a&n=7", "bad after: SECRET/123 a",
			"bad after: cursor "},
		"query, as it is": {mapped, "/events?after=SECRET%2f123&n=7", "bad after: SECRET%2f123",
			"bad after: cursor "},
		"page size of a next URL": {mapped, "/events?pageSize=1000&after=SECRET", "pageSize 1000 exceeds 500",
			"pageSize 1000 exceeds 500"},
		"path of a next URL": {mapped, "/events/SECRET123?n=1", "no page SECRET123 of events", "no page cursor "},
		"quoted, POST": {map[string]string{"EXPORT_METHOD": "POST"}, `"90071992547409931234"`,
			"bad cursor: 90071992547409931234", "bad cursor: cursor "},
	} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"title":`+quote(tc.said)+`}`)
		}, tc.vars)
		_, err := fetchAll(t, c, bridge.Position{Cursor: tc.cursor})
		f := wantFault(t, err)
		if !strings.Contains(f.Error(), "Unauthorized: "+tc.want) || strings.Contains(f.Error(), "SECRET") ||
			strings.Contains(f.Error(), "s3cr") || strings.Contains(f.Error(), "90071992") {
			t.Errorf("%s: got %q, want %q", name, f, tc.want)
		}
	}
}
