//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/exportsim"
)

// composeStart bounds a start of the project, without its build.
const composeStart = 3 * time.Minute

// project is the compose project of this source in a container engine.
type project struct {
	*stage

	dir   string
	token string
}

// TestComposeUp starts the compose project of the README in containers and breaks it. In
// the end the topic has each event of the simulator once.
func TestComposeUp(t *testing.T) {
	if os.Getenv("TEST_COMPOSE") == "" {
		t.Skip("it needs a container engine, and the ports of docker-compose.yml: make test-compose")
	}
	p := newProject(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.compose("ps", "--all"), p.compose("logs", "--tail", "20"))
		}
		p.compose("--profile", "*", "down", "--volumes")
	})
	p.compose("build")
	p.up()
	p.token = p.compose("run", "--rm", "--no-deps", "-T", "token", "cat", "/run/secrets/token")
	p.flows()
	if seen := p.compose("exec", "-T", "bridge", "/exportbridge", "tail", "-n", "3"); strings.Count(seen, "\n") < 2 {
		t.Errorf("tail prints %q", seen)
	}
	p.steer()
	p.hangs()
	for _, service := range []string{"bridge", "redis", "simulator", "kafka"} {
		p.kill(service)
		p.flows()
		t.Logf("killed and back: %s", service)
	}
	p.kill("kafka", "redis", "simulator", "bridge")
	p.flows()
	p.compose("down") // keeps the volumes
	p.up()
	p.flows()
	p.audit()
}

// newProject copies the files of this source that git knows, with the simulator's settings.
func newProject(t *testing.T) *project {
	t.Helper()
	dir := t.TempDir()
	files := exec.CommandContext(t.Context(), "sh", "-c", `git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$0"`, dir)
	files.Dir = "../../.."
	if out, err := files.CombinedOutput(); err != nil {
		t.Fatalf("copy the source: %v\n%s", err, out)
	}
	settings := must.Get(os.ReadFile(simulatorFile))(t)
	must.Do(t, os.WriteFile(filepath.Join(dir, ".env"), settings, 0o600))
	return &project{
		dir: dir,
		stage: &stage{
			t: t, servers: &backends{brokers: "127.0.0.1:9092"}, api: "http://127.0.0.1:4000", ops: "127.0.0.1:8080",
			topic: "export.events", config: exportsim.Config{APIKey: "demo"},
		},
	}
}

// compose runs docker compose and returns what it prints.
func (p *project) compose(args ...string) string {
	p.t.Helper()
	return p.docker(append([]string{"compose", "--progress", "plain", "-p", "exportbridge-e2e"}, args...)...)
}

func (p *project) docker(args ...string) string {
	p.t.Helper()
	cmd := exec.Command("docker", args...) // also after the end of the test's context
	cmd.Dir = p.dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		p.t.Fatalf("docker %s: %v\n%s\n%s", strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return strings.TrimSpace(stdout.String())
}

// up starts the project as the README does, but for the build.
func (p *project) up() {
	p.t.Helper()
	began := time.Now()
	p.compose("up", "--detach", "--wait", "--wait-timeout", "180")
	p.t.Logf("healthy after %s", time.Since(began).Round(time.Second))
}

// container returns the id of a service's container, running or not.
func (p *project) container(service string) string {
	p.t.Helper()
	return p.compose("ps", "--all", "--quiet", service)
}

// kill kills services without warning and starts their containers again.
func (p *project) kill(services ...string) {
	p.t.Helper()
	var ids []string
	for _, service := range services {
		ids = append(ids, p.container(service))
	}
	p.docker(append([]string{"kill", "--signal", "KILL"}, ids...)...)
	p.docker(append([]string{"start"}, ids...)...)
}

// flows waits until the topic has more records than now.
func (p *project) flows() {
	p.t.Helper()
	count := func() (n int64) {
		for _, end := range p.ends(p.topic) {
			n += end
		}
		return n
	}
	p.eventually("Kafka", p.reachable)
	before := count()
	p.eventually("new records", func() bool { return count() > before })
}

// reachable reports whether Kafka answers.
func (p *project) reachable() bool {
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(p.servers.brokers), kgo.RetryTimeout(time.Second)))(p.t)
	defer client.Close()
	return client.Ping(p.t.Context()) == nil
}

func (p *project) eventually(what string, ok func() bool) {
	p.t.Helper()
	eventually(p.t, composeStart, what, ok)
}

// steer pauses and resumes the stream with the token, and not without it.
func (p *project) steer() {
	p.t.Helper()
	var status struct {
		Version struct {
			Epoch int64 `json:"epoch"`
		} `json:"version"`
	}
	const body = `{"reason":"test"}`
	if code, answer := p.ask("/streams/events/pause", "", body, nil); code != 401 {
		p.t.Errorf("pause without a token: %d %s", code, answer)
	}
	for _, action := range []string{"pause", "resume"} {
		if code, answer := p.ask("/streams/events/"+action, p.token, body, &status); code != 200 {
			p.t.Errorf("%s: %d %s", action, code, answer)
		}
	}
	p.flows()
}

// hangs stops the bridge's process: its container becomes unhealthy until the process goes on.
func (p *project) hangs() {
	p.t.Helper()
	id := p.container("bridge")
	health := func(want string) func() bool {
		return func() bool {
			var state []struct {
				State struct{ Health struct{ Status string } }
			}
			if err := json.Unmarshal([]byte(p.docker("inspect", id)), &state); err != nil || len(state) != 1 {
				p.t.Fatalf("inspect %s: %v", id, err)
			}
			return state[0].State.Health.Status == want
		}
	}
	p.docker("kill", "--signal", "STOP", id)
	p.eventually("an unhealthy bridge", health("unhealthy"))
	p.docker("kill", "--signal", "CONT", id)
	p.eventually("a healthy bridge", health("healthy"))
	p.flows()
}

// audit wants each event that the simulator has now in the topic, once, byte for byte.
func (p *project) audit() {
	p.t.Helper()
	events := make(map[int][]byte)
	p.eachItem("/events", url.Values{}, func(item json.RawMessage) { events[p.index(item)] = item })
	copies := make(map[int]int)
	read := func() {
		clear(copies)
		p.eachRecord(p.topic, func(r *kgo.Record) {
			i := p.index(r.Value)
			if want, ok := events[i]; ok && !bytes.Equal(want, r.Value) {
				p.t.Fatalf("event %d is\n%s\nwant\n%s", i, r.Value, want)
			}
			copies[i]++
		})
	}
	p.eventually("all events in the topic", func() bool {
		read()
		for i := range events {
			if copies[i] == 0 {
				return false
			}
		}
		return true
	})
	for i, n := range copies {
		if n > 1 {
			p.t.Errorf("event %d is in the topic %d times", i, n)
		}
	}
	p.t.Logf("%d events of the simulator are in the topic, each once", len(events))
}

// index returns the index of a simulated event.
func (p *project) index(item []byte) int {
	p.t.Helper()
	i, ok := exportsim.IndexOf(item)
	if !ok {
		p.t.Fatalf("%s is no event of the simulator", item)
	}
	return i
}
