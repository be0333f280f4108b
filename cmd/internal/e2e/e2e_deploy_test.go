//go:build unix

package e2e_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
)

const simulatorFile = "../../exportbridge/deploy/compose/simulator.env"

// service is what an engine reads of the compose file to run a container.
type service struct {
	Command         []string
	Environment     map[string]string
	Build           struct{ Target string }
	HealthCheck     struct{ Test []string }
	StopGracePeriod time.Duration `yaml:"stop_grace_period"`
}

// composeServices reads the compose file with the settings of the simulator.
func composeServices(t *testing.T) map[string]service {
	t.Helper()
	settings := readSettings(t, simulatorFile)
	text := must.Get(os.ReadFile("../../../docker-compose.yml"))(t)
	resolved := os.Expand(string(text), func(variable string) string { // NAME:-default or NAME?error
		name, other, _ := strings.Cut(strings.Replace(variable, ":-", "?", 1), "?")
		return cmp.Or(settings[name], other)
	})
	var file struct{ Services map[string]service }
	must.Do(t, yaml.Unmarshal([]byte(resolved), &file))
	return file.Services
}

// world is where containers run as processes: names says what the names of
// their world, such as kafka:19092 and /shared, are in the test.
type world struct {
	*stage
	names *strings.Replacer
}

// container starts the program as an engine would: with this command line, and
// this environment and nothing else.
func (w world) container(env map[string]string, dev bool, args ...string) *program {
	w.t.Helper()
	settings := make(map[string]string)
	for name, value := range env {
		settings[name] = w.names.Replace(value)
	}
	replaced := make([]string, len(args))
	for i, arg := range args {
		replaced[i] = w.names.Replace(arg)
	}
	w.settings = settings
	if dev {
		return w.startDev(replaced...)
	}
	return w.start(replaced...)
}

// service starts a service of a compose file with its command line, or another.
func (w world) service(s service, args ...string) *program {
	w.t.Helper()
	if args == nil {
		args = s.Command
	}
	return w.container(s.Environment, s.Build.Target == "dev", args...)
}

// awaitHealthy asks a service by its health check until it is satisfied.
func (w world) awaitHealthy(name string, s service) {
	w.t.Helper()
	eventually(w.t, stepTimeout, name+" to be healthy", func() bool {
		return w.service(s, s.HealthCheck.Test[2:]...).wait(stepTimeout) == 0
	})
}

// TestE2ECompose is an engine that runs the compose file: our containers in
// their order, with their command lines, environments and health checks.
func TestE2ECompose(t *testing.T) {
	t.Parallel()
	services := composeServices(t)
	backends := startServers(t, owned{kafka: true, redis: true})
	s := newStage(t, backends, exportsim.Config{Events: 1})
	simulator, shared, run, data := servers.FreeAddress(t), t.TempDir(), t.TempDir(), t.TempDir()
	w := world{s, strings.NewReplacer(
		"kafka:19092", backends.brokers, "redis://redis:6379/0", backends.redisURL,
		"127.0.0.1:4000", simulator, "simulator:4000", simulator, ":4000", simulator, ":8080", s.ops, ":8081", servers.FreeAddress(t),
		"/shared/", shared+"/", "/run/secrets", run, "/data", data,
	)}
	w.service(services["topics"]).wantExit(0, stepTimeout)
	w.makeToken(services["token"], filepath.Join(run, "token"))
	w.service(services["simulator"])
	w.awaitHealthy("simulator", services["simulator"])
	bridge := w.service(services["bridge"])
	w.awaitHealthy("bridge", services["bridge"])
	const inStock = 12_000
	s.awaitPublished(inStock)
	tail := w.service(services["bridge"], "tail", "-n", "5")
	tail.wantExit(0, stepTimeout)
	if lines := strings.Count(string(tail.stdout()), "\n"); lines != 5 {
		t.Errorf("tail -n 5 printed %d lines", lines)
	}
	grace := services["bridge"].StopGracePeriod
	if took := bridge.stop(); took > grace {
		t.Errorf("the bridge took %s to stop, and is killed after %s", took, grace)
	}
	for _, name := range []string{"alerts", "dashboard"} {
		w.service(services[name]).wantExit(0, stepTimeout)
		w.service(services[name]).wantExit(0, stepTimeout) // at the next up it is there
	}
	wantReadable(t, filepath.Join(shared, "alerts.yml"))
	wantReadable(t, filepath.Join(shared, "dashboard.json"))
	w.checkPrometheus()
}

// makeToken runs the shell of the service twice: the token stays.
func (w world) makeToken(s service, path string) {
	w.t.Helper()
	var tokens []string
	for range 2 {
		cmd := exec.CommandContext(w.t.Context(), s.Command[0], s.Command[1], w.names.Replace(s.Command[2]))
		if said, err := cmd.CombinedOutput(); err != nil {
			w.t.Fatalf("%s: %v\n%s", cmd, err, said)
		}
		token := must.Get(os.ReadFile(path))(w.t)
		tokens = append(tokens, string(token))
	}
	if tokens[0] != tokens[1] || !regexp.MustCompile(`^[0-9a-f]{64}\n$`).MatchString(tokens[0]) {
		w.t.Errorf("tokens %q", tokens)
	}
	wantReadable(w.t, path)
}

// wantReadable wants a file that users of other containers can read.
func wantReadable(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Error(err)
	} else if info.Mode()&0o444 != 0o444 || info.Size() == 0 {
		t.Errorf("%s is %s with %d bytes, want one that others can read", path, info.Mode(), info.Size())
	}
}

// checkPrometheus lets Prometheus's own tool read the configuration and, with
// it, the rules.
func (w world) checkPrometheus() {
	w.t.Helper()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		w.t.Log("promtool is not installed, the configuration of Prometheus was not read")
		return
	}
	config := must.Get(fs.ReadFile(os.DirFS("../../exportbridge/deploy/compose"), "prometheus.yml"))(w.t)
	path := filepath.Join(w.dir, "prometheus.yml")
	must.Do(w.t, os.WriteFile(path, []byte(w.names.Replace(string(config))), 0o600))
	if said, err := exec.Command(promtool, "check", "config", path).CombinedOutput(); err != nil {
		w.t.Errorf("promtool: %v\n%s", err, said)
	}
}

// pods is what an engine reads of the StatefulSet to run a pod.
type pods struct {
	Metadata struct{ Name string }
	Spec     struct {
		Template struct {
			Spec struct {
				TerminationGracePeriodSeconds int
				Containers                    []struct {
					Args []string
					Env  []struct {
						Name, Value string
						ValueFrom   struct{ FieldRef struct{ FieldPath string } }
					}
					LivenessProbe, ReadinessProbe struct{ HTTPGet struct{ Path string } }
				}
			}
		}
	}
}

// TestE2EKubernetes runs the two pods of the StatefulSet as a kubelet would: one
// runs the stream, the other takes over, and both are alive and ready.
func TestE2EKubernetes(t *testing.T) {
	t.Parallel()
	const n = 1000
	text := must.Get(os.ReadFile("../../exportbridge/deploy/kubernetes/statefulset.yaml"))(t)
	var manifest any
	must.Do(t, yaml.Unmarshal(text, &manifest))
	inJSON := must.Get(json.Marshal(manifest))(t)
	var set pods
	must.Do(t, json.Unmarshal(inJSON, &set))
	pod := set.Spec.Template.Spec
	main := pod.Containers[0]
	backends := startServers(t, owned{kafka: true, redis: true})
	s := newStage(t, backends, exportsim.Config{Events: n, APIKey: "open-sesame-open-sesame"})
	s.simulate()
	secrets := t.TempDir()
	for _, key := range []string{"api-key", "admin-token"} {
		must.Do(t, os.WriteFile(filepath.Join(secrets, key), []byte("open-sesame-open-sesame"), 0o600))
	}
	s.topic = "export.events"
	var running [2]*program
	var probes [2]string // addresses
	for i := range running {
		name, addr := fmt.Sprintf("%s-%d", set.Metadata.Name, i), servers.FreeAddress(t)
		probes[i] = servers.FreeAddress(t)
		env := map[string]string{"EXPORT_URL": s.api}
		maps.Copy(env, readSettings(t, "../../exportbridge/deploy/kubernetes/settings.env"))
		env["KAFKA_TLS_ENABLED"] = "false" // as the servers here
		for _, v := range main.Env {
			if env[v.Name] = v.Value; v.ValueFrom.FieldRef.FieldPath == "metadata.name" {
				env[v.Name] = name
			}
		}
		w := world{s, strings.NewReplacer(
			"kafka:9093", backends.brokers, "rediss://redis:6379/0", backends.redisURL, "/etc/exportbridge", secrets,
			":8080", addr, ":8081", probes[i],
		)}
		running[i] = w.container(env, false, main.Args...)
	}
	published := func() int { return running[0].published() + running[1].published() }
	eventually(t, time.Minute, "all events", func() bool { return published() >= n })
	eventually(t, stepTimeout, "one owner",
		func() bool { return running[0].metric("stream_owned")+running[1].metric("stream_owned") == 1 })
	for i := range running {
		for _, probe := range []string{main.LivenessProbe.HTTPGet.Path, main.ReadinessProbe.HTTPGet.Path} {
			if code, body := get(probes[i], probe); code != 200 {
				t.Errorf("pod %d: %s answers %d %s", i, probe, code, body)
			}
		}
	}
	// A node is drained.
	owner, other := running[0], running[1]
	if other.metric("stream_owned") == 1 {
		owner, other = other, owner
	}
	if took := owner.stop(); took > time.Duration(pod.TerminationGracePeriodSeconds)*time.Second {
		t.Errorf("the owner took %s to stop, and is killed after %d s", took, pod.TerminationGracePeriodSeconds)
	}
	eventually(t, stepTimeout, "the other to take over", func() bool { return other.metric("stream_owned") == 1 })
	other.stop()
	s.read().wantAll(n, 0)
}

// readSettings reads a file of NAME=VALUE lines.
func readSettings(t *testing.T, path string) map[string]string {
	t.Helper()
	text := must.Get(os.ReadFile(path))(t)
	settings := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			settings[name] = value
		}
	}
	return settings
}
