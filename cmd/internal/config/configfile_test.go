package config

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"exportbridge/bridge/bridgetest/must"
)

var update = flag.Bool("update", false, "write the golden files")

// TestConfigFileWrong: every mistake is reported at once, with its position.
func TestConfigFileWrong(t *testing.T) {
	t.Parallel()
	s, err := loadFile(t, "testdata/wrong.yaml", "STREAM_USERS_EXPORT_PAGE_SIZE=7")
	if err == nil {
		t.Fatal("no error")
	}
	got := err.Error() + "\n" + strings.Join(s.Warnings, "\n")
	if strings.Contains(got, "sesame") {
		t.Error("a secret is shown")
	}
	compareGolden(t, "testdata/wrong.golden", got)
}

// loadFile loads settings from a file that BRIDGE_CONFIG names.
func loadFile(t *testing.T, path string, environ ...string) (*Settings, error) {
	t.Helper()
	from := Sources{Environ: append([]string{"BRIDGE_CONFIG=" + path}, environ...)}
	src := must.Get(from.open())(t)
	return (&loader{src: src}).load(UsesAll, testNow)
}

// TestConfigFile: a file sets the same as variables, which take precedence.
func TestConfigFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	write("tenants.txt", "acme\nglobex\n")
	key, other := write("acme.key", "sesame\n"), write("globex.key", "other\n")
	path := write("streams.yaml", `
settings:
  EXPORT_PAGE_SIZE: 500
  KAFKA_BROKERS: [a:1, b:2]
  EXPORT_START: 2026-11-01
templates:
  - for: tenants.txt
    settings:
      EXPORT_RESOURCE: users
      EXPORT_API_KEY_FILE: "{name}.key"
      EXPORT_URL: https://{name}.example.com
    overrides:
      globex: {EXPORT_PAGE_SIZE: 10, KAFKA_TOPIC: "special.{name}"}
streams:
  events: {EXPORT_API_KEY_FILE: acme.key}
`)
	s, err := loadFile(t, path, "EXPORT_TIMEOUT=1m", "STREAM_ACME_EXPORT_PAGE_SIZE=7")
	if err != nil || len(s.Warnings) > 0 {
		t.Fatal(err, s.Warnings)
	}
	want := must.Get(loadFrom(t, UsesAll, "EXPORT_API_KEY=", "BRIDGE_STREAMS=acme,globex,events", "EXPORT_PAGE_SIZE=500",
		"KAFKA_BROKERS=a:1,b:2", "EXPORT_START=2026-11-01",
		"EXPORT_TIMEOUT=1m", "STREAM_ACME_EXPORT_PAGE_SIZE=7", "STREAM_GLOBEX_EXPORT_PAGE_SIZE=10",
		"STREAM_GLOBEX_KAFKA_TOPIC=special.globex",
		"STREAM_ACME_EXPORT_RESOURCE=users",
		"STREAM_GLOBEX_EXPORT_RESOURCE=users", "STREAM_ACME_EXPORT_API_KEY_FILE="+key,
		"STREAM_EVENTS_EXPORT_API_KEY_FILE="+key, "STREAM_GLOBEX_EXPORT_API_KEY_FILE="+other,
		"STREAM_ACME_EXPORT_URL=https://acme.example.com", "STREAM_GLOBEX_EXPORT_URL=https://globex.example.com"))(t)
	if s.Streams[1].Export.PageSize != 10 || s.Streams[0].Export.APIKey != "sesame" {
		t.Errorf("page size %d, key %q", s.Streams[1].Export.PageSize, s.Streams[0].Export.APIKey)
	}
	compareSettings(t, want, s)
}

// TestConfigFileEmptyValue: an empty value of a stream ends that of all streams for it: the
// profile or the default applies. Variables take precedence.
func TestConfigFileEmptyValue(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "streams.yaml", `
settings: {EXPORT_AUTH: none, EXPORT_PATH: /v1, EXPORT_PAGE_SIZE: 500, EXPORT_EMPTY_PAGES: 7}
templates:
  - for: [users]
    settings: {EXPORT_PATH: /v2}
    overrides:
      users: {EXPORT_PATH: "", EXPORT_PAGE_SIZE: ""}
streams:
  events:
`)
	for want, environ := range map[string][]string{"": nil, "/v3": {"EXPORT_PATH=/v3"}} {
		s := must.Get(loadFile(t, path, environ...))(t)
		users, events := &s.Streams[0], &s.Streams[1]
		if users.Export.Path != want || users.Export.PageSize != 1000 || users.Engine.EmptyPages != 7 {
			t.Errorf("path %q, want %q; %d items a page", users.Export.Path, want, users.Export.PageSize)
		}
		if events.Export.Path != want && events.Export.Path != "/v1" || events.Export.PageSize != 500 {
			t.Errorf("the other stream has %+v", events.Export)
		}
	}
}

// compareSettings compares settings without their origins.
func compareSettings(t *testing.T, want, got *Settings) {
	t.Helper()
	plain := func(s *Settings) Settings {
		p := *s
		p.src, p.Effective, p.ConfigFile, p.Warnings = sources{}, nil, "", nil
		return p
	}
	a, b := plain(want), plain(got)
	if !reflect.DeepEqual(a, b) {
		t.Errorf("want %+v\n got %+v", a, b)
	}
}

// TestImportEnv: the file that import-env writes has the settings that were imported.
func TestImportEnv(t *testing.T) {
	t.Parallel()
	key := writeFile(t, "key", "sesame\n")
	secret := []string{"STREAM_USERS_EXPORT_API_KEY=other", "REDIS_URL=redis://:sesame@redis:1/2"}
	environ := append([]string{
		"BRIDGE_STREAMS=events,users,007", "EXPORT_API_KEY=", "EXPORT_API_KEY_FILE=" + key, "EXPORT_PAGE_SIZE=0500",
		"KAFKA_TLS_ENABLED=true", "EXPORT_PARAMS=include=actor\ntenant=a: b",
		"STREAM_USERS_EXPORT_PAGE_SIZE=7", "STREAM_007_EXPORT_RESOURCE=events", "STREAM_007_KAFKA_TOPIC=007",
		"KAFKA_BROKERS=a:1, b:2", "STREAM_EVENTS_EXPORT_START=2026-11-01", "LOG_FORMAT=json",
	}, secret...)
	want := must.Get(loadFrom(t, UsesAll, environ...))(t)
	text, stay, err := want.ImportEnv()
	if err != nil || strings.Contains(text, "sesame") || strings.Contains(text, "other") || len(stay) != 2 {
		t.Fatalf("%v; stay %q; file:\n%s", err, stay, text)
	}
	got, err := loadFile(t, writeFile(t, "streams.yaml", text), secret...)
	if err != nil {
		t.Fatalf("%v; file:\n%s", err, text)
	}
	compareSettings(t, want, got)
	if _, _, err := got.ImportEnv(); err == nil {
		t.Error("a file is imported again")
	}
}

// The file that import-env writes has no parameter or header with the name of a credential.
func TestImportEnvOfCredentials(t *testing.T) {
	t.Parallel()
	for given, stays := range map[string]int{
		"EXPORT_HEADERS=X-Auth-Key: hunter2": 1, "EXPORT_HEADERS=Accept: a/b\nOcp-Apim-Subscription-Key: hunter2": 1,
		"EXPORT_HEADERS=DD-APPLICATION-KEY: hunter2": 1, "EXPORT_HEADERS=X-Access-Key: hunter2": 1,
		"EXPORT_PARAMS=key=hunter2": 1, "EXPORT_PARAMS=tenant=acme,sig=hunter2": 1,
		"EXPORT_PARAMS=tenant=acme, jwt=hunter2": 1, `EXPORT_PARAMS=login:={"user":"a","key":"hunter2"}`: 1,
		"EXPORT_PARAMS=sort=key:asc,sort_key=b,author=c": 0, "EXPORT_HEADERS=X-Tenant-Id: key": 0,
	} {
		s := must.Get(loadFrom(t, UsesAll, given, "EXPORT_METHOD=POST"))(t)
		text, stay, err := s.ImportEnv()
		if err != nil || strings.Contains(text, "hunter2") || len(stay) != stays+1 { // the API key stays too
			t.Errorf("%s: %v; stay %q; file:\n%s", given, err, stay, text)
		}
	}
}

// TestChanges: Changes compares the values that were set.
func TestChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, path := filepath.Join(dir, "key"), filepath.Join(dir, "streams.yaml")
	load := func(secret, settings, streams string) *Settings {
		tokens := fmt.Sprintf("alice read %x", sha256.Sum256([]byte(secret)))
		for to, text := range map[string]string{
			key: secret, filepath.Join(dir, "tokens"): tokens,
			path: "settings: {EXPORT_API_KEY_FILE: key, HTTP_TOKENS_FILE: tokens, EXPORT_START: -1h" + settings +
				"}\nstreams:\n" + streams,
		} {
			must.Do(t, os.WriteFile(to, []byte(text), 0o600))
		}
		s := must.Get(loadFile(t, path))(t)
		return s
	}
	const two = "  events:\n  users: {EXPORT_PAGE_SIZE: 7}\n"
	base := load("sesame", "", two)
	for _, test := range []struct {
		name, secret, settings, streams string
		want                            Changes
	}{
		{"nothing", "sesame", "", "  users: {EXPORT_PAGE_SIZE: 7}\n  events:\n", Changes{}},
		{"a rotated key and token", "other", "", "  users: {EXPORT_PAGE_SIZE: 7}\n  events:\n", Changes{}},
		{"the same in another place", "sesame", ", EXPORT_PAGE_SIZE: 7", "  users:\n  events: {EXPORT_PAGE_SIZE: 1000}\n",
			Changes{Changed: map[string][]string{"events": {"EXPORT_PAGE_SIZE"}}}},
		{"streams", "sesame", "", "  users: {EXPORT_PAGE_SIZE: 8}\n  sessions:\n",
			Changes{Added: []string{"sessions"}, Removed: []string{"events"},
				Changed: map[string][]string{"users": {"EXPORT_PAGE_SIZE"}}}},
		{"the process", "sesame", ", HTTP_ADDR: off", "  users: {EXPORT_PAGE_SIZE: 7}\n  events:\n",
			Changes{Process: []string{"HTTP_ADDR"}}},
		{"the membership that all streams share", "sesame", ", KAFKA_CLIENT_ID: x, KAFKA_CREATE_TOPICS: false", two,
			Changes{Process: []string{"KAFKA_CREATE_TOPICS", "KAFKA_CLIENT_ID"}}},
	} {
		got := base.Changes(load(test.secret, test.settings, test.streams))
		if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	const apart = ", BRIDGE_OWNERSHIP: stream"
	got := load("sesame", apart, two).Changes(load("sesame", apart+", KAFKA_CLIENT_ID: x", two))
	want := Changes{Changed: map[string][]string{"events": {"KAFKA_CLIENT_ID"}, "users": {"KAFKA_CLIENT_ID"}}}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("streams with groups of their own (-want +got):\n%s", diff)
	}
	other := load("sesame", apart, two)
	for _, got := range []Changes{base.Changes(other), other.Changes(base)} {
		if diff := cmp.Diff(Changes{Process: []string{"BRIDGE_OWNERSHIP"}}, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("another kind of group (-want +got):\n%s", diff)
		}
	}
}

func compareGolden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		must.Do(t, os.WriteFile(path, []byte(got), 0o644))
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != got {
		t.Errorf("%s (%v): go test -update shows the difference; got:\n%s", path, err, got)
	}
}
