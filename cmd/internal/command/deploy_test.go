package command

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
)

// TestDeployedSettings: every variable in the deployment files is a setting.
func TestDeployedSettings(t *testing.T) {
	t.Parallel()
	for file, variable := range map[string]string{
		"../../exportbridge/deploy/kubernetes/statefulset.yaml":  `(?m)- name: ([A-Z_]+)$`,
		"../../exportbridge/deploy/kubernetes/settings.env":      `(?m)^([A-Z_]+)=`,
		"../../exportbridge/deploy/systemd/exportbridge.service": `Environment=([A-Z_]+)=`,
	} {
		text := must.Get(os.ReadFile(file))(t)
		found := regexp.MustCompile(variable).FindAllSubmatch(text, -1)
		if len(found) < 3 {
			t.Errorf("%s sets %d variables", file, len(found))
		}
		for _, m := range found {
			name := strings.TrimSuffix(string(m[1]), config.FileSuffix)
			if !slices.ContainsFunc(config.Variables(), func(v config.Variable) bool { return v.Name == name }) {
				t.Errorf("%s sets %s, which is no setting", file, m[1])
			}
		}
	}
}

// TestKubernetesIsSafe: the only unsafe setting of the pods is the address of the probes,
// which a NetworkPolicy guards.
func TestKubernetesIsSafe(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile("../../exportbridge/deploy/kubernetes/settings.env"))(t)
	environ := append(strings.Split(string(text), "\n"), "HTTP_ADDR=:8080", "EXPORT_URL=https://api.example.com",
		"EXPORT_API_KEY=k")
	s := must.Get(config.Load(config.Sources{Environ: slices.DeleteFunc(environ,
		func(line string) bool { return strings.HasPrefix(line, "#") })}, config.UsesAll))(t)
	if got := slices.Concat(s.HTTP.Unsafe(), s.Unsafe(), s.Streams[0].Unsafe()); !slices.Equal(got,
		[]string{"HTTP_ADDR"}) {
		t.Errorf("unsafe settings: %q", got)
	}
}

// TestRulesInStep: the Prometheus operator gets the alert rules that the program prints.
func TestRulesInStep(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile("../../exportbridge/deploy/kubernetes/monitoring/rules.yaml"))(t)
	_, got, _ := strings.Cut(string(text), "\nspec:\n")
	said := runProgram(t, nil, "alerts")
	want := regexp.MustCompile(`(?m)^.`).ReplaceAllString(said.stdout, "  $0")
	if diff := cmp.Diff(want, got); said.code != cli.ExitOK || diff != "" {
		t.Errorf("run make docs (-alerts +rules.yaml):\n%s", diff)
	}
}
