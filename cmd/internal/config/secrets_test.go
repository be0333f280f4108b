package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"exportbridge/bridge/bridgetest/must"
)

// A command that sends no request to the API takes a stream whatever the settings have that it
// does not read.
func TestWithoutKey(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "acme.env")
	profile := "EXPORT_PARAMS='q=at>{start}'\nEXPORT_START_PARAM=none\nEXPORT_END_PARAM=none\n"
	must.Do(t, os.WriteFile(file, []byte(profile), 0o600))
	okta := []string{"EXPORT_PROFILE=okta-system-log", "EXPORT_URL=https://acme.okta.com"}
	entra := []string{"EXPORT_PROFILE=microsoft-graph-audit", "EXPORT_OAUTH2_CLIENT_ID=a",
		"EXPORT_OAUTH2_TOKEN_URL=https://login.microsoftonline.com/a/oauth2/v2.0/token"}
	streams := []string{"BRIDGE_STREAMS=a,b", "EXPORT_RESOURCE=events", "KAFKA_TOPIC=all"}
	for name, environ := range map[string][]string{
		"a filter beside a start": append(okta, "EXPORT_PARAMS=filter=a"),
		"a filter beside the bounds of windows": {"EXPORT_PROFILE=slack-audit-logs", "EXPORT_PARAMS=action=a",
			"BRIDGE_ATTEST=1h"},
		"bounds in EXPORT_PARAMS": {"EXPORT_PARAMS=q=at>{start}", "EXPORT_START_PARAM=none", "EXPORT_END_PARAM=none",
			"EXPORT_START=-1d"},
		"bounds in a profile":        append(entra, "BRIDGE_ATTEST=1h", "EXPORT_ON_INVALID_CURSOR=time"),
		"bounds in a profile's file": {"EXPORT_PROFILE=" + file, "EXPORT_START=-1d"},
		"headers of a tenant":        {"EXPORT_HEADERS=X-Tenant-Id: a", "EXPORT_SOURCE_HEADERS=X-Tenant-Id"},
		"two keys, one topic":        append(streams, "STREAM_A_EXPORT_API_KEY=a", "STREAM_B_EXPORT_API_KEY=b"),
	} {
		if _, err := Load(Sources{Environ: environ}, UsesAll|WithoutKey); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Load(Sources{Environ: append(environ, "EXPORT_API_KEY=k")}, UsesAll); err != nil {
			t.Errorf("%s, with the key: %v", name, err)
		}
	}
}

// A command that sends no request to the API needs none of its secrets.
func TestWithoutSecrets(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"EXPORT_API_KEY", "EXPORT_TLS_KEY", "EXPORT_PARAMS", "EXPORT_HEADERS", "EXPORT_PROXY"} {
		environ := []string{name + "_FILE=/nowhere/at/all", "EXPORT_TLS_CERT=certificate"}
		if _, err := Load(Sources{Environ: environ}, UsesAll|WithoutKey); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Load(Sources{Environ: append(environ, "EXPORT_API_KEY=k")}, UsesAll); err == nil {
			t.Errorf("%s: a missing file is accepted by a command that asks the API", name)
		}
	}
}

// TestTokenParametersAreSecret: they may be an assertion or a password.
func TestTokenParametersAreSecret(t *testing.T) {
	t.Parallel()
	s, err := loadFrom(t, UsesAll, "EXPORT_AUTH=oauth2", "EXPORT_OAUTH2_TOKEN_URL=https://login.example.com/t",
		"EXPORT_OAUTH2_CLIENT_ID=a", "EXPORT_OAUTH2_PARAMS=client_assertion=s3cret,audience=x")
	if err != nil || len(s.Streams[0].Export.OAuth2Params) != 2 {
		t.Fatal(err)
	}
	for _, row := range s.Effective {
		if strings.Contains(row.Value, "s3cret") || row.Variable == "EXPORT_OAUTH2_PARAMS" &&
			(!row.Secret || row.Value != "***") {
			t.Errorf("%s=%s", row.Variable, row.Value)
		}
	}
	if _, err = loadFrom(t, UsesAll, "EXPORT_AUTH=oauth2", "EXPORT_OAUTH2_PARAMS=s3cret"); err == nil ||
		strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a problem shows the value: %v", err)
	}
}

// TestBlankSecrets: blanks are no secret, in a file neither: they would be sent, or would be a key that anybody guesses.
func TestBlankSecrets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "blank")
	if err := os.WriteFile(file, []byte("  \r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	secrets := 0
	for _, v := range Variables() {
		if !v.Secret {
			continue
		}
		secrets++
		for _, set := range []string{v.Name + "=  ", v.Name + "_FILE=" + file} {
			_, err := Load(Sources{Environ: []string{set}}, UsesAll)
			if err == nil || !strings.Contains(err.Error(), v.Name) || !strings.Contains(err.Error(), "only blanks") {
				t.Errorf("%q: %v", set, err)
			}
		}
	}
	if secrets < 10 {
		t.Errorf("%d secrets: the test looks at too few", secrets)
	}
}
