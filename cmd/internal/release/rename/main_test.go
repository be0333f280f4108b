package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"exportbridge/bridge/bridgetest/must"
)

const renamed = "example.org/Team/exportbridge"

// TestRename: a renamed copy builds and tests, and another module gets it from a proxy.
func TestRename(t *testing.T) {
	t.Parallel()
	tree := t.TempDir()
	for _, name := range []string{"bridge", "cursorstore", "cmd", "go.mod", "go.sum", "Makefile", "README.md",
		".golangci.yml", "docker-compose.yml", "LICENSE"} {
		from := filepath.Join("../../../..", name)
		info, err := os.Stat(from)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			err = os.CopyFS(filepath.Join(tree, name), os.DirFS(from))
		} else {
			err = os.WriteFile(filepath.Join(tree, name), read(t, from), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	must.Do(t, rename(tree, renamed, ""))
	wantRenamed(t, tree)
	run(t, tree, nil, "go", "list", "-test", "-pgo=off", "-deps", "./...")
	run(t, filepath.Join(tree, "cmd/internal/release"), nil, "go", "list", "-deps", "./...")
	run(t, tree, nil, "go", "vet", "-pgo=off", "./bridge", "./bridge/engine", "./bridge/kafkaclient")
	run(t, tree, nil, "go", "test", "-pgo=off", "-count=1", "./bridge", "./bridge/engine/position",
		"./bridge/bridgetest/rules")
	if diff := run(t, tree, nil, "gofmt", "-l", "."); diff != "" {
		t.Errorf("gofmt would change:\n%s", diff)
	}
	consume(t, tree)
	if err := rename(tree, "exportbridge", "exportbridge"); err == nil {
		t.Error("a path that no proxy serves is accepted")
	}
	if err := rename(tree, "example.org/again", ""); err != nil || !bytes.Contains(read(t, filepath.Join(tree, "go.mod")),
		[]byte("module example.org/again\n")) ||
		!bytes.Contains(read(t, filepath.Join(tree, "cmd/exportbridge/deploy/helm/values.yaml")),
			[]byte("repository: example.org/again\n")) {
		t.Errorf("renamed again: %v", err)
	}
}

// wantRenamed checks the texts.
func wantRenamed(t *testing.T, tree string) {
	t.Helper()
	old := paths(modfile.ModulePath(read(t, "../../../../go.mod")))
	must.Do(t, filepath.WalkDir(tree, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if found := old.Find(read(t, path)); found != nil {
			t.Errorf("%s still has %q", path, found)
		}
		return nil
	}))
	for file, want := range map[string]string{
		"README.md":                   "```sh\ngo get " + renamed + "/bridge\n",
		"Makefile":                    "\nIMAGE     ?= example.org/team/exportbridge\n",
		".golangci.yml":               "- pkg: " + renamed + "\n",
		"cmd/internal/release/go.mod": "\nreplace " + renamed + " => ",
		"cmd/exportbridge/deploy/helm/values.yaml":              "repository: example.org/team/exportbridge\n",
		"cmd/exportbridge/deploy/kubernetes/kustomization.yaml": "newName: example.org/team/exportbridge\n",
	} {
		if !strings.Contains(string(read(t, filepath.Join(tree, file))), want) {
			t.Errorf("%s does not have %q", file, want)
		}
	}
	if said := run(t, tree, nil, "go", "tool", "pprof", "-top", "-nodecount=2000",
		"cmd/exportbridge/default.pgo"); !strings.Contains(said, " "+renamed+"/bridge/") ||
		strings.Contains(said, " exportbridge/") {
		t.Errorf("the profile names other functions:\n%.2000s", said)
	}
}

// consume lets another module get the tree from a proxy that is a folder, and call it.
func consume(t *testing.T, tree string) {
	t.Helper()
	proxy, user := t.TempDir(), t.TempDir()
	version := module.Version{Path: renamed, Version: "v1.2.3"}
	escaped := must.Get(module.EscapePath(renamed))(t)
	served := filepath.Join(proxy, escaped, "@v")
	must.Do(t, os.MkdirAll(served, 0o700))
	var packed bytes.Buffer
	must.Do(t, zip.CreateFromDir(&packed, version, tree))
	put := func(path, text string) {
		t.Helper()
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	}
	put(filepath.Join(served, "list"), "v1.2.3\n")
	put(filepath.Join(served, "v1.2.3.info"), `{"Version":"v1.2.3","Time":"2026-01-01T00:00:00Z"}`)
	put(filepath.Join(served, "v1.2.3.mod"), string(read(t, filepath.Join(tree, "go.mod"))))
	put(filepath.Join(served, "v1.2.3.zip"), packed.String())
	put(filepath.Join(user, "go.mod"), "module example.com/user\n\ngo 1.26.0\n")
	put(filepath.Join(user, "main.go"), `package main

import (
	"fmt"

	"`+renamed+`/bridge"
	"`+renamed+`/bridge/engine"
)

func main() { fmt.Println(bridge.Checkpoint{}.Seq, new(engine.Engine) != nil) }
`)
	known := strings.TrimSpace(run(t, tree, nil, "go", "env", "GOMODCACHE"))
	further := strings.TrimSpace(run(t, tree, nil, "go", "env", "GOPROXY"))
	env := []string{
		"GOPROXY=file://" + proxy + ",file://" + filepath.Join(known, "cache", "download") + "," + further,
		"GONOSUMDB=example.org", "GOMODCACHE=" + t.TempDir(), "GOFLAGS=-modcacherw -pgo=off", "GOWORK=off",
	}
	run(t, user, env, "go", "get", renamed+"/bridge/engine@v1.2.3")
	run(t, user, env, "go", "build", "-o", os.DevNull, ".")
}

// run runs a command that has to succeed, and returns its output.
func run(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	var out, problem bytes.Buffer
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), env...), &out, &problem
	if err := cmd.Run(); err != nil {
		t.Fatalf("%q: %v\n%.4000s", args, err, &problem)
	}
	return out.String()
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	return must.Get(os.ReadFile(path))(t)
}
