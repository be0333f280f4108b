// Package records holds the commands that read the records of topics: of the events, of
// the dead letters, and of both to compare them with the export.
package records

import (
	"github.com/spf13/cobra"

	"exportbridge/cmd/internal/cli"
)

// Commands returns the commands of the package.
func Commands(a *cli.App) []*cobra.Command {
	return []*cobra.Command{
		newTailCommand(a),
		newDLQCommand(a),
		newVerifyCommand(a),
		newAttestCommand(a),
		newForgetCommand(a),
		newKeysCommand(a),
	}
}
