package rules

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// patchedFile is the file of this package that differs in a build with the patches.
const patchedFile = "bridge/bridgetest/rules/patched.go"

// Overlay writes patched copies of the sources to dir, and returns the file for the flag
// -overlay of "go build" and "go test". The working directory must be in the repository.
func Overlay(dir string) (path string, err error) {
	module, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the root of the repository: %w", err)
	}
	return overlay(filepath.Dir(strings.TrimSpace(string(module))), dir, All)
}

func overlay(root, dir string, all []Rule) (path string, err error) {
	files := map[string][]change{patchedFile: nil}
	for i := range all {
		if err := all[i].check(); err != nil {
			return "", err
		}
		for _, e := range all[i].Edits {
			files[e.File] = append(files[e.File], newChange(all[i].Name, e.Diff))
		}
	}
	replace := map[string]string{}
	for file, changes := range files {
		source, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return "", fmt.Errorf("read a source to patch: %w", err)
		}
		text := strings.Replace(string(source), "patched = false", "patched = true", 1)
		if file != patchedFile {
			if text, err = apply(string(source), changes); err != nil {
				return "", fmt.Errorf("patch %s: %w", file, err)
			}
		}
		name := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		replace[filepath.Join(root, file)] = name
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("write a patched copy: %w", err)
		}
	}
	list, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		return "", fmt.Errorf("encode the overlay: %w", err)
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}

// check refuses a rule without a test, or whose patches do not mention its name.
func (r *Rule) check() error {
	if r.Notice == 0 {
		return fmt.Errorf("rule %s: no test notices it", r.Name)
	}
	asks := fmt.Sprintf("protocol.Broken(%q)", r.Name)
	patched := func(e Edit) bool { return strings.Contains(newChange(r.Name, e.Diff).after, asks) }
	if !slices.ContainsFunc(r.Edits, patched) {
		return fmt.Errorf("rule %s: no patch asks for %s", r.Name, asks)
	}
	return nil
}

// change is an edit: whole lines before, and whole lines after.
type change struct {
	rule, before, after string
	at                  int // position in the source, once it is found
}

func newChange(rule, diff string) change {
	c := change{rule: rule}
	for line := range strings.Lines(strings.TrimPrefix(diff, "\n")) {
		sign, rest := line[0], line[1:]
		if sign == '\n' { // an empty line stays
			sign, rest = ' ', "\n"
		}
		if sign != '+' {
			c.before += rest
		}
		if sign != '-' {
			c.after += rest
		}
	}
	return c
}

var packageClause = regexp.MustCompile(`(?m)^package \w+$`)

// apply returns the source with all changes. A copy that asks for rules imports this
// package, on the line of the package clause. The import is named protocol, because rules
// is a common name.
func apply(source string, changes []change) (string, error) {
	for i := range changes {
		c := &changes[i]
		n, at := occurrences(source, c.before)
		if n != 1 {
			return "", fmt.Errorf("rule %s: there must be one place, not %d, with the lines\n%s", c.rule, n, c.before)
		}
		c.at = at
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(b.at, a.at) }) // backwards: positions stay valid
	end := len(source)
	for _, c := range changes {
		if c.at+len(c.before) > end {
			return "", fmt.Errorf("rule %s: another patch is for the same lines\n%s", c.rule, c.before)
		}
		source, end = source[:c.at]+c.after+source[c.at+len(c.before):], c.at
	}
	if !strings.Contains(source, "protocol.Broken(") {
		return source, nil
	}
	return packageClause.ReplaceAllString(source, `$0; import protocol "exportbridge/bridge/bridgetest/rules"`), nil
}

// occurrences counts the occurrences of whole lines in a source, and returns the position
// of the last one.
func occurrences(source, lines string) (n, last int) {
	if lines == "" {
		return 0, 0
	}
	for from := 0; ; {
		i := strings.Index(source[from:], lines)
		if i < 0 {
			return n, last
		}
		if i += from; i == 0 || source[i-1] == '\n' {
			n, last = n+1, i
		}
		from = i + 1
	}
}
