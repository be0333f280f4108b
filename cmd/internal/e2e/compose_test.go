package e2e_test

import (
	"bytes"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"exportbridge/cmd/internal/command"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/dev"
)

const composeFile = "../../../docker-compose.yml"

// loadCompose loads the compose file with all profiles, or with the named ones.
func loadCompose(t *testing.T, environ []string, profiles ...string) *types.Project {
	t.Helper()
	if profiles == nil {
		profiles = []string{"*"}
	}
	options, err := cli.NewProjectOptions([]string{composeFile}, cli.WithName("exportbridge"), cli.WithEnv(environ), cli.WithProfiles(profiles))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// TestCompose holds the compose file against the program: there is no
// container engine where the tests run.
func TestCompose(t *testing.T) {
	t.Parallel()
	base := []string{"bridge", "kafka", "redis", "simulator", "token", "topics"}
	for _, c := range []struct {
		profiles, more []string
	}{
		{[]string{""}, nil},
		{[]string{"ui"}, []string{"console"}},
		{[]string{"metrics"}, []string{"alerts", "dashboard", "grafana", "prometheus"}},
		{[]string{"ui", "metrics"}, []string{"alerts", "console", "dashboard", "grafana", "prometheus"}},
	} {
		p := loadCompose(t, nil, c.profiles...)
		want := slices.Sorted(slices.Values(slices.Concat(base, c.more)))
		if diff := cmp.Diff(want, slices.Sorted(slices.Values(p.ServiceNames()))); diff != "" {
			t.Errorf("services with %q (-want +got):\n%s", c.profiles, diff)
		}
	}
	p := loadCompose(t, nil)
	conditions := make(map[string]string)
	for name, d := range p.Services["bridge"].DependsOn {
		conditions[name] = d.Condition
		if d.Required != (name != "simulator") {
			t.Errorf("bridge: %s is required = %v; only real data may do without the simulator", name, d.Required)
		}
	}
	want := map[string]string{
		"kafka": types.ServiceConditionHealthy, "redis": types.ServiceConditionHealthy, "simulator": types.ServiceConditionHealthy,
		"topics": types.ServiceConditionCompletedSuccessfully, "token": types.ServiceConditionCompletedSuccessfully,
	}
	if diff := cmp.Diff(want, conditions); diff != "" {
		t.Errorf("bridge waits for (-want +got):\n%s", diff)
	}
	if got := p.Services["bridge"].Build.Dockerfile; got != "cmd/exportbridge/Dockerfile" {
		t.Errorf("the bridge is built by %s", got)
	}
}

// TestComposeInReadme: the README's commands name what the compose file has.
func TestComposeInReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	p := loadCompose(t, nil)
	var profiles []string
	for _, s := range p.Services {
		profiles = append(profiles, s.Profiles...)
	}
	up := regexp.MustCompile(`(?m)^docker compose --profile (\S+) --profile (\S+) up .*$`).FindStringSubmatch(string(readme))
	if up == nil || !slices.Contains(profiles, up[1]) || !slices.Contains(profiles, up[2]) {
		t.Errorf("profiles are %q, the README starts %q", profiles, up)
	}
	read := regexp.MustCompile(`(?m)^docker compose run --rm (\S+) cat (\S+)$`).FindStringSubmatch(string(readme))
	if read == nil {
		t.Fatal("the README does not say how to read the token")
	}
	if service, ok := p.Services[read[1]]; !ok || !slices.ContainsFunc(service.Volumes, func(v types.ServiceVolumeConfig) bool {
		return strings.HasPrefix(read[2], v.Target+"/")
	}) {
		t.Errorf("the service %s has no volume with %s", read[1], read[2])
	}
}

// TestComposeServices: what must hold for every service.
func TestComposeServices(t *testing.T) {
	t.Parallel()
	p := loadCompose(t, nil)
	awaited := make(map[string]bool)
	published := make(map[string]string)
	for _, s := range p.Services {
		for name, d := range s.DependsOn {
			awaited[name] = awaited[name] || d.Condition == types.ServiceConditionCompletedSuccessfully
		}
	}
	pinned := regexp.MustCompile(`:[\w.-]*(\d|local)[\w.-]*$`)
	for name, s := range p.Services {
		if !pinned.MatchString(s.Image) {
			t.Errorf("%s: the image %s has no version", name, s.Image)
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes %s on %q, want loopback", name, port.Published, port.HostIP)
			}
			if other := published[port.Published]; other != "" {
				t.Errorf("%s and %s publish port %s", name, other, port.Published)
			}
			published[port.Published] = name
		}
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil || !v.ReadOnly {
				t.Errorf("%s mounts %s, read only = %v: %v", name, v.Source, v.ReadOnly, err)
			}
		}
		// A health check in shell form never turns healthy in an image without
		// a shell. Without any, up --wait waits for the end of what somebody
		// else awaits the end of, and is satisfied with a start otherwise: which
		// is enough for what only looks at the others.
		healthy := s.HealthCheck != nil && len(s.HealthCheck.Test) > 1 && s.HealthCheck.Test[0] == "CMD"
		if healthy == (awaited[name] || name == "console") {
			t.Errorf("%s has a health check in exec form = %v, and others wait for its end = %v", name, healthy, awaited[name])
		}
	}
}

// ours are the services that run this program.
func ours(p *types.Project) map[string]types.ServiceConfig {
	services := make(map[string]types.ServiceConfig)
	for name, s := range p.Services {
		if s.Build != nil {
			services[name] = s
		}
	}
	return services
}

// TestComposeRunsOurCommands: every command line and every variable in the
// compose file is one that this program has.
func TestComposeRunsOurCommands(t *testing.T) {
	t.Parallel()
	services := ours(loadCompose(t, nil))
	if want := []string{"alerts", "bridge", "dashboard", "simulator", "topics"}; !slices.Equal(want, slices.Sorted(maps.Keys(services))) {
		t.Fatalf("ours are %v, want %v", slices.Sorted(maps.Keys(services)), want)
	}
	for name, s := range services {
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s can do more than it needs", name)
		}
		commands := [][]string{s.Command}
		if s.HealthCheck != nil {
			commands = append(commands, s.HealthCheck.Test[2:])
		}
		root := command.Program.Root()
		if s.Build.Target == "dev" {
			root = dev.Program.Root()
		}
		for _, args := range commands {
			wantCommand(t, root, name, args)
		}
		for variable := range s.Environment {
			if !config.IsSetting(variable) {
				t.Errorf("%s sets %s, which is no setting", name, variable)
			}
		}
	}
	var environ []string
	for variable, value := range services["bridge"].Environment {
		if !strings.HasSuffix(variable, config.FileSuffix) {
			environ = append(environ, variable+"="+*value)
		}
	}
	if s, err := config.Load(config.Sources{Environ: environ}, config.UsesAll); err != nil || len(s.Warnings) > 0 {
		t.Errorf("bridge cannot start with its environment: %v %v", err, s.Warnings)
	}
}

// wantCommand wants a command line that the program understands.
func wantCommand(t *testing.T, root *cobra.Command, who string, args []string) {
	t.Helper()
	cmd, rest, err := root.Find(args)
	if err != nil || cmd == root {
		t.Errorf("%s: %q is no command: %v", who, args, err)
		return
	}
	if err := cmd.ParseFlags(rest); err != nil {
		t.Errorf("%s: %q: %v", who, args, err)
	}
}

// TestComposeVariables: every variable of the compose file reaches a service.
func TestComposeVariables(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(composeFile)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, m := range regexp.MustCompile(`\$\{(\w+)`).FindAllSubmatch(text, -1) {
		names[string(m[1])] = true
	}
	for _, name := range []string{"EXPORT_URL", "EXPORT_API_KEY"} {
		if !names[name] {
			t.Errorf("the compose file does not take %s", name)
		}
	}
	for name := range names {
		mark := "registry.example.com/mark-of-" + strings.ToLower(name)
		resolved, err := loadCompose(t, []string{name + "=" + mark}).MarshalYAML()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(resolved, []byte(mark)) {
			t.Errorf("%s changes nothing", name)
		}
	}
}

// TestComposeTakesRealData: two variables are enough.
func TestComposeTakesRealData(t *testing.T) {
	t.Parallel()
	bridge := loadCompose(t, []string{"EXPORT_URL=https://api.example.com/export", "EXPORT_API_KEY=k"}).Services["bridge"]
	if url, key := *bridge.Environment["EXPORT_URL"], *bridge.Environment["EXPORT_API_KEY"]; url != "https://api.example.com/export" || key != "k" {
		t.Errorf("EXPORT_URL is %q, EXPORT_API_KEY %q", url, key)
	}
}
