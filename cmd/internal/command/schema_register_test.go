package command

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cmd/internal/cli"
)

// registry is a schema registry by its public documentation: subjects with versions, global
// ids, and a check of the latest version that rejects a schema without "compatible".
type registry struct {
	t        *testing.T
	subjects map[string][]string // schemas by subject
	ids      map[string]int      // by schema
	writes   int
	fail     int // status of all answers, 0 for none
}

func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
	answer := func(status int, form string, values ...any) {
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, form, values...) // the client may be gone
	}
	user, password, _ := req.BasicAuth()
	switch {
	case r.fail != 0:
		w.Header().Set("Location", "http://127.0.0.1:1/")
		answer(r.fail, "<html>%s</html>", strings.Repeat("x", 10000))
		return
	case user != "writer" || password != secretPassword:
		answer(http.StatusUnauthorized, `{"error_code": 401, "message": "Unauthorized"}`)
		return
	}
	var body struct{ Schema, SchemaType string }
	if err := json.NewDecoder(req.Body).Decode(&body); err != nil || body.SchemaType != "JSON" ||
		!json.Valid([]byte(body.Schema)) {
		r.t.Errorf("%s %s: %v: %+v", req.Method, req.URL, err, body)
	}
	subject := strings.Split(req.URL.Path, "/")[2]
	if strings.HasPrefix(req.URL.Path, "/compatibility/") {
		subject = strings.Split(req.URL.Path, "/")[3]
	}
	versions, exists := r.subjects[subject]
	switch req.Method + " " + strings.Replace(req.URL.Path, subject, "S", 1) {
	case "POST /subjects/S":
		for i, schema := range versions {
			if schema == body.Schema {
				answer(http.StatusOK, `{"subject": %q, "id": %d, "version": %d, "schema": %q}`, subject, r.ids[schema], i+1, schema)
				return
			}
		}
		if !exists {
			answer(http.StatusNotFound, `{"error_code": 40401, "message": "Subject '%s' not found."}`, subject)
			return
		}
		answer(http.StatusNotFound, `{"error_code": 40403, "message": "Schema not found"}`)
	case "POST /compatibility/subjects/S/versions/latest":
		if strings.Contains(body.Schema, "compatible") {
			answer(http.StatusOK, `{"is_compatible": true}`)
			return
		}
		answer(http.StatusOK, `{"is_compatible": false, "messages": ["PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]}`)
	case "POST /subjects/S/versions":
		r.writes++
		r.subjects[subject] = append(versions, body.Schema)
		r.ids[body.Schema] = 100 + r.writes
		answer(http.StatusOK, `{"id": %d}`, r.ids[body.Schema])
	default:
		r.t.Errorf("%s %s is not documented", req.Method, req.URL)
		answer(http.StatusNotFound, `{"error_code": 404, "message": "HTTP 404 Not Found"}`)
	}
}

func TestSchemaRegister(t *testing.T) {
	t.Parallel()
	r := &registry{t: t, subjects: make(map[string][]string), ids: make(map[string]int)}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	password := filepath.Join(t.TempDir(), "password")
	must.Do(t, os.WriteFile(password, []byte(secretPassword+"\n"), 0o600))
	env := map[string]string{"KAFKA_BROKERS": "127.0.0.1:1", "SCHEMA_REGISTRY_URL": server.URL,
		"SCHEMA_REGISTRY_USERNAME": "writer", "SCHEMA_REGISTRY_PASSWORD_FILE": password}
	for _, step := range []struct {
		schema, args, want string
		code, writes       int
	}{
		{`{"type": "object"}`, "", "export.events-value: does not exist", cli.ExitOK, 0},
		{`{"type": "object"}`, "--execute", "the schema is registered, id 101, version 1", cli.ExitOK, 1},
		{`{"type": "object"}`, "--execute", "the schema is registered, id 101, version 1", cli.ExitOK, 1},
		{`{"type": "array"}`, "", "PROPERTY_ADDED", cli.ExitRefused, 1},
		{`{"type": "array"}`, "--execute", "PROPERTY_ADDED", cli.ExitRefused, 1},
		{`{"title": "compatible"}`, "", "compatible with the latest one", cli.ExitOK, 1},
		{`{"title": "compatible"}`, "--execute --json", `"changed": true`, cli.ExitOK, 2},
		{`{"title": "compatible"}`, "--json", `"state": "registered"`, cli.ExitOK, 2},
		{"", "", "EVENT_SCHEMA_FILE is not set", cli.ExitUsage, 2},
		{"{}", "--set SCHEMA_REGISTRY_URL=", "SCHEMA_REGISTRY_URL is not set", cli.ExitUsage, 2},
		{"{}", "--set SCHEMA_REGISTRY_URL=registry:8081", "SCHEMA_REGISTRY_URL", cli.ExitUsage, 2},
		{"{}", "--set SCHEMA_REGISTRY_USERNAME=", "SCHEMA_REGISTRY_PASSWORD", cli.ExitUsage, 2},
		{"{}", "--schema-registry-username other", "SCHEMA_REGISTRY_PASSWORD_FILE", cli.ExitRefused, 2},
		{"{}", "--schema-registry-url http://127.0.0.1:1", "check SCHEMA_REGISTRY_URL", cli.ExitFailed, 2},
		{"{}", "--schema-registry-url http://127.0.0.1:1," + server.URL, "is incompatible", cli.ExitRefused, 2},
	} {
		env["EVENT_SCHEMA"] = step.schema
		got := runProgram(t, env, append([]string{"schema", "register"}, strings.Fields(step.args)...)...)
		wantNoSecrets(t, got)
		if got.code != step.code || !strings.Contains(got.stdout+got.stderr, step.want) || r.writes != step.writes {
			t.Errorf("%s %s: %d writes, %+v; want %d, %+v", step.schema, step.args, r.writes, got, step.writes, step)
		}
		if dry := strings.Contains(got.stderr, "dry run"); dry != (step.code == cli.ExitOK && step.args == "") {
			t.Errorf("%s %s: dry run is %t", step.schema, step.args, dry)
		}
	}
	for status, code := range map[int]int{
		302: cli.ExitRefused, 404: cli.ExitRefused, 422: cli.ExitRefused, 429: cli.ExitFailed, 503: cli.ExitFailed,
	} {
		r.fail = status
		got := runProgram(t, env, "schema", "register", "--execute")
		if got.code != code || len(got.stderr) > 1000 || !strings.Contains(got.stderr, fmt.Sprint("answered ", status)) {
			t.Errorf("%d: %+v", status, got)
		}
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"status": "up"}`)
	}))
	t.Cleanup(other.Close)
	if got := runProgram(t, env, "schema", "register", "--schema-registry-url", other.URL); got.code != cli.ExitFailed ||
		got.stdout != "" || !strings.Contains(got.stderr, "check SCHEMA_REGISTRY_URL") {
		t.Errorf("a server that is no registry: %+v", got)
	}
}
