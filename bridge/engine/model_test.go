package engine_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// modelFile is the protocol as a model. Its header says what is in it.
const modelFile = "exactly_once.pml"

// modelRunLimit is how long one run may take on a machine that does other
// things too. Alone, the slowest takes some seconds.
const modelRunLimit = 5 * time.Minute

// A modelRun is one walk through all schedules of one configuration.
type modelRun struct {
	// variant is the rule that is taken away; none is the protocol itself.
	variant string
	defines string
	live    bool
	// finds is part of the assertion that must be violated; empty means none.
	finds string
}

// Sizes. One reset is enough to see most rules missing; the more can happen in
// a configuration, the smaller it must be.
const (
	modelSmall    = "-DNPOS=2 -DNRESET=1 -DNO_OWNER"
	modelRequests = "-DNPOS=1 -DNRESET=2 -DNO_OWNER -DNO_REDIS_FAIL"
	modelOffline  = "-DNPOS=0 -DNRESET=2 -DNO_OWNER -DNO_REDIS_FAIL -DOFFLINE"
	modelDeadline = "-DNPOS=1 -DNRESET=1 -DNO_OWNER -DNO_REDIS_FAIL -DDEADLINE"
	modelLive     = "-DNPOS=1 -DNRESET=1 -DLIVE=1 -DOFFLINE -DNO_REDIS_FAIL"
	modelSwitch   = "-DNPOS=2 -DNRESET=0 -DSWITCH=2 -DNO_REDIS_FAIL"
	modelPlain    = "-DNPOS=2 -DNRESET=0 -DPLAIN"
	notDone       = "acceptance cycle"
)

var modelRuns = []modelRun{
	{defines: modelSmall},
	{defines: "-DNPOS=1 -DNRESET=1 -DNO_REDIS_FAIL"}, // with ownership
	{defines: modelRequests},
	{defines: modelOffline},
	{defines: "-DNPOS=1 -DNRESET=1 -DNO_OWNER -DNO_REDIS_FAIL -DWITHDRAW"},   // holds while Redis does
	{defines: "-DNPOS=1 -DNRESET=1 -DNO_OWNER -DNO_REDIS_FAIL -DCKPT_FIRST"}, // harmless from transaction.version 2 on
	{defines: modelDeadline},
	{defines: modelSwitch},
	{defines: "-DNPOS=1 -DNRESET=0 -DSWITCH=1"},
	{defines: "-DNPOS=2 -DNRESET=0 -DSWITCH=1 -DPLAIN -DNO_REDIS_FAIL"},
	{defines: modelPlain},
	{defines: modelLive, live: true},
	{defines: "-DNPOS=1 -DNRESET=1 -DLIVE=1", live: true},

	{variant: "ORIG_RESET", defines: modelSmall, finds: "cR>=acked"},
	{variant: "ASSUME_ABORT", defines: modelSmall, finds: "txFrom>=expect"},
	{variant: "READ_FIRST", defines: modelSmall, finds: "txFrom>=expect"},
	{variant: "LSO_STALE", defines: modelSmall, finds: "txFrom>=expect"},
	{variant: "NO_BASE", defines: modelSmall, finds: "applied[ckR]==1"},
	{variant: "LAST_RID", defines: "-DNPOS=1 -DNRESET=2 -DNO_OWNER", finds: "cR>=acked"},
	{variant: "SAME_EPOCH", defines: "-DNPOS=1 -DNRESET=2 -DNO_OWNER", finds: "cR>=acked"},
	{variant: "NO_PROOF", defines: modelRequests, finds: "qBase!=kE"},
	{variant: "TV1", defines: modelSmall, finds: "txFrom>=expect"},
	{variant: "CKPT_FIRST", defines: modelSmall + " -DTV1", finds: "ckP<=expect"},
	{variant: "IGNORE_PROMISE", defines: modelSmall, finds: "ckP<=expect"},
	{variant: "SAVE_BEFORE_COMMIT", defines: modelSmall, finds: "ckP<=expect"},
	{variant: "REDIS_WINS", defines: modelSmall, finds: "txFrom>=expect"},
	{variant: "REDIS_LATE", defines: "-DNPOS=1 -DNRESET=1 -DNO_OWNER -DNO_REDIS_FAIL", finds: "lE<=cE"},
	{variant: "MIRROR_FIRST", defines: modelSmall, finds: "rE<=kE"},
	{variant: "WITHDRAW", defines: "-DNPOS=1 -DNRESET=1 -DNO_OWNER", finds: "ckR!=withdrawn"},
	{variant: "CLAIM_OUTLIVES", defines: modelDeadline, finds: "ckClaim==standing"},
	{variant: "EXPIRE_LIVE", defines: modelDeadline, finds: "applied[qId]==0"},
	{variant: "OFFLINE_REBASE", defines: modelOffline, finds: "applied[ckR]==1"},
	{variant: "NO_MINT", defines: modelSwitch, finds: "cP>=sure"},
	{variant: "MINT_REDIS_ONLY", defines: modelSwitch, finds: "cP>=sure"},
	{variant: "MINT_REDIS_FIRST", defines: modelSwitch, finds: "cP>=sure"},
	{variant: "SAVE_FIRST", defines: modelPlain, finds: "cP<=pub"},
	{variant: "NO_OWNER", defines: modelLive, live: true, finds: notDone},
	{variant: "NO_HEARTBEAT", defines: modelLive, live: true, finds: notDone},
	{variant: "OFFLINE_FIGHT", defines: modelLive, live: true, finds: notDone},
}

func (r modelRun) name() string {
	if r.variant != "" {
		return r.variant
	}
	return strings.ReplaceAll(strings.ReplaceAll(r.defines, "-D", ""), " ", ",")
}

// TestModel walks through every schedule of the model: none breaks the
// protocol, and each rule that is taken away is missed.
func TestModel(t *testing.T) {
	t.Parallel()
	if os.Getenv("MODEL") != "1" {
		t.Skip("needs spin and gcc: MODEL=1 go test -run TestModel -v ./bridge/engine")
	}
	for _, tool := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%v: apt-get install spin gcc", err)
		}
	}
	for _, run := range modelRuns {
		t.Run(run.name(), func(t *testing.T) {
			t.Parallel()
			run.check(t)
		})
	}
}

func (r modelRun) check(t *testing.T) {
	found := r.walk(t)
	states := modelFigure(found, `(\d+) states, stored`)
	errors := modelFigure(found, `errors: (\d+)`)
	switch {
	case states == "" || errors == "" || strings.Contains(found, "too small") || strings.Contains(found, "out of memory"):
		t.Fatalf("the walk is not complete:\n%s", found)
	case r.finds == "" && errors != "0":
		t.Fatalf("%s states, then:\n%s", states, found)
	case r.finds != "" && !strings.Contains(strings.ReplaceAll(found, " ", ""), strings.ReplaceAll(r.finds, " ", "")):
		t.Fatalf("%s states, and %q is not among what was found:\n%s", states, r.finds, found)
	case r.finds == "":
		t.Logf("%s states, 0 errors", states)
	default:
		t.Logf("%s states until %s", states, modelFigure(found, `pan:1: (.*)`))
	}
}

// walk builds and runs the checker, and returns what it printed.
func (r modelRun) walk(t *testing.T) string {
	source, err := filepath.Abs(modelFile)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), modelRunLimit)
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
	defines := strings.Fields(r.defines)
	if r.variant != "" {
		defines = append(defines, "-D"+r.variant)
	}
	run("spin", append(append([]string{"-a"}, defines...), source)...)
	// Optimizing takes longer than a walk that ends at the first error.
	build, args := []string{"-w", "-O2", "-DCOLLAPSE", "-DMEMLIM=4000"}, []string{"-w24"}
	if r.finds != "" {
		build[1] = "-O0"
	}
	if r.live {
		build, args = append(build, "-DNFAIR=5"), append(args, "-a", "-f", "-m3000000")
	} else {
		build, args = append(build, "-DSAFETY", "-DNOCLAIM"), append(args, "-m1000000")
	}
	run("gcc", append(build, "-o", "pan", "pan.c")...)
	return run(filepath.Join(dir, "pan"), args...)
}

func modelFigure(text, pattern string) string {
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	return m[1]
}

// TestModelIsComplete: the header of the model promises the variants that
// TestModel runs, each of them is in its text, and the functions that it names
// are there.
func TestModelIsComplete(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(modelFile)
	if err != nil {
		t.Fatal(err)
	}
	header, body, _ := strings.Cut(string(raw), "*/")
	_, after, _ := strings.Cut(header, "* Variants.")
	list, _, found := strings.Cut(after, "* Configurations")
	if !found {
		t.Fatalf("%s has no list of variants", modelFile)
	}
	var promised, run []string
	for _, m := range regexp.MustCompile(`(?m)^ \*   ([A-Z][A-Z0-9_]+) `).FindAllStringSubmatch(list, -1) {
		promised = append(promised, m[1])
		if !regexp.MustCompile(`(?m)^#.*\b` + m[1] + `\b`).MatchString(body) {
			t.Errorf("%s promises the variant %s, which changes nothing", modelFile, m[1])
		}
	}
	for _, r := range modelRuns {
		if r.variant != "" {
			run = append(run, r.variant)
		}
	}
	slices.Sort(promised)
	slices.Sort(run)
	if !slices.Equal(promised, run) {
		t.Errorf("%s promises the variants\n%v\nTestModel runs\n%v", modelFile, promised, run)
	}
	if err := modelNames(header); err != nil {
		t.Error(err)
	}
}

// modelNames checks that the functions of the header's list exist.
func modelNames(header string) error {
	lines := regexp.MustCompile(`(?m)^ \*   (\S+\.go) +(\w+(?:, \w+)*) `).FindAllStringSubmatch(header, -1)
	if len(lines) == 0 {
		return fmt.Errorf("%s names no function", modelFile)
	}
	for _, m := range lines {
		code, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(m[1])))
		if err != nil {
			return fmt.Errorf("%s: %w", modelFile, err)
		}
		for name := range strings.SplitSeq(m[2], ", ") {
			if !regexp.MustCompile(`(?m)^func (?:\([^)]*\) )?` + name + `\(`).Match(code) {
				return fmt.Errorf("%s names the function %s, which %s does not have", modelFile, name, m[1])
			}
		}
	}
	return nil
}
