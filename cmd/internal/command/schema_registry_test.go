package command

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/cmd/internal/cli"
)

// A registry takes the schema that infer writes, knows it again, and refuses one that it calls
// incompatible.
func TestSchemaRegisterOnRegistry(t *testing.T) {
	t.Parallel()
	servers.NeedReal(t)
	env, _ := schemaWorld(t, 6)
	url := servers.StartRegistry(t).URL()
	env["SCHEMA_REGISTRY_URL"] = url
	register := func(code int, want string, args ...string) (done registered) {
		t.Helper()
		got := runProgram(t, env, append([]string{"schema", "register"}, args...)...)
		if got.code != code || !strings.Contains(got.stdout+got.stderr, want) {
			t.Fatalf("schema register %v: %+v, want %d and %q", args, got, code, want)
		}
		_ = json.Unmarshal([]byte(got.stdout), &done) // without --json it stays empty
		return done
	}
	env["EVENT_SCHEMA_FILE"] = infer(t, env, "5")
	register(cli.ExitOK, "export.events-value: does not exist")
	first := register(cli.ExitOK, "", "--execute", "--json")
	if !first.Changed || first.ID == 0 || first.Version != 1 {
		t.Errorf("the first time: %+v", first)
	}
	again := first
	again.Changed, again.State = false, "registered"
	if got := register(cli.ExitOK, "", "--execute", "--json"); got != again {
		t.Errorf("the second time: %+v, want %+v", got, again)
	}

	// Its rules compare schemas up to draft 7.
	must.Do(t, put(t, url+"/config", `{"compatibility":"BACKWARD"}`))
	delete(env, "EVENT_SCHEMA_FILE")
	env["KAFKA_TOPIC"] = "export.orders"
	schema := func(more string) {
		env["EVENT_SCHEMA"] = `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","required":["id"],` +
			`"properties":{"id":{"type":` + more + `}}}`
	}
	schema(`"integer"`)
	register(cli.ExitOK, "the schema is registered, id ", "--execute")
	schema(`"string"`)
	register(cli.ExitRefused, "incompatible with the latest one of subject export.orders-value")
	register(cli.ExitRefused, "change the compatibility of the subject", "--execute")
	schema(`"number"`)
	register(cli.ExitOK, "new, and compatible with the latest one")
	if got := register(cli.ExitOK, "", "--execute", "--json"); got.Version != 2 {
		t.Errorf("the compatible one: %+v, want version 2", got)
	}
}

// registered is the result of schema register.
type registered struct {
	State       string
	ID, Version int
	Changed     bool
}

// put sends a setting to a registry.
func put(t *testing.T, url, body string) error {
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader(body)))(t)
	req.Header.Set("Content-Type", "application/vnd.schemaregistry.v1+json")
	resp := must.Get(http.DefaultClient.Do(req))(t)
	defer http.DefaultClient.CloseIdleConnections()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s", url, resp.Status, text)
	}
	return resp.Body.Close()
}
