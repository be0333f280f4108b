package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"exportbridge/cmd/internal/config"
)

// Offer has the shell complete a flag of the command with the values that it
// takes.
func Offer(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the command has no such flag
	}
}

// OfferFiles has the shell complete the command's argument with files.
func OfferFiles(cmd *cobra.Command) {
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveDefault
	}
}

// addCompletions tells the shell's completion what it cannot guess. Nothing is
// asked over the network: a shell must not wait.
func (a *App) addCompletions(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	known := map[string]cobra.CompletionFunc{"stream": a.completeStream, "set": completeSet}
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
func (a *App) completeStream(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	s, err := a.Settings(0, nil)
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
