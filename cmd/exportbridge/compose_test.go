package main

import (
	"bytes"
	"slices"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/google/go-cmp/cmp"
)

func loadCompose(t *testing.T, environ ...string) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"../../docker-compose.yml"}, cli.WithName("exportbridge"), cli.WithEnv(environ))
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
	p := loadCompose(t)
	if diff := cmp.Diff([]string{"bridge", "kafka", "redis", "simulator", "topics"}, slices.Sorted(slices.Values(p.ServiceNames()))); diff != "" {
		t.Fatalf("services (-want +got):\n%s", diff)
	}
	conditions := make(map[string]string)
	for name, d := range p.Services["bridge"].DependsOn {
		conditions[name] = d.Condition
		if d.Required != (name != "simulator") {
			t.Errorf("bridge: %s is required = %v; only real data may do without the simulator", name, d.Required)
		}
	}
	want := map[string]string{
		"kafka": types.ServiceConditionHealthy, "redis": types.ServiceConditionHealthy,
		"topics": types.ServiceConditionCompletedSuccessfully, "simulator": types.ServiceConditionHealthy,
	}
	if diff := cmp.Diff(want, conditions); diff != "" {
		t.Errorf("bridge waits for (-want +got):\n%s", diff)
	}
	for name, s := range p.Services {
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes %s on %q, want loopback", name, port.Published, port.HostIP)
			}
		}
		// A health check in shell form never turns healthy in an image
		// without a shell.
		if name != "topics" && (s.HealthCheck == nil || len(s.HealthCheck.Test) < 2 || s.HealthCheck.Test[0] != "CMD") {
			t.Errorf("%s has no health check in exec form", name)
		}
	}
}

// TestComposeRunsOurCommands: every command line and every variable in the
// compose file is one that this program has.
func TestComposeRunsOurCommands(t *testing.T) {
	t.Parallel()
	p := loadCompose(t)
	known := make(map[string]bool)
	for _, v := range allVariables() {
		known[v.name] = true
	}
	for _, name := range []string{"topics", "simulator", "bridge"} {
		s := p.Services[name]
		commands := [][]string{s.Command}
		if s.HealthCheck != nil {
			commands = append(commands, s.HealthCheck.Test[2:])
		}
		for _, args := range commands {
			root := newRootCommand(&app{stdio: stdio{new(bytes.Buffer), new(bytes.Buffer), new(bytes.Buffer)}, given: make(map[string]string)})
			cmd, rest, err := root.Find(args)
			if err != nil || cmd == root {
				t.Errorf("%s: %q is no command: %v", name, args, err)
				continue
			}
			if err := cmd.ParseFlags(rest); err != nil {
				t.Errorf("%s: %q: %v", name, args, err)
			}
		}
		for variable := range s.Environment {
			if !known[variable] {
				t.Errorf("%s sets %s, which is no setting", name, variable)
			}
		}
		var environ []string
		for variable, value := range s.Environment {
			environ = append(environ, variable+"="+*value)
		}
		if name == "bridge" {
			a := &app{stdio: stdio{new(bytes.Buffer), new(bytes.Buffer), new(bytes.Buffer)}, environ: environ, given: make(map[string]string)}
			if s, err := a.settings(t.Context(), usesAll, nil); err != nil || len(s.warnings) > 0 {
				t.Errorf("bridge cannot start with its environment: %v %v", err, s.warnings)
			}
		}
	}
}

func TestComposeTakesRealData(t *testing.T) {
	t.Parallel()
	env := loadCompose(t, "EXPORT_URL=https://api.example.com/export", "EXPORT_API_KEY=k", "KAFKA_IMAGE=other/kafka:1").Services
	if got := *env["bridge"].Environment["EXPORT_URL"]; got != "https://api.example.com/export" {
		t.Errorf("EXPORT_URL is %q", got)
	}
	if got := env["kafka"].Image; got != "other/kafka:1" {
		t.Errorf("the image of Kafka is %q", got)
	}
}
