package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"exportbridge/bridge/bridgetest/must"
)

// TestPatchesFit: each patch of the table fits the sources as they are.
func TestPatchesFit(t *testing.T) {
	path := must.Get(Overlay(t.TempDir()))(t)
	list := must.Get(os.ReadFile(path))(t)
	names := map[string]bool{}
	for _, r := range All {
		if names[r.Name] || r.Without == "" {
			t.Errorf("rule %q is listed twice, or without a text", r.Name)
		}
		names[r.Name] = true
		for _, e := range r.Edits {
			if !strings.Contains(string(list), e.File) {
				t.Errorf("the overlay replaces no %s", e.File)
			}
		}
	}
}

// TestOverlay shows what an overlay does, and refuses.
func TestOverlay(t *testing.T) {
	const source = "// Package p says.\npackage p\n\nfunc f() {\n\tone()\n\n\ttwo()\n\ttwo()\n}\n"
	const asks = "\n+\tif protocol.Broken(\"r\") {\n+\t\treturn\n+\t}\n \tone()\n"
	const copied = "// Package p says.\npackage p; import protocol \"exportbridge/bridge/bridgetest/rules\"\n\n" +
		"func f() {\n\tif protocol.Broken(\"r\") {\n\t\treturn\n\t}\n\tone()\n"
	const refused = "patch p.go: rule r: there must be one place, not "
	const twice = "patch p.go: rule r: another patch is for the same lines\n\tone()\n"
	for _, c := range []struct {
		name  string
		edits []string
		want  string // the copy, or the error
	}{
		{"adds", []string{asks}, copied + "\n\ttwo()\n\ttwo()\n}\n"},
		{"two places", []string{asks, "\n-\ttwo()\n }\n"}, copied + "\n\ttwo()\n}\n"},
		{"an empty line", []string{asks, "\n-\n-\ttwo()\n \ttwo()\n"}, copied + "\ttwo()\n}\n"},
		{"old text is gone", []string{asks, "\n-\tthree()\n"}, refused + "0, with the lines\n\tthree()\n"},
		{"part of a line", []string{asks, "\n-two()\n"}, refused + "0, with the lines\ntwo()\n"},
		{"old text is there twice", []string{asks, "\n-\ttwo()\n"}, refused + "2, with the lines\n\ttwo()\n"},
		{"no old text", []string{asks, "\n+\tthree()\n"}, refused + "0, with the lines\n"},
		{"the same lines", []string{asks, "\n-\tone()\n"}, twice},
		{"the rule stays", []string{"\n-\tone()\n"}, `rule r: no patch asks for protocol.Broken("r")`},
	} {
		root, dir, rule := t.TempDir(), t.TempDir(), Rule{Name: "r", Notice: Engine}
		for _, diff := range c.edits {
			rule.Edits = append(rule.Edits, Edit{"p.go", diff})
		}
		write(t, root, patchedFile, "package rules\n\nconst patched = false\n")
		write(t, root, "p.go", source)
		got := copyOf(t, root, dir, rule, "p.go")
		if got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
		const marked = "package rules\n\nconst patched = true\n"
		if got := copyOf(t, root, dir, rule, patchedFile); strings.HasPrefix(c.want, copied) && got != marked {
			t.Errorf("%s: the build does not know that it has the patches:\n%s", c.name, got)
		}
	}
	_, err := overlay(t.TempDir(), t.TempDir(), []Rule{{Name: "r"}})
	if err == nil || err.Error() != "rule r: no test notices it" {
		t.Errorf("a rule that no test is for: %v", err)
	}
}

// TestBreakNeedsPatches: a build without the patches takes no rule away in silence.
func TestBreakNeedsPatches(t *testing.T) {
	for name, want := range map[string]string{
		"skip-tail": "built without the patches: run make broken",
		"no-rule":   "no such rule: no-rule",
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("break %s: panic %v, want %s", name, got, want)
				}
			}()
			Break(name)
		}()
	}
}

// copyOf returns the patched copy of a file, or the error.
func copyOf(t *testing.T, root, dir string, rule Rule, file string) string {
	t.Helper()
	if _, err := overlay(root, dir, []Rule{rule}); err != nil {
		return err.Error()
	}
	text := must.Get(os.ReadFile(filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))))(t)
	return string(text)
}

func write(t *testing.T, root, file, text string) {
	t.Helper()
	path := filepath.Join(root, file)
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
}
