package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

func TestSettingsTable(t *testing.T) {
	t.Parallel()
	table := Markdown(shopVariables())
	for _, want := range []string{
		"| `SHOP_NAME` | required | its name; for example `corner` |\n",
		"| `SHOP_WAIT` * | `30d` |  |\n",
		"| `SHOP_KEY` * |  | ; secret, has no flag |\n",
		"| `SHOP_COLOUR` | `red` | ; one of `red`, `green` |\n",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no row %q in\n%s", want, table)
		}
	}
	if got := tableText.Replace("a|b <c>"); got != `a\|b \<c>` {
		t.Errorf("cell %q", got)
	}
}

// The setting of a time lists the forms that a time may have, as the error does.
func TestStartListsForms(t *testing.T) {
	t.Parallel()
	_, err := bridge.ParseInstant("?", time.Now())
	_, forms, _ := strings.Cut(err.Error(), ": use ")
	if row := Markdown(Variables()); forms == "" || !strings.Contains(row, "begins: "+forms+";") {
		t.Errorf("the settings do not list %q as the forms of EXPORT_START", forms)
	}
}

// What config env prints of a profile can be read by --env-file, also a value of several lines or
// with a quote.
func TestEnvTemplateIsRead(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"EXPORT_HEADERS": "Accept: application/json\nX-Version: 2", "KAFKA_CE_SOURCE": "/it's", "EXPORT_PATH": `/a\b`,
		"EXPORT_ITEM_TIME": `/"at"`,
	}
	text := `EXPORT_HEADERS="Accept: application/json\nX-Version: 2"` + "\nKAFKA_CE_SOURCE=\"/it's\"\n" +
		"EXPORT_PATH=/a\\b\nEXPORT_ITEM_TIME='/\"at\"'\n"
	lines := strings.Split(EnvTemplate(Variables(), writeFile(t, "acme.env", text)), "\n")
	for i, line := range lines { // as the head says: take the # off a line to set it
		if name, _, ok := strings.Cut(strings.TrimPrefix(line, "#"), "="); ok && want[name] != "" {
			lines[i] = strings.TrimPrefix(line, "#")
		}
	}
	got := make(map[string]string)
	must.Do(t, parseEnv("out.env", strings.Join(lines, "\n"), func(name, value string) error {
		got[name] = value
		return nil
	}))
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
}

// The file in the document of the settings can be loaded.
func TestExampleOfTheDocument(t *testing.T) {
	t.Parallel()
	_, rest, _ := strings.Cut(string(must.Get(os.ReadFile("../../exportbridge/docs/settings.md"))(t)), "```yaml\n")
	text, _, _ := strings.Cut(rest, "```")
	dir := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(dir, "secrets"), 0o700))
	for name, content := range map[string]string{
		"streams.yaml": text, "tenants.txt": "acme\nglobex\n", "secrets/redis-url": "redis://localhost:6379/0",
		"secrets/acme": "key-of-acme", "secrets/globex": "key-of-globex", "secrets/okta": "key-of-okta",
	} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	if _, err := Load(Sources{Environ: []string{"BRIDGE_CONFIG=" + filepath.Join(dir, "streams.yaml")}}, UsesAll); err != nil {
		t.Error(err)
	}
}
