package command

import (
	"bytes"
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
