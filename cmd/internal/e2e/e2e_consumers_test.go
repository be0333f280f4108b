//go:build unix

package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
)

// documents are the texts whose code is run, in the order in which a reader
// gives their commands.
var documents = []string{
	"../../../README.md", "../../exportbridge/docs/operations.md", "../../exportbridge/docs/replay-and-backfill.md",
	"../../exportbridge/docs/consuming.md", "../../exportbridge/docs/http-api.md",
	"../../exportbridge/docs/metrics-and-alerts.md", "../../exportbridge/docs/guarantees.md",
	"../../exportbridge/docs/performance.md", "../../exportbridge/docs/permissions.md",
	"../../exportbridge/docs/upgrading.md", "../../exportbridge/docs/many-streams.md",
	"../../exportbridge/docs/questions.md", "../../exportbridge/docs/settings.md",
	"../../exportbridge/docs/other-apis.md", "../../exportbridge/docs/go-library.md",
}

// documentBlocks returns the documents' code of a language.
func documentBlocks(t *testing.T, language string) []string {
	t.Helper()
	var blocks []string
	for _, name := range documents {
		text := must.Get(os.ReadFile(name))(t)
		for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllSubmatch(text, -1) {
			blocks = append(blocks, string(m[1]))
		}
	}
	if len(blocks) == 0 {
		t.Fatalf("the documents have no code in %s", language)
	}
	return blocks
}

// TestDocumentLinks: every page is among those whose code is run, and every link
// to a file of the repository has its file.
func TestDocumentLinks(t *testing.T) {
	t.Parallel()
	pages := must.Get(filepath.Glob("../../exportbridge/docs/*.md"))(t)
	for _, page := range pages {
		if !slices.Contains(documents, page) {
			t.Errorf("the code of %s is not run", page)
		}
	}
	more := must.Get(filepath.Glob("../../../bridge/docs/*.md"))(t)
	links := 0
	for _, name := range slices.Concat(documents, more, []string{"../../../.github/SECURITY.md",
		"../../../.github/CONTRIBUTING.md", "../../../.github/CHANGELOG.md"}) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, m := range regexp.MustCompile(`\]\(([^)#]+)`).FindAllSubmatch(text, -1) {
			target := string(m[1])
			if strings.Contains(target, "://") {
				continue
			}
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), target)); err != nil {
				t.Errorf("%s links to %s: %v", name, target, err)
			}
		}
	}
	if links < 20 {
		t.Errorf("only %d links are found", links)
	}
}

// deduplicates is in the code of the consumer that prints each event once.
const deduplicates = "INSERT OR IGNORE"

// TestE2EConsumers runs the consumers of the documents as they stand there, on a
// topic that also has events that were never committed.
func TestE2EConsumers(t *testing.T) {
	t.Parallel()
	if !servers.Real(t) {
		t.Skip("their clients are made for the real servers")
	}
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: 500})
	s.simulate()
	s.finish()
	s.produceAgain(kgo.TryAbort)
	for _, client := range []struct {
		language string
		command  func(t *testing.T, dir, code string) *exec.Cmd
	}{
		{"java", runJava}, {"python", runPython}, {"go", runGo}, {"sh", runShell},
	} {
		t.Run(client.language, func(t *testing.T) {
			t.Parallel()
			var code string
			for _, block := range documentBlocks(t, client.language) {
				if regexp.MustCompile("(?i)read_?committed").MatchString(block) && !strings.Contains(block, deduplicates) {
					code = block
				}
			}
			s.consume(t, client.language, code, client.command)
		})
	}
}

// TestE2EDeduplicate runs the consumer of the documents that prints each event once, on a topic
// that has one of them twice.
func TestE2EDeduplicate(t *testing.T) {
	t.Parallel()
	if !servers.Real(t) {
		t.Skip("its client is made for the real servers")
	}
	blocks := documentBlocks(t, "python")
	i := slices.IndexFunc(blocks, func(block string) bool { return strings.Contains(block, deduplicates) })
	if i < 0 {
		t.Fatalf("no consumer has %s", deduplicates)
	}
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: 100})
	s.simulate()
	s.finish()
	s.produceAgain(kgo.TryCommit)
	s.consume(t, "deduplicate", blocks[i], runPython)
}

// consume runs the code of a consumer, which prints each event of the stage once.
func (s *stage) consume(t *testing.T, name, code string, command func(t *testing.T, dir, code string) *exec.Cmd) {
	t.Helper()
	n := s.config.Events
	dir := t.TempDir()
	code = strings.NewReplacer("localhost:9092", s.servers.brokers, "export.events", s.topic, "my-service", s.topic+name,
		"events.db", filepath.Join(dir, "events.db")).Replace(code)
	p := &program{t: t, name: name, base: filepath.Join(dir, "out"), cmd: command(t, dir, code), done: make(chan struct{})}
	p.cmd.SysProcAttr = endsWithUs()
	p.start()
	eventually(t, outageTimeout, fmt.Sprint(n, " events"),
		func() bool { return bytes.Count(p.stdout(), []byte("\n")) >= n || !p.running() })
	passes(pollInterval) // what is too much comes now
	p.kill()
	seen := make(map[string]int)
	for line := range bytes.Lines(p.stdout()) {
		i, ok := exportsim.IndexOf(line[bytes.IndexByte(line, '{'):])
		if !ok || !bytes.Contains(line, []byte(exportsim.EventID(s.config.Seed, i))) {
			t.Errorf("it printed %.200s", line)
		}
		seen[exportsim.EventID(s.config.Seed, i)]++
	}
	if len(seen) != n || bytes.Count(p.stdout(), []byte("\n")) != n {
		t.Errorf("it printed %d lines of %d events, want %d\n%s", bytes.Count(p.stdout(), []byte("\n")), len(seen), n,
			tail(p.stderr()))
	}
}

// produceAgain produces an event that the topic already has, and ends its transaction.
func (s *stage) produceAgain(end kgo.TransactionEndTry) {
	s.t.Helper()
	client := servers.Client(s.t, s.servers.brokers, kgo.TransactionalID(s.topic+".again"),
		kgo.DefaultProduceTopic(s.topic))
	must.Do(s.t, client.BeginTransaction())
	id := exportsim.EventID(s.config.Seed, 0)
	record := &kgo.Record{Value: s.truth.Event(0), Headers: []kgo.RecordHeader{
		{Key: "ce_id", Value: []byte(id)}, {Key: "ce_source", Value: []byte(s.recordsByID()[id][0].source)}}}
	must.Do(s.t, client.ProduceSync(s.t.Context(), record).FirstErr())
	must.Do(s.t, client.EndTransaction(s.t.Context(), end))
}

// tool returns the path of a program. One that a variable names must be there.
func tool(t *testing.T, variable, name string) string {
	t.Helper()
	if path := os.Getenv(variable); path != "" {
		return path
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	return path
}

func write(t *testing.T, name, text string) {
	t.Helper()
	must.Do(t, os.WriteFile(name, []byte(text), 0o600))
}

func runJava(t *testing.T, dir, code string) *exec.Cmd {
	t.Helper()
	compiler := tool(t, "TEST_JAVAC", "javac")
	jars := must.Get(servers.KafkaJars(t.Context()))(t)
	write(t, filepath.Join(dir, "Consume.java"), code)
	path := filepath.Join(jars, "*")
	if out, err := exec.CommandContext(t.Context(), compiler, "-cp", path, "-d", dir,
		filepath.Join(dir, "Consume.java")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return exec.Command(filepath.Join(filepath.Dir(compiler), "java"), "-cp", path+":"+dir, "Consume")
}

func runPython(t *testing.T, dir, code string) *exec.Cmd {
	t.Helper()
	python := tool(t, "TEST_PYTHON", "python3")
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import confluent_kafka").CombinedOutput(); err != nil {
		if os.Getenv("TEST_PYTHON") == "" {
			t.Skip("confluent-kafka is not installed")
		}
		t.Fatalf("%v\n%s", err, out)
	}
	write(t, filepath.Join(dir, "consume.py"), code)
	return exec.Command(python, filepath.Join(dir, "consume.py"))
}

func runGo(t *testing.T, dir, code string) *exec.Cmd {
	t.Helper()
	write(t, filepath.Join(dir, "main.go"), code)
	built := filepath.Join(dir, "consume")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", built,
		filepath.Join(dir, "main.go")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return exec.Command(built)
}

func runShell(t *testing.T, _, code string) *exec.Cmd {
	t.Helper()
	tool(t, "", "kcat")
	return exec.Command("sh", "-c", "exec "+code)
}
