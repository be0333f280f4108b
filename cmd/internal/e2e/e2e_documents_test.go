//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/control"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/bridge/ops"
)

// documentCodes are the exit codes of the documents' commands that are about
// something which this test's stream does not have.
var documentCodes = map[string]int{
	"exportbridge cursor rewind --shift-by -100": 1,
	// not so many pages
	`exportbridge cursor rewind --to-datetime -2h --reason "bad deploy" --execute`:                      1, // not so old
	"exportbridge backfill --from 2026-01-01T00:00:00Z --to 2026-11-01T00:00:00Z --windows 8 --execute": 1,
	// the stream's own
	"exportbridge attest --from -7d":                                            1,
	"exportbridge attest --from 2026-11-01 --to 2026-11-02 --verify":            1,
	"exportbridge backfill --resume k3xq7a --execute":                           1,
	"exportbridge backfill cancel k3xq7a --execute":                             1,
	"exportbridge backfill pause k3xq7a --execute":                              1,
	"exportbridge backfill resume k3xq7a --execute":                             1,
	"exportbridge backfill watch k3xq7a":                                        1,
	"exportbridge dlq show 0:17":                                                1,
	`exportbridge pause --match 'acme-*' --reason "vendor migration" --execute`: 2,
	"exportbridge dlq retry 0:17 2:4":                                           1,
}

// documentFiles are the files that the documents' commands write and read.
var documentFiles = []string{"events.cursor", "exportbridge.rules.yml", "exportbridge.json", "asyncapi.yaml",
	"events.schema.json"}

// TestDocumentCommands gives the commands of the documents, in their order, to a
// stream that runs.
func TestDocumentCommands(t *testing.T) {
	t.Parallel()
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: 300, Start: time.Now().Add(-36 * time.Hour)})
	s.settings["EXPORT_PAGE_SIZE"] = "100"
	s.simulate()
	docs := s.start("config", "docs")
	docs.wait(stepTimeout)
	given, known := make(map[string]struct{}), string(docs.stdout())
	for _, block := range documentBlocks(t, "sh") {
		for line := range strings.Lines(block) {
			line, _, _ = strings.Cut(line, "   #")
			line, _, _ = strings.Cut(strings.TrimSpace(line), "  #")
			args, ok := strings.CutPrefix(line, "exportbridge ")
			if name, ok := strings.CutPrefix(line, "export "); ok {
				name, _, _ = strings.Cut(name, "=")
				if !strings.Contains(known, "| `"+strings.TrimSuffix(name, "_FILE")+"` ") {
					s.t.Errorf("%s: there is no such setting", line)
				}
			}
			if _, before := given[line]; !ok || before || strings.HasPrefix(args,
				"bench") { // which takes minutes, and has tests of its own
				continue
			}
			given[line] = struct{}{}
			s.give(strings.TrimSpace(line), words(args))
		}
	}
	for _, block := range documentBlocks(t, "ini") {
		for line := range strings.Lines(block) {
			if name, _, _ := strings.Cut(line, "="); !strings.Contains(known, "| `"+strings.TrimSuffix(name, "_FILE")+"` ") {
				t.Errorf("%s: there is no such setting", line)
			}
		}
	}
	if len(given) < 20 {
		t.Errorf("only %d commands are found", len(given))
	}
}

// words splits a command line at its spaces, but for what is quoted.
func words(line string) []string {
	var all []string
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			all = append(all, part)
			continue
		}
		all = append(all, strings.Fields(part)...)
	}
	return all
}

// give runs one command. Those that do not end go on beside the others, or are
// interrupted when they have said something.
func (s *stage) give(line string, args []string) {
	s.t.Helper()
	for i, arg := range args {
		value := strings.LastIndexByte(arg, '=') + 1
		if slices.Contains(documentFiles, arg[value:]) {
			args[i] = arg[:value] + filepath.Join(s.dir, arg[value:])
		}
	}
	switch {
	case args[0] == "run":
		run := s.run()
		eventually(s.t, stepTimeout, "the stock", func() bool { return run.published() >= s.config.Events })
		return
	case args[0] == "verify": // of what the moves before it let the stream publish again
		eventually(s.t, stepTimeout, "the end of the export", func() bool {
			c := s.checkpoint()
			return c.Drained && c.PositionTime > 0
		})
	case len(args) > 1 && args[1] == "--watch":
		p := s.start(args...)
		eventually(s.t, stepTimeout, "a status", func() bool { return len(p.stdout()) > 0 })
		p.signal(syscall.SIGINT)
		p.wait(stepTimeout)
		return
	}
	p := s.start(args...)
	if code, want := p.wait(time.Minute), documentCodes[line]; code != want {
		s.t.Errorf("%s: exit code %d, want %d\n%s", line, code, want, tail(p.stderr()))
	}
}

// documentBlock returns the documents' shell commands that begin with a line.
func documentBlock(t *testing.T, first string) string {
	t.Helper()
	for _, block := range documentBlocks(t, "sh") {
		if strings.HasPrefix(block, first) {
			return block
		}
	}
	t.Fatalf("the documents have no commands that begin with %q", first)
	return ""
}

// shell gives commands to a shell, which ends at the first that fails.
func shell(t *testing.T, dir, commands string, environ ...string) []byte {
	t.Helper()
	cmd := exec.Command(tool(t, "", "bash"), "-euo", "pipefail", "-c", commands)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), environ...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s%s", err, commands, tail(out), tail(said.Bytes()))
	}
	return out
}

// TestDocumentHTTP gives the documents' requests to a stream that has a token.
func TestDocumentHTTP(t *testing.T) {
	t.Parallel()
	tool(t, "", "curl")
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: 300})
	s.settings["EXPORT_PAGE_SIZE"] = "1"
	s.lock()
	s.simulate()
	s.run()
	s.awaitPublished(300)
	commands := strings.ReplaceAll(documentBlock(t, "curl "), "localhost:8080", s.ops)
	// The epoch is that of the plan, as the text says.
	commands = regexp.MustCompile(`"base_epoch": \d+`).ReplaceAllString(commands, `"base_epoch": 0`)
	answers := json.NewDecoder(bytes.NewReader(shell(t, s.dir, commands, "TOKEN="+adminToken)))
	var status []map[string]any
	var plan control.Plan
	var done ops.Done
	for _, into := range []any{&status, &plan, &done} {
		if err := answers.Decode(into); err != nil {
			t.Fatalf("no answer like %T: %v", into, err)
		}
	}
	if len(status) != 1 || plan.Repeats.Pages < 100 || !done.Applied || done.Epoch != 1 {
		t.Errorf("status %v, plan %+v, done %+v", status, plan, done)
	}

	// The job's id and hash are those of its plan. A replay overlaps with nothing.
	commands = strings.ReplaceAll(strings.ReplaceAll(documentBlock(t, "JOB="), "localhost:8080", s.ops), `"backfill"`,
		`"replay"`)
	const token = "TOKEN=" + adminToken
	before, _, _ := strings.Cut(commands, "execute")
	second := strings.LastIndex(before, "curl ")
	var planned, begun, cancelled httpJob
	decode(t, shell(t, s.dir, commands[:second], token), &planned)
	commands = strings.ReplaceAll(regexp.MustCompile(`[0-9a-f]{16}`).ReplaceAllString(commands, planned.PlanHash),
		"k3xq7a", planned.ID)
	commands = strings.Replace(commands, commands[strings.Index(commands, "curl "):second], "", 1)
	said := shell(t, s.dir, commands, token)
	answers = json.NewDecoder(bytes.NewReader(said))
	var all struct{ Jobs []httpJob }
	for _, into := range []any{&begun, &all, &cancelled} {
		if err := answers.Decode(into); err != nil {
			t.Fatalf("no answer like %T: %v", into, err)
		}
	}
	// It may be done before it is cancelled.
	if planned.State != "planned" || begun.State != "running" || begun.ID != planned.ID || len(all.Jobs) != 1 ||
		cancelled.State != "cancelled" && cancelled.ID != "" {
		t.Errorf("plan %+v, begun %+v, list %+v, cancelled %+v\n%s", planned, begun, all, cancelled, said)
	}
}

// TestReadmeInstall runs the README's commands for systemd and Kubernetes in a
// copy of this directory, with sudo as somebody whose root is a folder and a
// kubectl that has no cluster.
func TestReadmeInstall(t *testing.T) {
	t.Parallel()
	tree, root, tools := t.TempDir(), t.TempDir(), t.TempDir()
	put := func(path, content string, mode os.FileMode) {
		t.Helper()
		must.Do(t, os.WriteFile(path, []byte(content), mode))
	}
	read := func(path string) string {
		t.Helper()
		content := must.Get(os.ReadFile(filepath.Join(root, path)))(t)
		return string(content)
	}
	for _, name := range []string{"Makefile", "go.mod", "go.sum"} {
		content := must.Get(os.ReadFile("../../../" + name))(t)
		put(filepath.Join(tree, name), string(content), 0o600)
	}
	for _, dir := range []string{"bridge", "cursorstore", "cmd"} {
		must.Do(t, os.CopyFS(filepath.Join(tree, dir), os.DirFS("../../../"+dir)))
	}
	for _, dir := range []string{"usr/local/bin", "etc/systemd/system"} { // every machine has them
		must.Do(t, os.MkdirAll(filepath.Join(root, dir), 0o700))
	}
	put(filepath.Join(tree, "api-key"), "sesame\n", 0o600)
	put(filepath.Join(tools, "sudo"), "#!/usr/bin/env bash\nexec \"${@/#\\//$ROOT/}\"\n", 0o700)
	put(filepath.Join(tools, "systemctl"), "#!/usr/bin/env bash\necho \"$@\" >>\"$ROOT/systemctl\"\n", 0o700)
	put(filepath.Join(tools, "kubectl"), `#!/usr/bin/env bash
set -e
for arg; do
  case $arg in
    --from-file=*) test -s "${arg#*=}" ;;
    cmd/*) test -s "$arg/kustomization.yaml" ;;
  esac
done
echo "$1 $2 $3" >>"$ROOT/kubectl"
`, 0o700)
	environ := []string{"ROOT=" + root, "PATH=" + tools + ":" + os.Getenv("PATH"), "GOFLAGS=" + noProfile()}
	shell(t, tree, documentBlock(t, "openssl "), environ...)
	if asked := read("kubectl"); asked != "create secret generic\napply -k cmd/exportbridge/deploy/kubernetes\n" {
		t.Errorf("kubectl is asked for %q", asked)
	}

	printed := shell(t, tree, documentBlock(t, "make build"), environ...)

	for path, mode := range map[string]os.FileMode{
		"usr/local/bin/exportbridge": 0o755, "etc/exportbridge/api-key": 0o600,
		"etc/systemd/system/exportbridge.service": 0o644,
	} {
		if info, err := os.Stat(filepath.Join(root, path)); err != nil || info.Mode() != mode {
			t.Errorf("%s is not installed as %s: %v", path, mode, err)
		}
	}
	if asked := read("systemctl"); asked != "daemon-reload\nenable --now exportbridge\n" {
		t.Errorf("systemd is asked for %q", asked)
	}
	settings := read("etc/exportbridge/exportbridge.env")
	if settings == "" || !strings.HasSuffix(string(printed), settings) {
		t.Errorf("the settings are not those that were printed:\n%s", settings)
	}
	shell(t, root, "while read -r line; do [[ $line = [A-Z]* ]] && export \"$line\"; done "+
		"<etc/exportbridge/exportbridge.env"+
		"; EXPORT_API_KEY_FILE=etc/exportbridge/api-key usr/local/bin/exportbridge config show")
}
