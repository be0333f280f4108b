package setup

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"exportbridge/cmd/exportbridge/monitoring"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
)

var allGroups = strings.Join(monitoring.Groups, ", ")

func newAlertsCommand(a *cli.App) *cobra.Command {
	var groups []string
	cmd := &cobra.Command{
		Use:   "alerts",
		Short: "Print Prometheus alert rules",
		Long: `Print alert rules for the rule_files of Prometheus. Each rule names the command
that shows or repairs the problem. The severity is page (act now) or ticket.`,
		Example: `  exportbridge alerts > exportbridge.rules.yml
  exportbridge alerts --output /etc/prometheus/exportbridge.rules.yml --force
  exportbridge alerts --rule-group health --rule-group flow`,
		GroupID: cli.GroupSetup,
		Args:    cli.NoArgs,
	}
	cmd.Flags().StringSliceVar(&groups, "rule-group", monitoring.Groups, "print rules of `GROUP`: "+allGroups)
	cli.Offer(cmd, "rule-group", monitoring.Groups...)
	output := cli.TakeOutput(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		text, err := alertRules(groups)
		if err != nil {
			return err
		}
		return a.PrintTo(output, text)
	}
	return cmd
}

// alertRules returns one rule file with the groups.
func alertRules(groups []string) (string, error) {
	if len(groups) == 0 {
		return "", cli.WrongUsage("--rule-group "+monitoring.Groups[0], "--rule-group is empty")
	}
	for _, group := range groups {
		if !slices.Contains(monitoring.Groups, group) {
			near := cmp.Or(config.Nearest(group, monitoring.Groups), monitoring.Groups[0])
			return "", cli.WrongUsage("--rule-group "+near, "unknown rule group %q; groups are %s", group, allGroups)
		}
	}
	return monitoring.Rules(groups), nil
}
