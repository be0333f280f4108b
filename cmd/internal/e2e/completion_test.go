package e2e_test

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/dev"
)

// TestOffersAreTaken: the program takes what the shell's completion offers.
func TestOffersAreTaken(t *testing.T) {
	t.Parallel()
	var settings []string
	for _, v := range config.Variables() {
		settings = append(settings, v.FlagName())
	}
	offers := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			complete, found := cmd.GetFlagCompletionFunc(f.Name)
			if !found || f.Name == "stream" || f.Name == "set" || slices.Contains(settings, f.Name) {
				return
			}
			values, _ := complete(cmd, nil, "")
			for _, value := range values {
				offers++
				if err := cmd.ParseFlags([]string{"--" + f.Name, value}); err != nil {
					t.Errorf("%s: %v", cmd.CommandPath(), err)
				}
			}
		})
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	for _, p := range []*cli.Program{&command.Program, &dev.Program} {
		walk(p.Root())
	}
	if offers < 20 {
		t.Errorf("%d values are offered", offers)
	}
}
