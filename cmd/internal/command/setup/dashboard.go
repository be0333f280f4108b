package setup

import (
	"github.com/spf13/cobra"

	"exportbridge/cmd/exportbridge/monitoring"
	"exportbridge/cmd/internal/cli"
)

func newDashboardCommand(a *cli.App) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Print a Grafana dashboard",
		Long: `Print a Grafana dashboard for import or provisioning. It asks for the Prometheus
data source and shows one or several streams.`,
		Example: "  exportbridge dashboard > exportbridge.json",
		GroupID: cli.GroupSetup,
		Args:    cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.PrintTo(file, monitoring.Dashboard)
		},
	}
	cli.TakeOutput(cmd, &file)
	return cmd
}
