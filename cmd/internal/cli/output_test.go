package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge/bridgetest/must"
)

// TestPrintTable: cells are cut before lines are, and nothing is cut without a width.
func TestPrintTable(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 30)
	for _, test := range []struct {
		name  string
		width int
		want  string
		cut   bool
	}{
		{"whole", 0, "A   NAME                            LAST\n1   " + long + "  é\n22  a b\n", false},
		{"fits", 40, "A   NAME                            LAST\n1   " + long + "  é\n22  a b\n", false},
		{"cells", 38, "A   NAME                          LAST\n1   " + long[2:29] + "…  é\n22  a b\n", true},
		{"short enough", 29, "A   NAME\n1   " + long[:19] + "…  é\n22  a b\n", true},
		{"below", 26, "A   NAME\n1   " + long[:19] + "…\n    last é\n22  a b\n", true},
	} {
		var b strings.Builder
		cut, err := PrintTable(&b, [][]string{{"A", "NAME", "LAST"}, {"1", long, "é"}, {"22", "a\nb", ""}}, test.width)
		if err != nil || cut != test.cut {
			t.Errorf("%s: cut = %v: %v", test.name, cut, err)
		}
		if diff := cmp.Diff(test.want, b.String()); diff != "" {
			t.Errorf("%s:\n%s", test.name, diff)
		}
	}
}

// TestPrintFields: a long text is continued below itself.
func TestPrintFields(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	must.Do(t, PrintFields(&b, [][2]string{{"state", "caught up"}, {"a longer name", "one two three four"}, {"", "x"}},
		24))
	want := "  state         caught\n                up\n  a longer name one two\n                three\n           " +
		"     four\n                x\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

// TestWidth: only a terminal cuts, unless --wide is given.
func TestCounted(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0 processes", 1: "1 process", 1200: "1,200 processes"} {
		if got := Counted(n, "process"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := Counted(2, "topic"); got != "2 topics" {
		t.Errorf("%q", got)
	}
}

func TestWidth(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		columns int
		wide    bool
		want    int
	}{{0, false, 0}, {90, false, 90}, {90, true, 0}} {
		a := &App{Stdio: Stdio{Columns: test.columns}, wide: test.wide}
		if got := a.Width(); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}

// TestPrintTo: a file is created, replaced only by force, and no link is followed.
func TestPrintTo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name, other, link := filepath.Join(dir, "rules"), filepath.Join(dir, "other"), filepath.Join(dir, "link")
	if err := os.Symlink(other, link); err != nil {
		t.Skip(err)
	}
	a := &App{}
	content := func(name string) string {
		text, _ := os.ReadFile(name)
		return string(text)
	}
	for _, test := range []struct {
		to   Output
		text string
		err  string
	}{
		{Output{file: name}, "one", ""},
		{Output{file: name}, "two", "file exists"},
		{Output{file: name, force: true}, "three", ""},
		{Output{file: link}, "four", "file exists"},
		{Output{file: link, force: true}, "five", "not a regular file"},
		{Output{file: dir, force: true}, "six", "not a regular file"},
	} {
		err := a.PrintTo(&test.to, test.text)
		switch {
		case test.err == "" && (err != nil || content(test.to.file) != test.text):
			t.Errorf("%+v: %v, %q", test.to, err, content(test.to.file))
		case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%+v: %v, want %s", test.to, err, test.err)
		}
	}
	if left, _ := os.ReadDir(dir); content(name) != "three" || len(left) != 2 {
		t.Errorf("the file has %q, the directory %v", content(name), left)
	}
}

// TestPrintTableNotes: on a terminal of 80 columns a note is complete, below its row;
// a short one stays in it.
func TestPrintTableNotes(t *testing.T) {
	t.Parallel()
	time := "2026-11-20 12:00:00Z"
	var out, said strings.Builder
	a := &App{Stdio: Stdio{Stdout: &out, Stderr: &said, Columns: 80}, tables: true}
	err := a.PrintTable([][]string{
		{"ENTRY", "COMMITTED", "POSITION", "PAGE", "EVENTS", "NOTE"},
		{"10.0", time, time, "1,000", "12,345",
			"rewind from 9.3 by root@host: bad deploy of the consumer, see the runbook of the team"},
		{"9.3", time, time, "1,000", "12,345", "start"},
		{"9.2", time, time, "1,000", "12,345", ""},
	})
	want := "ENTRY  COMMITTED             POSITION              PAGE   EVENTS  NOTE\n" +
		"10.0   " + time + "  " + time + "  1,000  12,345\n" +
		"    rewind from 9.3 by root@host: bad deploy of the consumer, see the runbook of\n    the team\n" +
		"9.3    " + time + "  " + time + "  1,000  12,345  start\n" +
		"9.2    " + time + "  " + time + "  1,000  12,345\n"
	if diff := cmp.Diff(want, out.String()); diff != "" || err != nil || said.String() != "" {
		t.Errorf("%v, %q:\n%s", err, said.String(), diff)
	}
	if err := a.PrintTable([][]string{{"A", "B"}, {strings.Repeat("x", 50), strings.Repeat("y", 50)}}); err != nil ||
		!strings.Contains(said.String(), "--wide") {
		t.Errorf("of a cut table it says %q: %v", said.String(), err)
	}
}

// What a failed or killed replacement left does not prevent the next one. The file keeps its mode.
func TestReplaceAfterAFailure(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "rules.yml")
	for _, left := range []string{name, name + ".new"} { // as after a full disk
		must.Do(t, os.WriteFile(left, []byte("half"), 0o640))
	}
	if err := (&App{}).PrintTo(&Output{file: name, force: true}, "whole"); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(name)
	info, err2 := os.Stat(name)
	if err != nil || err2 != nil || string(text) != "whole" || info.Mode() != 0o640 {
		t.Errorf("%q, %v, %v %v", text, info.Mode(), err, err2)
	}
	if left, err := filepath.Glob(name + ".*"); err != nil || len(left) != 1 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
