package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestTakeExecute: a dry run is the default, and excludes --execute.
func TestTakeExecute(t *testing.T) {
	t.Parallel()
	const both = "--execute and --dry-run are mutually exclusive"
	for args, want := range map[string]string{
		"": "dry", "--dry-run": "dry", "--execute": "execute", "--execute=false --dry-run": "dry",
		"--execute --dry-run=false": "execute",
		"--execute --dry-run":       both, "--dry-run --execute": both,
		"--dry-run=perhaps": "--dry-run \"perhaps\" is neither true nor false",
	} {
		var execute bool
		cmd := &cobra.Command{}
		TakeExecute(cmd, &execute)
		got := "dry"
		if err := cmd.ParseFlags(strings.Fields(args)); err != nil {
			got = explainFlag(cmd, err).Error()
		} else if execute {
			got = "execute"
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
}
