// Package model checks a protocol written in Promela, with spin and gcc: no schedule of the
// protocol fails, and a schedule fails for each rule that is removed.
package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
)

// limit bounds one run on a busy machine. On an idle one, the slowest takes some seconds.
const limit = 5 * time.Minute

// Run is one walk through all schedules of one configuration.
type Run struct {
	// Variant names the rule that is removed; empty is the whole protocol.
	Variant string
	// Defines are the flags of the preprocessor, such as "-DA=1 -DB".
	Defines string
	// Live is set to look for cycles without progress instead of violated assertions.
	Live bool
	// Finds is part of the assertion that must fail; empty if none may.
	Finds string
}

// Model is a protocol in Promela. The comment at the head of the file lists the functions
// of each step by their files below bridge. Between the lines "* Variants." and "*
// Configurations" it lists each variant with the rule that it removes.
type Model struct {
	// File is the file of the model, in the folder of the package.
	File string
	Runs []Run
}

func (r Run) name() string {
	if r.Variant != "" {
		return r.Variant
	}
	return strings.ReplaceAll(strings.ReplaceAll(r.Defines, "-D", ""), " ", ",")
}

// Check makes all runs if the variable MODEL is 1.
func (m Model) Check(t *testing.T) {
	if os.Getenv("MODEL") != "1" {
		t.Skip("needs spin and gcc: make model")
	}
	for _, tool := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%v: apt-get install spin gcc", err)
		}
	}
	for _, run := range m.Runs {
		t.Run(run.name(), func(t *testing.T) {
			t.Parallel()
			run.check(t, m.File)
		})
	}
}

func (r Run) check(t *testing.T, file string) {
	found := r.walk(t, file)
	if err := r.judge(found); err != nil {
		t.Fatalf("%v:\n%s", err, found)
	}
	t.Logf("%s states, %s", figure(found, stored), cmp.Or(figure(found, violation), "0 errors"))
}

const (
	stored    = `(\d+) states, stored`
	violation = `pan:1: (.*)`
)

// judge returns an error if the checker has not found what it should. Only one line has what is
// violated: the checker also prints the assertions that it never reached.
func (r Run) judge(found string) error {
	spaceless := strings.NewReplacer(" ", "").Replace
	failed := figure(found, `errors: (\d+)`)
	switch {
	case failed == "" || figure(found, stored) == "" || strings.Contains(found, "too small") || strings.Contains(found, "out of memory"):
		return errors.New("the walk is not complete")
	case r.Finds == "" && failed != "0":
		return errors.New("an assertion is violated")
	case !strings.Contains(spaceless(figure(found, violation)), spaceless(r.Finds)):
		return fmt.Errorf("the assertion %q is not violated", r.Finds)
	}
	return nil
}

// walk builds and runs the checker, and returns what it printed.
func (r Run) walk(t *testing.T, file string) string {
	source := must.Get(filepath.Abs(file))(t)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	dir := t.TempDir()
	run := func(name string, args ...string) string {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
		return string(out)
	}
	defines := strings.Fields(r.Defines)
	if r.Variant != "" {
		defines = append(defines, "-D"+r.Variant)
	}
	run("spin", append(append([]string{"-a"}, defines...), source)...)
	// A walk that ends at the first error takes less time than optimizing, or than a large
	// table of states.
	build, args := []string{"-w", "-O2", "-DMEMLIM=4000"}, []string{"-w24"}
	if r.Finds != "" {
		build[1], args[0] = "-O0", "-w18"
	}
	if r.Live {
		build, args = append(build, "-DNFAIR=5"), append(args, "-a", "-f", "-m3000000")
	} else {
		build, args = append(build, "-DSAFETY", "-DNOCLAIM"), append(args, "-m1000000")
	}
	run("gcc", append(build, "-o", "pan", "pan.c")...)
	return run(filepath.Join(dir, "pan"), args...)
}

func figure(text, pattern string) string {
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	return m[1]
}

// Complete checks the head of the file without spin: it lists the variants that Check runs,
// each variant is in the text, and the listed functions exist.
func (m Model) Complete(t *testing.T) {
	raw := must.Get(os.ReadFile(m.File))(t)
	header, body, _ := strings.Cut(string(raw), "*/")
	_, after, _ := strings.Cut(header, "* Variants.")
	list, _, ok := strings.Cut(after, "* Configurations")
	if !ok {
		t.Fatalf("%s has no list of variants", m.File)
	}
	var promised, run []string
	for _, found := range regexp.MustCompile(`(?m)^ \*   ([A-Z][A-Z0-9_]+) `).FindAllStringSubmatch(list, -1) {
		promised = append(promised, found[1])
		if !regexp.MustCompile(`(?m)^#.*\b` + found[1] + `\b`).MatchString(body) {
			t.Errorf("%s promises the variant %s, which changes nothing", m.File, found[1])
		}
	}
	for _, r := range m.Runs {
		if r.Variant != "" {
			run = append(run, r.Variant)
		}
	}
	slices.Sort(promised)
	slices.Sort(run)
	if !slices.Equal(promised, run) {
		t.Errorf("%s promises the variants\n%v\nTestModel runs\n%v", m.File, promised, run)
	}
	if err := m.names(header); err != nil {
		t.Error(err)
	}
}

// names checks that the functions in the header exist.
func (m Model) names(header string) error {
	lines := regexp.MustCompile(`(?m)^ \*   (\S+\.go) +(\w+(?:, \w+)*) `).FindAllStringSubmatch(header, -1)
	if len(lines) == 0 {
		return fmt.Errorf("%s names no function", m.File)
	}
	for _, line := range lines {
		code, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(line[1])))
		if err != nil {
			return fmt.Errorf("%s: %w", m.File, err)
		}
		for name := range strings.SplitSeq(line[2], ", ") {
			if !regexp.MustCompile(`(?m)^func (?:\([^)]*\) )?` + name + `\(`).Match(code) {
				return fmt.Errorf("%s names the function %s, which %s does not have", m.File, name, line[1])
			}
		}
	}
	return nil
}
