package command

import (
	"bytes"
	"encoding/json"
	"net"
	"slices"
	"strings"
	"testing"

	"exportbridge/cmd/internal/cli"
)

// TestRun checks that the program uses only what it is given.
func TestRun(t *testing.T) {
	t.Parallel()
	var out, diag bytes.Buffer
	code := Program.Run(t.Context(), []string{"config", "show", "--json", "--export-page-size", "5"},
		[]string{"EXPORT_API_KEY=sesame"}, cli.Stdio{Stdin: nil, Stdout: &out, Stderr: &diag})
	if code != cli.ExitOK || diag.Len() > 0 || strings.Contains(out.String(), "sesame") || !strings.Contains(out.String(), `"value": "5"`) {
		t.Errorf("exit code %d, stdout %s, stderr %s", code, out.String(), diag.String())
	}
}

// TestCompletionOfOtherShells: a shell without completion is wrong usage.
func TestCompletionOfOtherShells(t *testing.T) {
	t.Parallel()
	if got := runProgram(t, nil, "completion", "tcsh"); got.code != cli.ExitUsage || got.stdout != "" || !strings.Contains(got.stderr, `unknown command "tcsh"`) {
		t.Errorf("%+v", got)
	}
	if got := runProgram(t, nil, "completion"); got.code != cli.ExitOK || !strings.Contains(got.stdout, "bash") {
		t.Errorf("%+v", got)
	}
}

// TestRunEndsInItsLog: with a JSON log, warnings and the error that ends the command
// are JSON lines too; otherwise they are text.
func TestRunEndsInItsLog(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, test := range []struct {
		environ   []string
		code      int
		json      bool
		said, try string
	}{
		{[]string{"LOG_FORMAT=json"}, cli.ExitUsage, true, "EXPORT_API_KEY is not set", "config docs"},
		{nil, cli.ExitUsage, true, "EXPORT_API_KEY is not set", "config docs"},
		{[]string{"LOG_FORMAT=text"}, cli.ExitUsage, false, "EXPORT_API_KEY is not set", "config docs"},
		{[]string{"LOG_FORMAT=json", "EXPORT_API_KEY=k", "HTTP_ADDR=" + taken.Addr().String()}, cli.ExitUsage, true, "address already in use", "HTTP_ADDR"},
	} {
		var out, diag bytes.Buffer
		environ := append(slices.Clone(test.environ), "EXPORT_PAGESIZE=5") // looks like a setting
		if code := Program.Run(t.Context(), []string{"run"}, environ, cli.Stdio{Stdout: &out, Stderr: &diag}); code != test.code {
			t.Errorf("%v: exit code %d", test.environ, code)
		}
		lines := strings.Split(strings.TrimSpace(diag.String()), "\n")
		if !strings.Contains(lines[0], "EXPORT_PAGESIZE") || !strings.Contains(diag.String(), test.said) || !strings.Contains(lines[len(lines)-1], test.try) {
			t.Errorf("%v: printed %s", test.environ, diag.String())
		}
		for _, line := range lines {
			if json.Valid([]byte(line)) != test.json {
				t.Errorf("%v: the line %q is JSON: %v", test.environ, line, !test.json)
			}
		}
	}
}
