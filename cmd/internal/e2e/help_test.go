package e2e_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"exportbridge/cmd/internal/command"
	"exportbridge/cmd/internal/dev"
)

// TestHelpWidth: the help of every command of both programs fits into 80 columns.
func TestHelpWidth(t *testing.T) {
	t.Parallel()
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		var help bytes.Buffer
		cmd.SetOut(&help)
		if err := cmd.Help(); err != nil || help.Len() == 0 {
			t.Errorf("%s: no help: %v", cmd.CommandPath(), err)
		}
		for line := range strings.Lines(help.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s --help has a line of %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(command.Program.Root())
	check(dev.Program.Root())
}
