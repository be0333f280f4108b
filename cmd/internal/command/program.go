// Package command has the commands of exportbridge, the program for production. Each
// command parses its flags, calls one use case, and prints the result.
package command

import (
	"slices"

	"github.com/spf13/cobra"

	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command/records"
	"exportbridge/cmd/internal/command/schema"
	"exportbridge/cmd/internal/command/setup"
)

// groupRun is a group of commands in the help, besides those of package cli.
const groupRun = "run"

// Program is exportbridge, the program for production.
var Program = cli.Program{
	Name:  "exportbridge",
	Short: "Turn a paginated export API into a Kafka topic",
	Long: `exportbridge follows the cursor of a paginated export API and publishes every
event to Kafka. By default, events and cursor are committed in one Kafka
transaction, and Redis keeps a copy of the cursor.`,
	Example: `  EXPORT_API_KEY_FILE=key exportbridge check          # check the setup
  EXPORT_API_KEY_FILE=key exportbridge run
  exportbridge cursor rewind --to-datetime -2h --execute`,
	Groups: []*cobra.Group{
		{ID: groupRun, Title: "Run:"},
		{ID: cli.GroupPosition, Title: "Inspect and control:"},
	},
	Commands: func(a *cli.App) []*cobra.Command {
		return append(slices.Concat(setup.Commands(a), records.Commands(a), schema.Commands(a)),
			newRunCommand(a),
			newStatusCommand(a),
			newCursorCommand(a),
			newPauseCommand(a),
			newResumeCommand(a),
			newReplayCommand(a),
			newBackfillCommand(a),
		)
	},
}
