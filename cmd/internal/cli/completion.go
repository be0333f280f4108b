package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"exportbridge/cmd/internal/config"
)

// Offer has the shell complete a flag of the command with the values that it
// takes.
func Offer(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the command has no such flag
	}
}

// OfferLookup has the shell complete a flag of the command as Lookup does.
func OfferLookup(cmd *cobra.Command, flag string, look func(context.Context) ([]string, error)) {
	if err := cmd.RegisterFlagCompletionFunc(flag, Lookup(look)); err != nil {
		panic(err) // the command has no such flag
	}
}

// lookupTimeout bounds what a completion asks servers: a shell must not wait.
const lookupTimeout = time.Second

// Lookup completes a flag or an argument with what look finds on the servers within
// a second. Errors, such as servers that are away, offer nothing.
func Lookup(look func(context.Context) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp // the argument is given
		}
		ctx := cmd.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
		defer cancel()
		found, err := look(ctx)
		if err != nil {
			cobra.CompDebugln(err.Error(), false)
		}
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// OfferFiles has the shell complete the command's argument with files.
func OfferFiles(cmd *cobra.Command) {
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveDefault
	}
}

// describePlainly removes the backticks that mark the value in a flag's usage: a
// shell shows the usage as it is.
func describePlainly(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
	for _, sub := range cmd.Commands() {
		describePlainly(sub)
	}
}

// addCompletions tells the shell's completion what it cannot guess.
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
// line, then their values.
func completeSet(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	name, _, named := strings.Cut(typed, "=")
	var offers []string
	for _, v := range config.Variables() {
		switch {
		case !named && !v.Secret:
			offers = append(offers, cobra.CompletionWithDesc(v.Name+"=", v.Description))
		case named && v.Name == name:
			for _, value := range v.Choices() {
				offers = append(offers, name+"="+value)
			}
		}
	}
	return offers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
