package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPrintTable: cells are cut before lines are, and nothing is cut without a width.
func TestPrintTable(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 30)
	for _, test := range []struct {
		name  string
		width int
		want  string
	}{
		{"whole", 0, "A   NAME                            LAST\n1   " + long + "  é\n22  a b\n"},
		{"fits", 40, "A   NAME                            LAST\n1   " + long + "  é\n22  a b\n"},
		{"cells", 38, "A   NAME                          LAST\n1   " + long[2:29] + "…  é\n22  a b\n"},
		{"lines", 26, "A   NAME                 …\n1   " + long[:19] + "… …\n22  a b\n"},
	} {
		var b strings.Builder
		if err := PrintTable(&b, [][]string{{"A", "NAME", "LAST"}, {"1", long, "é"}, {"22", "a\nb", ""}}, test.width); err != nil {
			t.Fatal(err)
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
	if err := PrintFields(&b, [][2]string{{"state", "caught up"}, {"a longer name", "one two three four"}, {"", "x"}}, 24); err != nil {
		t.Fatal(err)
	}
	want := "  state         caught\n                up\n  a longer name one two\n                three\n                four\n                x\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

// TestWidth: only a terminal cuts, unless --wide is given.
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
