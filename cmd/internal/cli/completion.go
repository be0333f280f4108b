package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"exportbridge/cmd/internal/config"
)

// Offer completes a flag with its values.
func Offer(cmd *cobra.Command, flag string, values ...string) {
	complete(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// OfferLookup completes a flag with Lookup(look).
func OfferLookup(cmd *cobra.Command, flag string, look func(context.Context) ([]string, error)) {
	complete(cmd, flag, Lookup(look))
}

func complete(cmd *cobra.Command, flag string, with cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, with); err != nil {
		panic(err) // the command has no such flag
	}
}

// lookupTimeout bounds the lookup of a completion, because the shell waits for it.
const lookupTimeout = time.Second

// Lookup completes a flag or an argument with the result of look. It offers nothing if look
// takes longer than a second or fails.
func Lookup(look func(context.Context) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp // the command has its argument
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

// OfferFiles completes the command's argument with files.
func OfferFiles(cmd *cobra.Command) {
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveDefault
	}
}

// describePlainly removes the backticks around the value in a flag's usage: a shell would
// show them.
func describePlainly(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
	for _, sub := range cmd.Commands() {
		describePlainly(sub)
	}
}

// addCompletions completes --stream and --set. It completes no argument by default.
func (a *App) addCompletions(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	known := map[string]cobra.CompletionFunc{"stream": a.completeStream, "set": completeSet}
	for flag, with := range known {
		if cmd.Flags().Lookup(flag) != nil {
			complete(cmd, flag, with)
		}
	}
	for _, sub := range cmd.Commands() {
		a.addCompletions(sub)
	}
}

// completeStream offers the streams of the settings.
func (a *App) completeStream(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	s, err := a.Settings(0, nil)
	if s == nil {
		cobra.CompDebugln(err.Error(), false)
		return nil, cobra.ShellCompDirectiveError
	}
	return s.Names(), cobra.ShellCompDirectiveNoFileComp // after an error those that can be read
}

// completeSet offers the variables that are not secret for --set, then their values.
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
