package main

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"exportbridge/cmd/internal/config"
)

// alertFiles are rule files of one group each, which is named after the file.
//
//go:embed monitoring/alerts_*.yml
var alertFiles embed.FS

// alertGroups are the groups of rules, in the order in which they are printed.
var alertGroups = []string{"health", "flow", "source", "kafka"}

func newAlertsCommand(a *app) *cobra.Command {
	var groups []string
	var file string
	cmd := &cobra.Command{
		Use:   "alerts",
		Short: "Print alert rules for Prometheus",
		Long: `Print alert rules for Prometheus, for its rule_files. Each one names the command
that shows or repairs what it is about. The severity is page (somebody must look
now) or ticket.`,
		Example: `  exportbridge alerts > exportbridge.rules.yml
  exportbridge alerts --output /etc/prometheus/exportbridge.rules.yml
  exportbridge alerts --rule-group health --rule-group flow`,
		GroupID: groupSetup,
		Args:    noArgs,
	}
	cmd.Flags().StringSliceVar(&groups, "rule-group", alertGroups, "only this `GROUP` of rules: "+strings.Join(alertGroups, ", "))
	takeOutput(cmd, &file)
	cmd.RunE = func(*cobra.Command, []string) error {
		text, err := alertRules(groups)
		if err != nil {
			return err
		}
		return a.printTo(file, text)
	}
	return cmd
}

// alertRules returns one rule file with the groups.
func alertRules(groups []string) (string, error) {
	if len(groups) == 0 {
		return "", &exitError{code: exitUsage, err: errors.New("--rule-group is empty"), hint: "--rule-group " + alertGroups[0]}
	}
	for _, group := range groups {
		if !slices.Contains(alertGroups, group) {
			return "", &exitError{
				code: exitUsage, err: fmt.Errorf("there is no group of rules %q, only %s", group, strings.Join(alertGroups, ", ")),
				hint: "--rule-group " + cmp.Or(config.Nearest(group, alertGroups), alertGroups[0]),
			}
		}
	}
	const head = "groups:\n"
	var all strings.Builder
	all.WriteString(head)
	for _, group := range alertGroups {
		if !slices.Contains(groups, group) {
			continue
		}
		text, err := alertFiles.ReadFile("monitoring/alerts_" + group + ".yml")
		if err != nil {
			return "", err // cannot be: the files are part of the program
		}
		all.WriteString(strings.TrimPrefix(string(text), head))
	}
	return all.String(), nil
}
