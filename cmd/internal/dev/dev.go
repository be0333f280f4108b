// Package dev is the program to try and measure exportbridge: the demo, the simulated
// export API, and the bench.
package dev

import (
	"github.com/spf13/cobra"

	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command/setup"
	"exportbridge/cmd/internal/dev/bench"
)

// groupTry is the only group of commands in the help besides cli.GroupSetup.
const groupTry = "try"

// Program is exportbridge-dev, which embeds all servers that exportbridge needs. It is
// another program, so that the fake Kafka and Redis are not in the production binary.
var Program = cli.Program{
	Name:  "exportbridge-dev",
	Short: "Try and measure exportbridge without installation",
	Long: `exportbridge-dev contains a simulated export API, an embedded Kafka and an
embedded Redis to run exportbridge against.`,
	Example: `  exportbridge-dev demo
  exportbridge-dev simulate --rate 500/s --fail 429=1%
  exportbridge-dev bench --list`,
	Groups: []*cobra.Group{{ID: groupTry, Title: "Try and measure:"}},
	Commands: func(a *cli.App) []*cobra.Command {
		return []*cobra.Command{newDemoCommand(a), newSimulateCommand(a), bench.NewCommand(a, groupTry),
			setup.NewHealthcheckCommand(a)}
	},
}
