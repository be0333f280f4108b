package deploy_test

import (
	"bytes"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi"
	"exportbridge/cmd/internal/command"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/dev"
)

const (
	composeFile   = "../../../../docker-compose.yml"
	simulatorFile = folder + "/compose/simulator.env"
)

// realEnv is the least that real data need.
var realEnv = []string{"EXPORT_URL=https://api.example.com/export", "EXPORT_API_KEY=k"}

// simulatorEnv returns the settings of the simulator, and its profiles.
func simulatorEnv(t *testing.T) (environ, profiles []string) {
	t.Helper()
	text := content(t, simulatorFile)
	for _, m := range regexp.MustCompile(`(?m)^(\w+)=(.*)$`).FindAllStringSubmatch(text, -1) {
		environ = append(environ, m[0])
		if m[1] == "COMPOSE_PROFILES" {
			profiles = strings.Split(m[2], ",")
		}
	}
	return environ, profiles
}

// loadCompose loads the compose file with all profiles, or with the named ones.
func loadCompose(t *testing.T, environ []string, profiles ...string) *types.Project {
	t.Helper()
	if profiles == nil {
		profiles = []string{"*"}
	}
	options := must.Get(cli.NewProjectOptions([]string{composeFile}, cli.WithName("exportbridge"), cli.WithEnv(environ),
		cli.WithProfiles(profiles)))(t)
	return must.Get(options.LoadProject(t.Context()))(t)
}

// TestCompose holds the compose file against the program: there is no
// container engine where the tests run.
func TestCompose(t *testing.T) {
	t.Parallel()
	base := []string{"bridge", "kafka", "redis", "token", "topics"}
	for _, c := range []struct {
		profiles, more []string
	}{
		{[]string{""}, nil},
		{[]string{"simulator"}, []string{"simulator"}},
		{[]string{"ui"}, []string{"console"}},
		{[]string{"metrics"}, []string{"alerts", "dashboard", "grafana", "prometheus"}},
		{[]string{"ui", "metrics"}, []string{"alerts", "console", "dashboard", "grafana", "prometheus"}},
	} {
		p := loadCompose(t, realEnv, c.profiles...)
		want := slices.Sorted(slices.Values(slices.Concat(base, c.more)))
		if diff := cmp.Diff(want, slices.Sorted(slices.Values(p.ServiceNames()))); diff != "" {
			t.Errorf("services with %q (-want +got):\n%s", c.profiles, diff)
		}
	}
	p := loadCompose(t, realEnv)
	conditions := make(map[string]string)
	for name, d := range p.Services["bridge"].DependsOn {
		conditions[name] = d.Condition
		if d.Required != (name != "simulator") {
			t.Errorf("bridge: %s is required = %v; only real data may do without the simulator", name, d.Required)
		}
	}
	want := map[string]string{
		"kafka": types.ServiceConditionHealthy, "redis": types.ServiceConditionHealthy,
		"simulator": types.ServiceConditionHealthy,
		"topics":    types.ServiceConditionCompletedSuccessfully, "token": types.ServiceConditionCompletedSuccessfully,
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
	readme := content(t, "../../../../README.md")
	p := loadCompose(t, realEnv)
	var profiles []string
	for _, s := range p.Services {
		profiles = append(profiles, s.Profiles...)
	}
	up := regexp.MustCompile(`(?m)^COMPOSE_PROFILES=(\S+) docker compose up .*$`).FindStringSubmatch(readme)
	if up == nil {
		t.Fatal("the README does not start the services")
	}
	for profile := range strings.SplitSeq(up[1], ",") {
		if !slices.Contains(profiles, profile) {
			t.Errorf("profiles are %q, the README starts %q", profiles, profile)
		}
	}
	if !strings.Contains(readme, "\ncp cmd/exportbridge/deploy/compose/simulator.env .env\n") {
		t.Error("the README does not copy simulator.env")
	}
	read := regexp.MustCompile(`(?m)^docker compose run --rm (\S+) cat (\S+)$`).FindStringSubmatch(readme)
	if read == nil {
		t.Fatal("the README does not say how to read the token")
	}
	if service, ok := p.Services[read[1]]; !ok || !slices.ContainsFunc(service.Volumes,
		func(v types.ServiceVolumeConfig) bool {
			return strings.HasPrefix(read[2], v.Target+"/")
		}) {
		t.Errorf("the service %s has no volume with %s", read[1], read[2])
	}
}

// TestComposeServices: what must hold for every service.
func TestComposeServices(t *testing.T) {
	t.Parallel()
	p := loadCompose(t, realEnv)
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
		if restarts := s.Restart == types.RestartPolicyUnlessStopped; restarts == awaited[name] || s.Restart != "" &&
			!restarts {
			t.Errorf("%s: the restart policy is %q, and others wait for its end = %v", name, s.Restart, awaited[name])
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
	services := ours(loadCompose(t, realEnv))
	if want := []string{"alerts", "bridge", "dashboard", "simulator", "topics"}; !slices.Equal(want,
		slices.Sorted(maps.Keys(services))) {
		t.Fatalf("ours are %v, want %v", slices.Sorted(maps.Keys(services)), want)
	}
	for name, s := range services {
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) ||
			!slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
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
			setting := strings.TrimSuffix(variable, config.FileSuffix)
			if !slices.ContainsFunc(config.Variables(), func(v config.Variable) bool { return v.Name == setting }) {
				t.Errorf("%s sets %s, which is no setting", name, variable)
			}
		}
	}
	environ, _ := simulatorEnv(t)
	// The containers' own network is on this machine.
	network := []string{"HTTP_ADDR", "REDIS_URL", "KAFKA_TLS_ENABLED"}
	for _, c := range []struct{ environ, unsafe []string }{{realEnv, network},
		{environ, append(slices.Clip(network[:2]), "EXPORT_INSECURE_HTTP", network[2])}} {
		s := wantSettings(t, loadCompose(t, c.environ).Services["bridge"])
		if got := slices.Concat(s.HTTP.Unsafe(), s.Unsafe(), s.Streams[0].Unsafe()); !slices.Equal(got, c.unsafe) {
			t.Errorf("with %q, the bridge has the unsafe settings %q, want %q", c.environ, got, c.unsafe)
		}
	}
}

// wantSettings wants an environment that the bridge can start with.
func wantSettings(t *testing.T, bridge types.ServiceConfig) *config.Settings {
	t.Helper()
	var environ []string
	for variable, value := range bridge.Environment {
		if !strings.HasSuffix(variable, config.FileSuffix) {
			environ = append(environ, variable+"="+*value)
		}
	}
	s, err := config.Load(config.Sources{Environ: environ}, config.UsesAll)
	if err != nil || len(s.Warnings) > 0 {
		t.Fatalf("the bridge cannot start with %q: %v", environ, err)
	}
	return s
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
	text := content(t, composeFile)
	names := make(map[string]bool)
	for _, m := range regexp.MustCompile(`\$\{(\w+)`).FindAllStringSubmatch(text, -1) {
		names[m[1]] = true
	}
	for _, name := range []string{"EXPORT_URL", "EXPORT_API_KEY"} {
		if !names[name] {
			t.Errorf("the compose file does not take %s", name)
		}
	}
	for name := range names {
		mark := "registry.example.com/mark-of-" + strings.ToLower(name)
		resolved := must.Get(loadCompose(t, append(slices.Clone(realEnv), name+"="+mark)).MarshalYAML())(t)
		if !bytes.Contains(resolved, []byte(mark)) {
			t.Errorf("%s changes nothing", name)
		}
	}
}

// TestComposeReadsEnvFile: .env holds any setting of the bridge but those that the
// file fixes, and no service of somebody else sees them.
func TestComposeReadsEnvFile(t *testing.T) {
	t.Parallel()
	text := content(t, composeFile)
	dir := t.TempDir()
	environ := append(slices.Clone(realEnv), "EXPORT_EVENTS=orderPlaced", "KAFKA_TOPIC=orders", "LOG_LEVEL=debug",
		"KAFKA_BROKERS=elsewhere:9092", "IMAGE_KAFKA=registry.example.com/kafka:4")
	for name, data := range map[string]string{"docker-compose.yml": text, ".env": strings.Join(environ, "\n")} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600))
	}
	options := must.Get(cli.NewProjectOptions([]string{filepath.Join(dir, "docker-compose.yml")},
		cli.WithName("exportbridge"), cli.WithEnv(environ)))(t)
	p := must.Get(options.LoadProject(t.Context()))(t)
	s := wantSettings(t, p.Services["bridge"])
	if st := &s.Streams[0]; !slices.Equal(st.Engine.Origin.Events, []string{"orderPlaced"}) ||
		st.Kafka.Topic != "orders" || !slices.Equal(st.Kafka.Brokers, []string{"kafka:19092"}) {
		t.Errorf("the bridge exports %v to %s at %v", st.Engine.Origin.Events, st.Kafka.Topic, st.Kafka.Brokers)
	}
	if topic := p.Services["topics"].Environment["KAFKA_TOPIC"]; topic == nil || *topic != "orders" {
		t.Errorf("topics creates %v", topic)
	}
	for name, service := range p.Services {
		if _, sees := service.Environment["KAFKA_TOPIC"]; sees != (name == "bridge" || name == "topics") {
			t.Errorf("%s sees KAFKA_TOPIC = %v", name, sees)
		}
	}
}

// TestComposeTakesRealData: two variables are enough, the key can be empty for an API without one, and
// the simulator neither runs nor takes a port.
func TestComposeTakesRealData(t *testing.T) {
	t.Parallel()
	p := loadCompose(t, realEnv, "")
	s := wantSettings(t, p.Services["bridge"])
	if st := s.Streams[0]; st.Export.URL != "https://api.example.com/export" || st.Export.APIKey.Reveal() != "k" {
		t.Errorf("EXPORT_URL is %q, EXPORT_API_KEY %q", st.Export.URL, st.Export.APIKey.Reveal())
	}
	for name, s := range p.Services {
		if s.Build != nil && s.Build.Target == "dev" {
			t.Errorf("%s runs", name)
		}
		for _, port := range s.Ports {
			if port.Published == "4000" {
				t.Errorf("%s publishes port 4000", name)
			}
		}
	}
	s = wantSettings(t, loadCompose(t, []string{"EXPORT_API_KEY=k"}).Services["bridge"])
	if got := s.Streams[0].Export.URL; got != exportapi.DefaultConfig().URL {
		t.Errorf("without EXPORT_URL it is %q", got)
	}
	bare := loadCompose(t, []string{"EXPORT_API_KEY="}).Services["bridge"]
	bare.Environment["EXPORT_AUTH"] = new("none") // of .env
	wantSettings(t, bare)
}

// TestComposeSimulates: the file for the simulator is enough too, and names it.
func TestComposeSimulates(t *testing.T) {
	t.Parallel()
	environ, profiles := simulatorEnv(t)
	p := loadCompose(t, environ, profiles...)
	sim, ok := p.Services["simulator"]
	if !ok {
		t.Fatalf("the profiles %q do not start it", profiles)
	}
	s := wantSettings(t, p.Services["bridge"])
	at := slices.Index(sim.Command, "--listen") + 1
	if got, want := s.Streams[0].Export.URL, "http://simulator"+sim.Command[at]; got != want {
		t.Errorf("the bridge reads %s, the simulator is %s", got, want)
	}
	// After a restart it continues, so its start is in a volume.
	at = slices.Index(sim.Command, "--data-dir") + 1
	if at == 0 || !slices.ContainsFunc(sim.Volumes, func(v types.ServiceVolumeConfig) bool {
		return v.Type == types.VolumeTypeVolume && v.Target == sim.Command[at]
	}) {
		t.Errorf("the simulator does not keep its start: %q, %v", sim.Command, sim.Volumes)
	}
}

// TestComposeAsksKafkaLightly runs the health check of Kafka against a port that is
// open, then closed. A JVM every few seconds would cost a third of a core.
func TestComposeAsksKafkaLightly(t *testing.T) {
	t.Parallel()
	kafka := loadCompose(t, realEnv).Services["kafka"]
	args := slices.Clone([]string(kafka.HealthCheck.Test[1:]))
	if strings.Contains(strings.Join(args, " "), "kafka") {
		t.Fatalf("the health check %q starts a JVM", args)
	}
	if _, err := exec.LookPath(args[0]); err != nil {
		t.Skip(err)
	}
	script := &args[len(args)-1]
	const port = "19092"
	if !strings.Contains(*script, port) || !strings.Contains(*kafka.Environment["KAFKA_LISTENERS"], ":"+port) {
		t.Fatalf("the health check %q asks no listener of %s", args, *kafka.Environment["KAFKA_LISTENERS"])
	}
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	_, free, _ := net.SplitHostPort(l.Addr().String())
	*script = strings.ReplaceAll(*script, port, free)
	if said, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Errorf("%q on an open port: %v\n%s", args, err, said)
	}
	l.Close()
	if err := exec.CommandContext(t.Context(), args[0], args[1:]...).Run(); err == nil {
		t.Errorf("%q on a closed port succeeds", args)
	}
}

// TestComposeTellsVersion: both names of the build reach the Dockerfile; without them
// the version is that of a build outside a release.
func TestComposeTellsVersion(t *testing.T) {
	t.Parallel()
	for want, environ := range map[string][]string{"v1.2.3": {"VERSION=v1.2.3", "REVISION=abc"}, "devel": nil} {
		args := loadCompose(t, append(slices.Clone(realEnv), environ...)).Services["bridge"].Build.Args
		if args["VERSION"] == nil || *args["VERSION"] != want || args["REVISION"] == nil {
			t.Errorf("with %q, the build arguments are %v, want version %s", environ, args, want)
		}
	}
}
