package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// TestProfiles loads every profile with its examples, and with something of its
// own set.
func TestProfiles(t *testing.T) {
	t.Parallel()
	names := make(map[string]*Variable)
	for _, v := range variables() {
		names[v.Name] = &v
	}
	for name, p := range profiles() {
		environ := []string{profileVariable + "=" + name, "EXPORT_API_KEY=k"}
		for variable, example := range p.examples {
			environ = append(environ, variable+"="+example)
		}
		s, err := Load(Sources{Environ: environ}, UsesAll)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for variable, value := range p.values {
			v := names[variable]
			if v == nil {
				t.Errorf("%s: %s is no setting", name, variable)
				continue
			}
			if value == v.def {
				t.Errorf("%s: %s=%s is the default", name, variable, value)
			}
			i := slices.IndexFunc(s.Effective, func(row Setting) bool { return row.Variable == variable })
			if row := s.Effective[i]; row.Value != value && !row.Secret || row.Origin != FromProfile || row.From != name {
				t.Errorf("%s: %s is %+v, want %s", name, variable, row, value)
			}
		}
	}
}

// This test fails if a release changes the requests of a profile: the streams of that
// profile must then list a published item before they go on.
func TestProfileRequests(t *testing.T) {
	t.Parallel()
	want := map[string]bridge.Fingerprint{
		"1password-events": "1 auth=~f263 cursor=~3b49 host=00cb method=~d192 path=6b97 size=~fa6f",
		"datadog-audit-trail": "1 auth=~ecef cursor=~3b49 host=0700 method=~d192 param.%2Ffilter%2Ffrom=~228d " +
			"param.sort=~ea3b path=9700 size=~fa6f",
		"metronome-audit-log": "1 auth=~f263 cursor=~3b49 host=~4e56 method=~1af5 param.sort=~f0ce path=~bbe0 " +
			"size=~6a33",
		"stripe-events": "1 auth=~f263 cursor=~a4cf host=~67f2 method=~1af5 path=~d26e size=~6a33",
		"gitlab-audit-events": "1 auth=~4061 cursor=~131e host=~8f45 method=~1af5 param.order_by=~4ddc " +
			"param.pagination=~827c param.sort=~24bb path=3247 size=~6a33",
		"google-workspace-activities": "1 auth=~f263 cursor=~3b49 host=~86df method=~1af5 path=bd48 size=~fa6f",
		"slack-audit-logs":            "1 auth=~f263 cursor=~3b49 host=~4ec2 method=~1af5 path=~35b5 size=~fa6f",
		"microsoft-graph-audit": "1 auth=~ad35 cursor=~d35d host=~4f87 method=~1af5 param.%24filter=~67d1 path=~014e " +
			"size=~fa6f token=fd30",
		"auth0-logs": "1 auth=~ad35 cursor=~131e host=1c71 method=~1af5 param.from=47ed path=c706 " +
			"size=~6a33 token=d21c",
		"croct":   "1 auth=~05b4 cursor=~3b49 host=~b1b8 method=~1af5 path=~0f1a size=~fa6f",
		"generic": "1 auth=~f263 cursor=~3b49 host=c79e method=~1af5 path=d26e size=~6a33",
		"github-audit-log": "1 auth=~f263 cursor=~131e host=~b343 method=~1af5 param.order=~f275 path=6b3a " +
			"size=~6a33",
		"okta-system-log": "1 auth=~f263 cursor=~131e host=0af0 method=~1af5 path=c81e size=~fa6f",
	}
	for name, p := range profiles() {
		environ := []string{profileVariable + "=" + name, "EXPORT_API_KEY=k"}
		for variable, example := range p.examples {
			environ = append(environ, variable+"="+example)
		}
		s := must.Get(Load(Sources{Environ: environ}, UsesAll))(t)
		if got := s.Streams[0].Engine.Origin.Request; got != want[name] {
			t.Errorf("%q: %q,", name, got)
		}
	}
}

// TestProfileGivesWay: a setting takes precedence, each stream has its own profile, and
// settings that a profile cannot know are required.
func TestProfileGivesWay(t *testing.T) {
	t.Parallel()
	environ := []string{
		"BRIDGE_STREAMS=a,b", "STREAM_A_EXPORT_PROFILE=okta-system-log", "STREAM_A_EXPORT_URL=https://acme.okta.com",
		"STREAM_A_EXPORT_ITEM_TYPE=/severity",
		"EXPORT_RESOURCE=events", "EXPORT_API_KEY=k",
	}
	s := must.Get(Load(Sources{Environ: environ}, UsesAll))(t)
	a, b := s.Streams[0].Export, s.Streams[1].Export
	if a.Path != "/api/v1/logs" || a.KeyPrefix != "SSWS" || a.ItemType[0] != "/severity" ||
		s.Streams[0].Kafka.Key != "/actor/id" {
		t.Errorf("stream a has %+v", a)
	}
	if b.Path != "" || b.KeyPrefix != "" || s.Streams[1].Kafka.Key != "/userId" {
		t.Errorf("stream b has %+v", b)
	}
	_, err := Load(Sources{Environ: []string{"EXPORT_PROFILE=auth0-logs", "EXPORT_API_KEY=k"}}, UsesAll)
	for variable := range profiles()["auth0-logs"].examples {
		if want := fmt.Sprintf("%s is not set, and the profile auth0-logs has no default", variable); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err = Load(Sources{Environ: []string{"EXPORT_PROFILE=okta", "EXPORT_API_KEY=k"}}, UsesAll); err == nil ||
		!strings.Contains(err.Error(), `"okta" is not one of: croct, generic, 1password-events, auth0-logs`) {
		t.Errorf("an unknown profile: %v", err)
	}
	s, err = Load(Sources{Environ: []string{"EXPORT_PROFILE=generic", "EXPORT_URL=https://api.example.com",
		"EXPORT_PATH=/e", "EXPORT_API_KEY=k", "EXPORT_KEY_HEADER=X-Api-Key"}}, UsesAll)
	if err != nil || s.Streams[0].Export.KeyPrefix != "" {
		t.Errorf("a key in another header has a prefix: %+v, %v", s, err)
	}
	s, err = Load(Sources{Environ: []string{"BRIDGE_STREAMS=signin,users", "EXPORT_PROFILE=generic",
		"EXPORT_URL=https://api.example.com", "EXPORT_API_KEY=k",
		"STREAM_SIGNIN_EXPORT_PATH=/s", "STREAM_USERS_EXPORT_PATH=/u", "EXPORT_START=-3d"}}, UsesAll)
	if err != nil || s.Streams[1].Export.Resource != s.Streams[0].Export.Resource || !s.Streams[0].Engine.RelativeStart {
		t.Errorf("a generic profile asks for a resource, or takes it from a name: %+v, %v", s, err)
	}
	if _, err = Load(Sources{Environ: []string{"BRIDGE_STREAMS=signin", "EXPORT_API_KEY=k", "EXPORT_PATH=/s"}},
		UsesAll); err != nil {
		t.Errorf("a stream with a path asks for a resource: %v", err)
	}
	if _, ok := Profile("okta"); ok {
		t.Error("okta is a profile")
	}
}

// TestProfileFile: the file of a profile is the same as the profile, with every
// setting that it cannot know.
func TestProfileFile(t *testing.T) {
	t.Parallel()
	for _, name := range ProfileNames() {
		text, _ := Profile(name)
		if first, _, _ := strings.Cut(text, "\n"); !strings.HasPrefix(first, "# ") {
			t.Errorf("%s begins with %q", name, first)
		}
		file := writeFile(t, "own.env", text)
		s, err := Load(Sources{Environ: []string{profileVariable + "=" + file, "EXPORT_API_KEY=k",
			"EXPORT_RESOURCE=events"}}, UsesAll)
		got := strings.Join(messages(err), "; ")
		for variable := range profiles()[name].examples {
			if want := variable + " is not set, and the profile " + file + " has no default"; !strings.Contains(got, want) {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		}
		if (err != nil) != (len(profiles()[name].examples) > 0) {
			t.Errorf("%s: %v", name, err)
		}
		for variable, value := range profiles()[name].values {
			i := slices.IndexFunc(s.Effective, func(row Setting) bool { return row.Variable == variable })
			if row := s.Effective[i]; row.Value != value && !row.Secret || row.Origin != FromProfile || row.From != file {
				t.Errorf("%s: %s is %+v, want %s", name, variable, row, value)
			}
		}
	}
}

// A faulty profile is reported with its file and line, for each stream that has it.
func TestProfileFileErrors(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"EXPORT_PATH":                          "line 2: not NAME=VALUE",
		"EXPORT_PATH='/e":                      "line 2: EXPORT_PATH: the single quotes do not match",
		"EXPORT_PAHT=/e":                       "line 2: EXPORT_PAHT is not a setting",
		"EXPORT_API_KEY=sesame":                "line 2: EXPORT_API_KEY is a secret",
		"EXPORT_API_KEY_FILE=key":              "line 2: EXPORT_API_KEY_FILE is not a setting",
		"EXPORT_INSECURE_HTTP=true":            "line 2: EXPORT_INSECURE_HTTP does not describe an export API",
		"EXPORT_PROFILE=generic":               "line 2: EXPORT_PROFILE does not describe an export API",
		"KAFKA_BROKERS=k:9092":                 "line 2: KAFKA_BROKERS does not describe an export API",
		"#EXPORT_UR=http://x" + " # to be set": "line 2: EXPORT_UR is not a setting",
		"EXPORT_PAGE_SIZE=many":                `own.env): "many" is not a whole number`,
	} {
		file := writeFile(t, "own.env", "# about\n"+line+"\n")
		_, err := Load(Sources{Environ: []string{"STREAM_EVENTS_EXPORT_PROFILE=" + file, "EXPORT_API_KEY=k"}}, UsesAll)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) ||
			strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: got %v, want %q", line, err, want)
		}
	}
	_, err := Load(Sources{Environ: []string{"EXPORT_PROFILE=./none.env", "EXPORT_API_KEY=k"}}, UsesAll)
	if err == nil || !strings.Contains(err.Error(), "EXPORT_PROFILE: stat ./none.env: no such file") {
		t.Errorf("a missing file: %v", err)
	}
}

// TestProfileOfOtherAuth: with another EXPORT_AUTH than the profile's, its settings of
// authentication are neither required nor a contradiction.
func TestProfileOfOtherAuth(t *testing.T) {
	t.Parallel()
	auth0 := []string{"EXPORT_PROFILE=auth0-logs", "EXPORT_URL=https://acme.eu.auth0.com", "EXPORT_PARAMS=from=1",
		"EXPORT_API_KEY=k"}
	for _, environ := range [][]string{
		append(auth0, "EXPORT_AUTH=key", "EXPORT_KEY_HEADER=Authorization"),
		{"EXPORT_PROFILE=generic", "EXPORT_URL=https://api.example.com", "EXPORT_PATH=/e", "EXPORT_API_KEY=k",
			"EXPORT_AUTH=basic", "EXPORT_AUTH_USER=me"},
	} {
		s, err := Load(Sources{Environ: environ}, UsesAll)
		if err != nil {
			t.Errorf("%q: %v", environ, err)
			continue
		}
		if x := s.Streams[0].Export; x.OAuth2Scopes != nil || x.Scheme == "basic" && x.KeyPrefix != "" {
			t.Errorf("%q: %+v", environ, x.Auth)
		}
	}
}
