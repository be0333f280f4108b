//go:build unix

package e2e_test

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/rules"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
)

// The end-to-end tests run the program as its users do: simulate and run are
// processes of their own, Kafka and Redis are servers, and an independent
// consumer compares the topic with what the simulator serves. They are small
// by default, medium with TEST_REAL=1, and any size by hand:
//
//	TEST_REAL=1 E2E_EVENTS=1000000 go test -run TestE2EMillion -v ./cmd/internal/e2e
//	TEST_REAL=1 E2E_KILLS=500 go test -run TestE2EProofCrashes -timeout 3h -v ./cmd/internal/e2e
//	TEST_REAL=1 E2E_MINUTES=10 go test -run TestE2EContracts -timeout 30m -v ./cmd/internal/e2e
//
// E2E_SEED repeats the moments of a run with kills.

const (
	// stepTimeout bounds what must happen soon, on a loaded machine too: only a test
	// that fails waits that long. outageTimeout covers the restart of a broker that
	// was killed.
	stepTimeout   = 2 * time.Minute
	outageTimeout = 3 * time.Minute
	pollInterval  = 20 * time.Millisecond

	// maxMemory is what a bridge may use at most, in bytes.
	maxMemory = 128 << 20
)

// size returns the number in an environment variable, else the default of a
// run on embedded or on real servers.
func size(t *testing.T, name string, small, medium float64) float64 {
	t.Helper()
	text := os.Getenv(name)
	switch {
	case text != "":
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || n <= 0 {
			t.Fatalf("%s is %q, want a number above 0", name, text)
		}
		return n
	case servers.Real(t):
		return medium
	default:
		return small
	}
}

// build, buildProof and buildBroken build the program once, as users have it, with the
// crash points, and with the patches that take rules away too; buildDev builds the one
// with the simulator. Their folder is the one of the scripts' commands, which lasts as
// long as the test run.
var (
	build       = sync.OnceValues(func() (string, error) { return buildWith("exportbridge", "") })
	buildProof  = sync.OnceValues(func() (string, error) { return buildWith("exportbridge", "proof", "-tags", "proof") })
	buildBroken = sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "exportbridge-patched")
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(dir)
		overlay, err := rules.Overlay(dir)
		if err != nil {
			return "", err
		}
		return buildWith("exportbridge", "broken", "-tags", "proof", "-overlay", overlay)
	})
	buildDev = sync.OnceValues(func() (string, error) { return buildWith("exportbridge-dev", "") })
)

func buildWith(name, kind string, flags ...string) (string, error) {
	command, err := exec.LookPath("exportbridge")
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(command), name+"-built"+kind)
	args := slices.Concat([]string{"build", "-pgo=off", "-ldflags", "-s -w", "-o", path}, flags,
		[]string{"exportbridge/cmd/" + name})
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return path, nil
}

// stage is a simulator, a topic and the settings of the bridge between them.
type stage struct {
	t       *testing.T
	servers *backends
	binary  string
	dir     string // output of all processes
	started int    // processes so far

	config exportsim.Config // of the simulator
	truth  *exportsim.Handler
	sim    *program
	api    string // URL of the simulator, once it has run

	topic    string
	ops      string // address of the running bridge's HTTP server
	settings map[string]string
	store    *redis.Client // only for tests that look into Redis
	private  *redactions   // nil where records are the bytes of the events
}

var stages atomic.Int64

// newStage prepares a stage with a topic and keys of its own. The simulated
// events are two days old, the same in every process.
func newStage(t *testing.T, v *backends, config exportsim.Config) *stage {
	t.Helper()
	return stageOf(t, build, v, config)
}

// stageOf prepares a stage whose program is another build.
func stageOf(t *testing.T, build func() (string, error), v *backends, config exportsim.Config) *stage {
	t.Helper()
	binary := must.Get(build())(t)
	if config.Start.IsZero() {
		config.Start = time.Now().Add(-48 * time.Hour).Truncate(time.Second)
	}
	if config.Seed == 0 {
		config.Seed = 7
	}
	truth := must.Get(exportsim.New(config))(t)
	name := fmt.Sprintf("e2e-%d-%d", os.Getpid(), stages.Add(1))
	s := &stage{
		t: t, servers: v, binary: binary, dir: t.TempDir(), config: config, truth: truth,
		topic: name, ops: servers.FreeAddress(t),
	}
	s.settings = map[string]string{
		"EXPORT_API_KEY": "any", "KAFKA_BROKERS": cmp.Or(v.proxied, v.brokers), "KAFKA_TOPIC": name,
		"KAFKA_CREATE_TOPICS": "true",
		"KAFKA_PARTITIONS":    "3", "REDIS_URL": v.redisURL, "CURSOR_PREFIX": name, "HTTP_ADDR": s.ops,
		// Of its own, as the topic is: stages share the servers. With an
		// instance id the next process need not wait until the last is missed.
		"KAFKA_CHECKPOINT_TOPIC": name + ".checkpoints", "BRIDGE_GROUP": name, "BRIDGE_INSTANCE_ID": "e2e",
		"KAFKA_DELIVERY": string(bridge.ExactlyOnce),
	}
	t.Cleanup(func() {
		if t.Failed() {
			s.logOutput()
		}
	})
	return s
}

// deliver chooses the guarantee. A stage begins in exactly-once mode.
func (s *stage) deliver(mode bridge.Mode) { s.settings["KAFKA_DELIVERY"] = string(mode) }

// copies returns how many copies are allowed where at-least-once mode would allow n.
func (s *stage) copies(n int) int {
	if s.settings["KAFKA_DELIVERY"] == string(bridge.ExactlyOnce) {
		return 0
	}
	return n
}

// logOutput shows the end of what every process said.
func (s *stage) logOutput() {
	const last = 1500
	s.eachOutput(func(name string, content []byte) {
		s.t.Logf("%s ends with\n%s", name, content[max(0, len(content)-last):])
	})
}

// eachOutput reads the files with the processes' output.
func (s *stage) eachOutput(visit func(name string, content []byte)) {
	s.t.Helper()
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err == nil {
			visit(d.Name(), content)
		}
		return err
	})
	if err != nil {
		s.t.Errorf("read the output: %v", err)
	}
}

// simulate starts the simulator, at the address that it had before if it ran.
func (s *stage) simulate(extra ...string) {
	s.t.Helper()
	listen := strings.TrimPrefix(s.api, "http://")
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	c := s.config
	args := []string{
		"simulate", "--listen", listen, "--events", strconv.Itoa(c.Events), "--seed", strconv.FormatUint(c.Seed, 10),
		"--start", c.Start.UTC().Format(time.RFC3339Nano), "--latency", c.Latency.String(),
		"--rate", strconv.FormatFloat(c.Rate, 'f', -1, 64) + "/s",
	}
	if c.EndOfResults != "" {
		args = append(args, "--end-of-results", string(c.EndOfResults))
	}
	if c.APIKey != "" {
		args = append(args, "--api-key", c.APIKey)
	}
	s.sim = s.startDev(append(args, extra...)...)
	eventually(s.t, stepTimeout, "the simulator's address", func() bool {
		fields := strings.Fields(string(s.sim.stdout()))
		if len(fields) > 2 {
			s.api = fields[2]
		}
		return len(fields) > 2
	})
	s.settings["EXPORT_URL"] = s.api
}

// run starts a bridge.
func (s *stage) run(args ...string) *program {
	s.t.Helper()
	return s.start(append([]string{"run"}, args...)...)
}

// finish runs the bridge until the export is drained.
func (s *stage) finish() {
	s.t.Helper()
	s.run("--once").wantExit(0, 10*time.Minute)
}

// start starts the program with the stage's settings and nothing else in its
// environment.
func (s *stage) start(args ...string) *program {
	s.t.Helper()
	return s.startBinary(s.binary, args...)
}

// startDev is start of the program that has the simulator and the demo.
func (s *stage) startDev(args ...string) *program {
	s.t.Helper()
	binary := must.Get(buildDev())(s.t)
	return s.startBinary(binary, args...)
}

func (s *stage) startBinary(binary string, args ...string) *program {
	s.t.Helper()
	s.started++
	p := &program{
		t: s.t, ops: s.settings["HTTP_ADDR"], name: fmt.Sprintf("%03d-%s", s.started, args[0]),
		base: filepath.Join(s.dir, fmt.Sprintf("%03d-%s", s.started, args[0])),
		done: make(chan struct{}),
	}
	p.cmd = exec.Command(binary, args...)
	p.cmd.SysProcAttr = endsWithUs()
	p.cmd.Env = []string{"HOME=" + s.dir}
	for _, name := range slices.Sorted(maps.Keys(s.settings)) {
		p.cmd.Env = append(p.cmd.Env, name+"="+s.settings[name])
	}
	p.start()
	return p
}

// program is a process of ours.
type program struct {
	t    *testing.T
	name string
	base string // path of its output, without .out and .err
	ops  string // address of its HTTP server, if it has one
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

func (p *program) start() {
	p.t.Helper()
	out := must.Get(os.Create(p.base + ".out"))(p.t)
	errs := must.Get(os.Create(p.base + ".err"))(p.t)
	p.cmd.Stdout, p.cmd.Stderr = out, errs
	started := make(chan error, 1)
	// The system ends the child with the thread that started it, so that a
	// test that is killed leaves nothing behind: the thread waits for it.
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		defer errs.Close()
		defer out.Close()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.cmd.Wait() // how it ended is in ProcessState
		}
	}()
	if err := <-started; err != nil {
		<-p.done
		p.t.Fatalf("start %s: %v", p.name, err)
	}
	p.t.Cleanup(func() { p.kill() })
}

func (p *program) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %s: %v", p.name, err)
	}
}

// kill ends the process with SIGKILL, if it runs, and waits for that.
func (p *program) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// stop ends the process with SIGTERM and wants exit code 0. It returns how
// long that took.
func (p *program) stop() time.Duration {
	p.t.Helper()
	asked := time.Now()
	p.signal(syscall.SIGTERM)
	p.wantExit(0, stepTimeout)
	return time.Since(asked)
}

func (p *program) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// wait waits for the end of the process and returns its exit code.
func (p *program) wait(timeout time.Duration) int {
	p.t.Helper()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.t.Fatalf("%s did not end within %s", p.name, timeout)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *program) wantExit(code int, timeout time.Duration) {
	p.t.Helper()
	if got := p.wait(timeout); got != code {
		p.t.Fatalf("%s %v: exit code %d, want %d\n%s", p.name, p.cmd.Args[1:], got, code, tail(p.stderr()))
	}
}

func (p *program) stdout() []byte { return p.output(".out") }
func (p *program) stderr() []byte { return p.output(".err") }

func (p *program) output(suffix string) []byte {
	p.t.Helper()
	content, err := os.ReadFile(p.base + suffix)
	if err != nil {
		p.t.Errorf("read the output of %s: %v", p.name, err)
	}
	return content
}

func tail(output []byte) []byte {
	const last = 1000
	return output[max(0, len(output)-last):]
}

// running has a place for each case that runs beside others.
var running = make(chan struct{}, 8)

// each runs a subtest for each of the cases: in turn, or several at once
// whatever -parallel says, for tests that wait more than they work.
func each[T any](t *testing.T, inTurn bool, cases []T, test func(*testing.T, T)) {
	t.Helper()
	var all sync.WaitGroup
	for _, c := range cases {
		run := func() { t.Run(fmt.Sprint(c), func(t *testing.T) { test(t, c) }) }
		if inTurn {
			run()
			continue
		}
		all.Go(func() {
			running <- struct{}{}
			defer func() { <-running }()
			run()
		})
	}
	all.Wait()
}

// inEachMode runs a test in both modes of delivery, on the same servers; on real ones in turn.
func inEachMode(t *testing.T, test func(t *testing.T, v *backends, mode bridge.Mode)) {
	t.Helper()
	v := startServers(t, owned{})
	each(t, servers.Real(t), []bridge.Mode{bridge.ExactlyOnce, bridge.AtLeastOnce},
		func(t *testing.T, mode bridge.Mode) { test(t, v, mode) })
}

// eventually waits until ok returns true. It asks less often the longer it
// waits: each answer takes the processor from what it waits for.
func eventually(t *testing.T, timeout time.Duration, what string, ok func() bool) {
	t.Helper()
	began := time.Now()
	for !ok() {
		waited := time.Since(began)
		if waited > timeout {
			t.Fatalf("waited %s in vain for %s", timeout, what)
		}
		passes(min(max(waited/10, pollInterval), 25*pollInterval))
	}
}

// passes waits for a length of time that is part of what is tested.
func passes(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}
