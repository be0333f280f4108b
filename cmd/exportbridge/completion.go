package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/cmd/internal/config"
)

// flagValues are the values of flags that take one of a few, by the path of
// their command. Those of settings are the settings' own.
var flagValues = map[string]map[string][]string{
	"exportbridge alerts":    {"rule-group": alertGroups},
	"exportbridge bench":     {"delivery": {string(bridge.ExactlyOnce), string(bridge.AtLeastOnce)}},
	"exportbridge check":     {"only": slices.Sorted(maps.Keys(checkSystems))},
	"exportbridge dlq list":  {"reason": deadletter.Reasons},
	"exportbridge dlq retry": {"reason": deadletter.Reasons},
	"exportbridge simulate": {
		"schema":         {string(exportsim.Schema08), string(exportsim.Schema07), string(exportsim.Schema05)},
		"end-of-results": {string(exportsim.EmptyCursor), string(exportsim.NullCursor), string(exportsim.NoCursor), string(exportsim.EmptyItems)},
	},
	"exportbridge tail": {"offset": {"start", "end"}},
}

// takesFile are the commands whose argument is a file.
var takesFile = []string{"exportbridge cursor import"}

// addCompletions tells the shell's completion what it cannot guess. Nothing is
// asked over the network: a shell must not wait.
func (a *app) addCompletions(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && !slices.Contains(takesFile, cmd.CommandPath()) {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	known := map[string]cobra.CompletionFunc{"stream": a.completeStream, "set": completeSet}
	for flag, values := range flagValues[cmd.CommandPath()] {
		known[flag] = cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	}
	for flag, complete := range known {
		if cmd.Flags().Lookup(flag) != nil {
			// It is there, and nobody else registers it: nothing can be wrong.
			_ = cmd.RegisterFlagCompletionFunc(flag, complete)
		}
	}
	for _, sub := range cmd.Commands() {
		a.addCompletions(sub)
	}
}

// completeStream offers the streams that the settings name.
func (a *app) completeStream(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	s, err := a.settings(0, nil)
	if s == nil {
		cobra.CompDebugln(err.Error(), false)
		return nil, cobra.ShellCompDirectiveError
	}
	names := make([]string, len(s.Streams)) // with an error those that can be used
	for i := range s.Streams {
		names[i] = s.Streams[i].Name
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeSet offers for --set the variables that have a place on the command
// line, then the values where there are a few.
func completeSet(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	name, _, named := strings.Cut(typed, "=")
	var offers []string
	for _, v := range config.Variables() {
		switch {
		case !named && !v.Secret:
			offers = append(offers, cobra.CompletionWithDesc(v.Name+"=", v.Description))
		case named && v.Name == name:
			for _, value := range v.Values {
				offers = append(offers, name+"="+value)
			}
		}
	}
	return offers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
