// Package setup holds the commands that prepare and check a deployment.
package setup

import (
	"github.com/spf13/cobra"

	"exportbridge/cmd/internal/cli"
)

// Commands returns the commands of the package.
func Commands(a *cli.App) []*cobra.Command {
	return []*cobra.Command{
		newConfigCommand(a),
		newLearnCommand(a),
		newCheckCommand(a),
		newTopicsCommand(a),
		newAlertsCommand(a),
		newDashboardCommand(a),
		newTokenCommand(a),
		NewHealthcheckCommand(a),
	}
}
