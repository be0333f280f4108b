package main

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"exportbridge/bridge/bridgetest/must"
)

const notices = "THIRD_PARTY_NOTICES.txt"

var update = flag.Bool("update", false, "write "+notices)

// TestNotices: the released programs carry the licences of all that is linked into them.
func TestNotices(t *testing.T) {
	t.Parallel()
	texts := make(map[string][]string) // modules by their licence
	for module, dir := range linked(t) {
		text := licenceOf(t, module, dir)
		texts[text] = append(texts[text], module)
	}
	var want bytes.Buffer
	want.WriteString("exportbridge is under the Apache License 2.0, see LICENSE. It contains these works.\n")
	groups := make(map[string]string)
	for text, modules := range texts {
		slices.Sort(modules)
		groups[strings.Join(modules, "\n")] = text
	}
	for _, modules := range slices.Sorted(maps.Keys(groups)) {
		want.WriteString("\n" + strings.Repeat("=", 80) + "\n" + modules + "\n" + strings.Repeat("-", 80) + "\n\n" + groups[modules] + "\n")
	}
	if *update {
		must.Do(t, os.WriteFile(notices, want.Bytes(), 0o644))
	}
	if got, err := os.ReadFile(notices); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s lacks a licence or has one too many (%v): make docs", notices, err)
	}
}

// linked returns the folders of all modules in the programs, on any released platform,
// and of what else they contain.
func linked(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"uPlot": "../../bridge/ops/ui/static"}
	for _, platform := range []string{"linux", "darwin", "windows"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}", ".", "../exportbridge-dev")
		cmd.Env = append(os.Environ(), "GOOS="+platform, "GOARCH=amd64", "CGO_ENABLED=0")
		said, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list on %s: %v", platform, err)
		}
		for line := range strings.Lines(string(said)) {
			if module, dir, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				all[module] = dir
			}
		}
	}
	all["Go"] = all["golang.org/x/sys"] // of the same authors; some GOROOTs have no licence
	return all
}

var licenceFile = regexp.MustCompile(`(?i)(^|\.)(licen[cs]e|copying|notice|patents)(\.(txt|md))?$`)

// licenceOf returns the licence and notices of a module, which may be those of the
// repository that the module is a folder of.
func licenceOf(t *testing.T, module, dir string) string {
	t.Helper()
	files := must.Get(os.ReadDir(dir))(t)
	var all []string
	for _, f := range files {
		if !licenceFile.MatchString(f.Name()) || f.IsDir() {
			continue
		}
		text := must.Get(os.ReadFile(filepath.Join(dir, f.Name())))(t)
		all = append(all, strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n")))
	}
	if len(all) == 0 {
		t.Errorf("%s has no licence in %s", module, dir)
	}
	return strings.Join(all, "\n\n")
}
