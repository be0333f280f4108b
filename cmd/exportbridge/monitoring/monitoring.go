// Package monitoring holds the alert rules for Prometheus and the dashboard for
// Grafana.
package monitoring

import (
	"embed"
	"slices"
	"strings"
)

// Dashboard is the dashboard for Grafana, as JSON to import.
//
//go:embed dashboard.json
var Dashboard string

// Groups are the groups of rules, in the order in which Rules returns them.
var Groups = []string{"health", "flow", "source", "kafka"}

// files are rule files of one group each, which is named after the file.
//
//go:embed alerts_*.yml
var files embed.FS

// Rules returns one rule file with the groups of these names; others are
// ignored.
func Rules(groups []string) string {
	const head = "groups:\n"
	var all strings.Builder
	all.WriteString(head)
	for _, group := range Groups {
		if !slices.Contains(groups, group) {
			continue
		}
		text, err := files.ReadFile("alerts_" + group + ".yml")
		if err != nil {
			panic(err) // the files are part of the program
		}
		all.WriteString(strings.TrimPrefix(string(text), head))
	}
	return all.String()
}
