package e2e_test

import (
	"debug/elf"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cmd/internal/config"
)

// instruction is one line of a Dockerfile.
type instruction struct {
	name  string
	flags map[string]string // --from=build; the last one of a name
	text  string            // what follows the flags
}

// exec returns the arguments of an instruction in exec form, nil if it is in
// shell form.
func (i instruction) exec() []string {
	var args []string
	if json.Unmarshal([]byte(i.text), &args) != nil {
		return nil
	}
	return args
}

var dockerFlag = regexp.MustCompile(`^--([a-z]+)=(\S+)\s+`)

// parseDockerfile returns the stages of a Dockerfile. It takes no more of the
// language than we use.
func parseDockerfile(t *testing.T, text string) [][]instruction {
	t.Helper()
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			lines = append(lines, line)
		}
	}
	known := []string{"FROM", "ARG", "WORKDIR", "COPY", "RUN", "LABEL", "USER", "ENV", "EXPOSE", "ENTRYPOINT", "CMD"}
	var stages [][]instruction
	for line := range strings.SplitSeq(strings.ReplaceAll(strings.Join(lines, "\n"), "\\\n", " "), "\n") {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "" {
			continue
		}
		if !slices.Contains(known, name) {
			t.Fatalf("the Dockerfile has an instruction that the test does not know: %q", line)
		}
		i := instruction{name: name, flags: make(map[string]string), text: strings.TrimSpace(rest)}
		for m := dockerFlag.FindStringSubmatch(i.text); m != nil; m = dockerFlag.FindStringSubmatch(i.text) {
			i.flags[m[1]] = m[2]
			i.text = i.text[len(m[0]):]
		}
		if name == "FROM" {
			stages = append(stages, nil)
		} else if stages == nil {
			t.Fatalf("%s before FROM", name)
		}
		stages[len(stages)-1] = append(stages[len(stages)-1], i)
	}
	return stages
}

// readDockerfile returns the stages: what the two programs are built from, and
// of each the one that builds it and the one that runs it.
func readDockerfile(t *testing.T) (source, buildDev, dev, build, final []instruction) {
	t.Helper()
	text := must.Get(os.ReadFile("../../exportbridge/Dockerfile"))(t)
	stages := parseDockerfile(t, string(text))
	var names []string
	for _, stage := range stages {
		_, name, _ := strings.Cut(stage[0].text, " AS ")
		names = append(names, name)
	}
	if want := []string{"source", "build-dev", "dev", "build", ""}; !slices.Equal(names, want) {
		t.Fatalf("the stages of the Dockerfile are %q, want %q", names, want)
	}
	return stages[0], stages[1], stages[2], stages[3], stages[4]
}

// TestImage: what runs in production is our program and nothing else.
func TestImage(t *testing.T) {
	t.Parallel()
	source, buildDev, dev, build, final := readDockerfile(t)
	if got := source[0].text; !strings.HasPrefix(got, "golang:1.26-") {
		t.Errorf("built from %q, want the Go of go.mod", got)
	}
	for _, stage := range [][]instruction{buildDev, build} {
		if got := stage[0].text; !strings.HasPrefix(got, "source AS ") {
			t.Errorf("built from %q, want source", got)
		}
	}
	if got := dev[0].text; got != final[0].text+" AS dev" {
		t.Errorf("the image for development begins with %q, want %s", got, final[0].text)
	}
	if got := final[0].text; !strings.Contains(got, "/static-") || !strings.HasSuffix(got, ":nonroot") {
		t.Errorf("the image begins with %q, want one that is static and not root's", got)
	}
	found := make(map[string]instruction)
	for _, i := range final {
		found[i.name] = i
		switch {
		case i.name == "RUN":
			t.Errorf("there is no shell for RUN %s", i.text)
		case i.name == "COPY" && i.flags["from"] != "build":
			t.Errorf("COPY %s is not from the build", i.text)
		}
	}
	if got := found["USER"].text; !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(got) {
		t.Errorf("USER %s, want the number of somebody who is not root", got)
	}
	if got := found["ENTRYPOINT"].exec(); !slices.Equal(got, []string{"/exportbridge"}) {
		t.Errorf("ENTRYPOINT %s", found["ENTRYPOINT"].text)
	}
	if got := found["CMD"].exec(); !slices.Equal(got, []string{"run"}) {
		t.Errorf("CMD %s", found["CMD"].text)
	}
	name, _, _ := strings.Cut(found["ENV"].text, "=")
	if !slices.ContainsFunc(config.Variables(), func(v config.Variable) bool { return v.Name == name }) {
		t.Errorf("ENV %s is no setting", name)
	}
	for _, label := range []string{"title", "description", "licenses", "version", "revision"} {
		if !strings.Contains(found["LABEL"].text, "org.opencontainers.image."+label+"=") {
			t.Errorf("the image has no label %s", label)
		}
	}
}

// TestImageBuilds does on this machine what the Dockerfile does in a container:
// it copies what is copied, runs what is run, and looks at what comes out.
func TestImageBuilds(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("windows has no sh")
	}
	source, buildDev, dev, build, final := readDockerfile(t)
	for name, test := range map[string]struct{ build, final []instruction }{
		"exportbridge":     {build, final},
		"exportbridge-dev": {buildDev, dev},
	} {
		out := buildImage(t, slices.Concat(source[1:], test.build[1:]), test.final)
		for _, file := range []string{"LICENSE", "THIRD_PARTY_NOTICES.txt"} {
			if _, err := os.Stat(filepath.Join(out, "licenses", file)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		binary := filepath.Join(out, name)
		wantStatic(t, binary)
		if runtime.GOOS != "linux" {
			continue
		}
		want := name + " v1.2.3 of abc123 (go"
		said, err := exec.Command(binary, "version").Output()
		if err != nil || !strings.HasPrefix(string(said), want) {
			t.Errorf("version: %q, %v", said, err)
		}
	}
}

// buildImage does what the stages say, and returns the folder that the image is
// filled from.
func buildImage(t *testing.T, build, final []instruction) string {
	t.Helper()
	src, out := t.TempDir(), t.TempDir()
	env := map[string]string{"TARGETOS": "linux", "TARGETARCH": runtime.GOARCH, "REVISION": "abc123", "VERSION": "v1.2.3"}
	for _, i := range build {
		switch i.name {
		case "ARG":
			if name, _, _ := strings.Cut(i.text, "="); env[name] == "" {
				t.Errorf("nobody gives ARG %s", name)
			}
		case "COPY":
			args := strings.Fields(i.text)
			for _, file := range args[:len(args)-1] {
				copyTo(t, filepath.Join("../../..", file), filepath.Join(src, args[len(args)-1]))
			}
		case "RUN":
			sh(t, src, strings.ReplaceAll(i.text, "/out/", out+"/"), env)
		}
	}
	for _, i := range final {
		if i.name == "COPY" {
			from, _, _ := strings.Cut(i.text, " ")
			if _, err := os.Stat(out + strings.TrimPrefix(from, "/out")); err != nil {
				t.Errorf("COPY %s: %v", i.text, err)
			}
		}
	}
	return out
}

// copyTo copies a file into a directory, or a directory to its new place.
func copyTo(t *testing.T, from, to string) {
	t.Helper()
	if must.Get(os.Stat(from))(t).IsDir() {
		must.Do(t, os.CopyFS(to, os.DirFS(from)))
		return
	}
	must.Do(t, os.WriteFile(filepath.Join(to, filepath.Base(from)), must.Get(os.ReadFile(from))(t), 0o600))
}

// noProfile is the flag for a build without the profile, with which everything is compiled
// anew. It is empty if TEST_PROFILE says that make build did that before.
func noProfile() string {
	if os.Getenv("TEST_PROFILE") == "1" {
		return ""
	}
	return "-pgo=off"
}

// sh runs a command of a Dockerfile.
func sh(t *testing.T, dir, command string, env map[string]string) {
	t.Helper()
	off := noProfile()
	if off != "" {
		command = strings.ReplaceAll(command, "-pgo=cmd/exportbridge/default.pgo", off)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS="+off, "GOWORK=off")
	for _, name := range slices.Sorted(maps.Keys(env)) {
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%s", name, env[name]))
	}
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, said)
	}
}

// wantStatic wants a program that needs no library and no loader.
func wantStatic(t *testing.T, path string) {
	t.Helper()
	file := must.Get(elf.Open(path))(t)
	defer file.Close()
	libraries, err := file.ImportedLibraries()
	if err != nil || len(libraries) > 0 {
		t.Errorf("the program needs %v: %v", libraries, err)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the program needs a loader")
		}
	}
}
