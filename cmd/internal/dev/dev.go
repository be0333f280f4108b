// Package dev is the program that exportbridge is tried and measured with: the
// demo, the simulated export API, and the bench.
package dev

import (
	"github.com/spf13/cobra"

	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command/setup"
	"exportbridge/cmd/internal/dev/bench"
)

// groupTry is the only group of commands in the help beside cli.GroupSetup.
const groupTry = "try"

// Program is exportbridge-dev, which has everything embedded that exportbridge
// needs: a fake Kafka and Redis are not linked into what runs in production.
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
