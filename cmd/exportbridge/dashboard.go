package main

import (
	_ "embed"

	"github.com/spf13/cobra"
)

//go:embed monitoring/dashboard.json
var dashboard string

func newDashboardCommand(a *app) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Print a dashboard for Grafana",
		Long: `Print a dashboard for Grafana, to be imported there or put where its provisioning
looks. It asks for the Prometheus data source and shows one or several streams.`,
		Example: "  exportbridge dashboard > exportbridge.json",
		GroupID: groupSetup,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.printTo(file, dashboard)
		},
	}
	takeOutput(cmd, &file)
	return cmd
}
