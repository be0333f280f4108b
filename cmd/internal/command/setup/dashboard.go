package setup

import (
	"github.com/spf13/cobra"

	"exportbridge/cmd/exportbridge/monitoring"
	"exportbridge/cmd/internal/cli"
)

func newDashboardCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Print a Grafana dashboard",
		Long: `Print a Grafana dashboard for import or provisioning. It asks for the Prometheus
data source and shows one or several streams.`,
		Example: "  exportbridge dashboard > exportbridge.json",
		GroupID: cli.GroupSetup,
		Args:    cli.NoArgs,
	}
	output := cli.TakeOutput(cmd)
	cmd.RunE = func(*cobra.Command, []string) error { return a.PrintTo(output, monitoring.Dashboard) }
	return cmd
}
