package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestTakeExecute: a dry run is the default, and excludes --execute.
func TestTakeExecute(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"": "dry", "--dry-run": "dry", "--execute": "execute", "--execute=false --dry-run": "dry", "--execute --dry-run=false": "execute",
		"--execute --dry-run": "mutually exclusive", "--dry-run --execute": "mutually exclusive", "--dry-run=perhaps": "invalid",
	} {
		var execute bool
		cmd := &cobra.Command{}
		TakeExecute(cmd, &execute)
		got := "dry"
		if err := cmd.ParseFlags(strings.Fields(args)); err != nil {
			got = err.Error()
		} else if execute {
			got = "execute"
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
}
