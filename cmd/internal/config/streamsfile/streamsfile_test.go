package streamsfile

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"exportbridge/bridge/bridgetest/must"
)

var update = flag.Bool("update", false, "write the golden files")

func readText(path string) (string, error) {
	text, err := os.ReadFile(path)
	return string(text), err
}

// TestRead compares the contents of files, and every mistake with its position, with the files'
// golden texts.
func TestRead(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatal("no files", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			f, problems, err := Read(path, readText)
			if err != nil {
				t.Fatal(err)
			}
			compareGolden(t, strings.TrimSuffix(path, ".yaml")+".golden", filepath.ToSlash(written(f, problems)))
		})
	}
}

func written(f *File, problems []Problem) string {
	var b strings.Builder
	for _, p := range problems {
		fmt.Fprintln(&b, p)
	}
	values := func(all []Value) {
		for _, v := range all {
			fmt.Fprintf(&b, "  %d:%d %s = %d:%d %q list %t\n", v.NameAt.Line, v.NameAt.Column, v.Name, v.At.Line, v.At.Column,
				v.Text, v.List)
		}
	}
	fmt.Fprintf(&b, "lists %v\nsettings\n", f.Lists)
	values(f.Settings)
	for _, st := range f.Streams {
		fmt.Fprintf(&b, "%s: stream %s\n", st.At, st.Name)
		values(st.Values)
	}
	return b.String()
}

func compareGolden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		must.Do(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("%s (%v): go test -update shows the difference; got:\n%s", path, err, got)
	}
}

func TestReadUnreadable(t *testing.T) {
	t.Parallel()
	if f, _, err := Read("testdata/none.yaml", readText); f != nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("file %v, error %v", f, err)
	}
}

// FuzzRead: no text makes the reader panic, and each problem has a position.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{"a: *a", "&a {a: *a}", "streams: &a {b: *a}", "- &x [*x]",
		"templates: [{for: [x], settings: {A: b}}]", "? a\n: b", "\ufeffstreams:\n  a:"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, problems, err := Read("x.yaml", func(path string) (string, error) {
			if path == "x.yaml" {
				return text, nil
			}
			return "", os.ErrNotExist
		})
		if file == nil || err != nil {
			t.Fatalf("file %v, error %v", file, err)
		}
		for _, p := range problems {
			if p.At.Line < 1 || p.At.Column < 1 {
				t.Errorf("%v has no position", p)
			}
		}
	})
}
