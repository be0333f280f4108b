package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge/bridgetest/must"
)

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must.Do(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestFind(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "value", "from file\r\n")
	type vars = map[string]string
	for _, test := range []struct {
		name                string
		flags, preset, file vars
		env                 []string
		stream              string
		want                string
		place               place
		err                 string
	}{
		{name: "nothing", place: place{kind: FromDefault}},
		{
			name: "empty counts as unset everywhere", flags: vars{"SHOP_COUNT": ""}, preset: vars{"SHOP_COUNT": ""},
			env: []string{"SHOP_COUNT=", "SHOP_COUNT_FILE="}, file: vars{"SHOP_COUNT": ""}, place: place{kind: FromDefault},
		},
		{
			name: "empty in the environment hides the environment file", env: []string{"SHOP_COUNT="},
			file:  vars{"SHOP_COUNT": "4"},
			place: place{kind: FromDefault},
		},
		{
			name: "empty file name in the environment hides the environment file", env: []string{"SHOP_COUNT_FILE="},
			file:  vars{"SHOP_COUNT_FILE": file},
			place: place{kind: FromDefault},
		},
		{
			name: "empty in the environment, a file beside it", env: []string{"SHOP_COUNT="},
			file: vars{"SHOP_COUNT_FILE": file},
			want: "from file", place: place{kind: FromFile, name: "SHOP_COUNT_FILE", path: file},
		},
		{
			name: "empty flag hides all others of the name", flags: vars{"SHOP_COUNT": ""}, env: []string{"SHOP_COUNT=3"},
			file:  vars{"SHOP_COUNT": "4"},
			place: place{kind: FromDefault},
		},
		{
			name: "empty flag does not hide what the command sets", flags: vars{"SHOP_COUNT": ""},
			preset: vars{"SHOP_COUNT": "2"}, env: []string{"SHOP_COUNT=3"},
			want: "2", place: place{kind: FromCommand, name: "SHOP_COUNT"},
		},
		{
			name: "empty flag hides the file of a value", flags: vars{"SHOP_COUNT": ""},
			env:   []string{"SHOP_COUNT_FILE=" + file},
			place: place{kind: FromDefault},
		},
		{
			name: "empty flag does not hide a stream's", flags: vars{"SHOP_COUNT": ""}, env: []string{"SHOP_COUNT=3",
				"STREAM_A_SHOP_COUNT=4"}, stream: "a",
			want: "4", place: place{kind: FromEnv, name: "STREAM_A_SHOP_COUNT"},
		},
		{
			name: "empty for a stream hides that of all in no place", env: []string{"STREAM_A_SHOP_COUNT=", "SHOP_COUNT=3"},
			file: vars{"STREAM_A_SHOP_COUNT": "4"}, stream: "a",
			want: "3", place: place{kind: FromEnv, name: "SHOP_COUNT"},
		},
		{name: "environment", env: []string{"SHOP_COUNT=1=2"}, want: "1=2", place: place{kind: FromEnv, name: "SHOP_COUNT"}},
		{
			name: "flag before all", flags: vars{"SHOP_COUNT": "1"}, preset: vars{"SHOP_COUNT": "2"},
			env: []string{"STREAM_A_SHOP_COUNT=3"}, stream: "a", want: "1", place: place{kind: FromFlag, name: "SHOP_COUNT"},
		},
		{
			name: "flag of a stream before the plain one", flags: vars{"SHOP_COUNT": "1", "STREAM_A_SHOP_COUNT": "2"},
			stream: "a", want: "2", place: place{kind: FromFlag, name: "STREAM_A_SHOP_COUNT"},
		},
		{
			name: "command before environment", preset: vars{"SHOP_COUNT": "2"}, env: []string{"SHOP_COUNT=3"},
			want: "2", place: place{kind: FromCommand, name: "SHOP_COUNT"},
		},
		{
			name: "stream before plain", env: []string{"SHOP_COUNT=3", "STREAM_MY_SHOP_SHOP_COUNT=4"}, stream: "my-shop",
			want: "4", place: place{kind: FromEnv, name: "STREAM_MY_SHOP_SHOP_COUNT"},
		},
		{
			name: "file of a stream before plain", env: []string{"SHOP_COUNT=3", "STREAM_A_SHOP_COUNT_FILE=" + file},
			stream: "a",
			want:   "from file", place: place{kind: FromFile, name: "STREAM_A_SHOP_COUNT_FILE", path: file},
		},
		{
			name: "another stream's", env: []string{"SHOP_COUNT=3", "STREAM_A_SHOP_COUNT=4"}, stream: "b",
			want: "3", place: place{kind: FromEnv, name: "SHOP_COUNT"},
		},
		{
			name: "environment before environment file", env: []string{"SHOP_COUNT=3"}, file: vars{"SHOP_COUNT": "4"},
			want: "3", place: place{kind: FromEnv, name: "SHOP_COUNT"},
		},
		{name: "environment file", file: vars{"SHOP_COUNT": "4"}, want: "4", place: place{kind: FromEnvFile,
			name: "SHOP_COUNT"}},
		{
			name: "file", env: []string{"SHOP_COUNT_FILE=" + file},
			want: "from file", place: place{kind: FromFile, name: "SHOP_COUNT_FILE", path: file},
		},
		{
			name: "flag before file", flags: vars{"SHOP_COUNT": "1"}, env: []string{"SHOP_COUNT_FILE=" + file},
			want: "1", place: place{kind: FromFlag, name: "SHOP_COUNT"},
		},
		{
			name: "both", env: []string{"SHOP_COUNT=1", "SHOP_COUNT_FILE=" + file},
			err: "SHOP_COUNT: both SHOP_COUNT and SHOP_COUNT_FILE are set, unset one of them",
		},
		{
			name: "both, one in the environment file", env: []string{"SHOP_COUNT=1"}, file: vars{"SHOP_COUNT_FILE": file},
			err: "SHOP_COUNT: both SHOP_COUNT and SHOP_COUNT_FILE are set, unset one of them",
		},
	} {
		src := newSources(test.flags, test.preset, test.env, test.file)
		text, from, err := src.find(shopVariable(t, "SHOP_COUNT"), test.stream)
		problem := ""
		if err != nil {
			problem = err.Error()
		}
		if text != test.want || from != test.place || problem != test.err {
			t.Errorf("%s: %q from %+v, %q, want %q from %+v, %q", test.name, text, from, problem, test.want, test.place,
				test.err)
		}
	}
}

// A variable that is not for streams must not be overridden for one.
func TestFindNotPerStream(t *testing.T) {
	t.Parallel()
	src := newSources(nil, nil, []string{"STREAM_A_SHOP_NAME=x"}, nil)
	if text, from, err := src.find(shopVariable(t, "SHOP_NAME"), "a"); text != "" || from.kind != FromDefault ||
		err != nil {
		t.Errorf("found %q from %v, %v", text, from, err)
	}
}

func TestReadEnvFile(t *testing.T) {
	t.Parallel()
	got := must.Get(new(Pipes).readEnvFile(writeFile(t, ".env", `
# comment
A=1
export B = two words # and a comment
C="quoted # \"x\"\n" # comment
D='as it is \n'
E=
F=# nothing
G=a#b
H=a=b
`)))(t)
	want := map[string]string{
		"A": "1", "B": "two words", "C": "quoted # \"x\"\n", "D": `as it is \n`, "E": "", "F": "", "G": "a#b", "H": "a=b",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, bad := range []string{"A", "=1", "A B=1", `A="x`, "A='x", `A="x" y`, "A='x' y"} {
		if _, err := new(Pipes).readEnvFile(writeFile(t, ".env", "X=1\n"+bad)); err == nil || !strings.Contains(err.Error(),
			"line 2") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if got, err := new(Pipes).readEnvFile(writeFile(t, ".env", "\ufeffA=1\n")); err != nil || got["A"] != "1" {
		t.Errorf("a byte order mark: %v, %v", got, err)
	}
	if _, err := new(Pipes).readEnvFile("none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}
