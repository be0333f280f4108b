package setup

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
)

func newConfigCommand(a *cli.App) *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:                   "config",
		Short:                 "Show and document the settings",
		Example:               "  exportbridge config show",
		GroupID:               cli.GroupSetup,
		DisableFlagsInUseLine: true,
	}, newConfigShowCommand(a), newConfigDocsCommand(a), newConfigEnvCommand(a), newConfigSchemaCommand(a),
		newConfigImportCommand(a), newConfigProfileCommand(a))
}

func newConfigShowCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print effective settings and their origins",
		Long: `Print the effective settings and their origins. Secrets are masked. Invalid
settings are reported too; the exit code is then 2.`,
		Example: `  exportbridge config show
  exportbridge config show --json --kafka-brokers kafka-1:9092`,
		Args: cli.NoArgs,
	}
	asJSON := cli.TakeJSON(cmd)
	a.TakeWide(cmd)
	a.TakeSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, wrong := a.Settings(config.UsesAll, nil)
		if s == nil {
			return wrong
		}
		if wrong == nil && !*asJSON {
			a.Warn(s)
		}
		if err := showSettings(a, s, *asJSON); err != nil {
			return err
		}
		return wrong
	}
	return cmd
}

func showSettings(a *cli.App, s *config.Settings, asJSON bool) error {
	if asJSON {
		return cli.PrintJSON(a.Stdout, struct {
			Settings []config.Setting `json:"settings"`
			Warnings []string         `json:"warnings,omitempty"`
		}{s.Effective, s.Warnings})
	}
	table := [][]string{{"VARIABLE", "VALUE", "ORIGIN"}}
	for _, row := range s.Effective {
		table = append(table, []string{row.Variable, row.Shown(), row.Where()})
	}
	return a.PrintTable(table)
}

func newConfigProfileCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "profile [NAME]",
		Short: "Print a profile, or list the profiles",
		Long: `Print the file of a profile: what it sets, where that is documented, and
commented out, with an example, what is to be set. Without a name, list the
profiles. EXPORT_PROFILE selects one by its name, or a file by its path.`,
		Example: `  exportbridge config profile
  exportbridge config profile okta-system-log
  exportbridge config profile generic > acme.env
  EXPORT_PROFILE=./acme.env exportbridge check --only api`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: config.ProfileNames(),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.PrintTable(config.Profiles())
			}
			text, ok := config.Profile(args[0])
			if !ok {
				names := strings.Join(config.ProfileNames(), ", ")
				return cli.WrongUsage("exportbridge config profile", "%q is not a profile; one of: %s", args[0], names)
			}
			_, err := io.WriteString(a.Stdout, text)
			return err
		},
	}
}

// The lines around the settings table in a text.
const (
	docsBegin = "<!-- settings -->"
	docsEnd   = "<!-- /settings -->"
)

func newConfigDocsCommand(a *cli.App) *cobra.Command {
	var check, write string
	cmd := &cobra.Command{
		Use:   "docs",
		Short: "Print all settings as a Markdown table",
		Long: `Print all settings as a Markdown table, or update the table in a file, between
the lines ` + docsBegin + " and " + docsEnd + `.`,
		Example: `  exportbridge config docs
  exportbridge config docs --write settings.md
  exportbridge config docs --check settings.md`,
		Args: cli.NoArgs,
	}
	cmd.Flags().StringVar(&check, "check", "", "fail if the table in `FILE` is outdated")
	cmd.Flags().StringVar(&write, "write", "", "update the table in `FILE`")
	cmd.RunE = func(*cobra.Command, []string) error {
		switch {
		case check != "" && write != "":
			return cli.WrongUsage("--check "+check, "--check and --write are mutually exclusive")
		case check != "":
			return checkDocs(check)
		case write != "":
			return writeDocs(write)
		}
		_, err := io.WriteString(a.Stdout, config.Markdown(config.Variables()))
		return err
	}
	return cmd
}

func checkDocs(path string) error {
	text, updated, err := docsIn(path)
	if err != nil {
		return err
	}
	if text != updated {
		hint := "exportbridge config docs --write " + path
		return cli.Errorf(cli.ExitFailed, hint, "the settings table in %s is out of date", path)
	}
	return nil
}

func writeDocs(path string) error {
	text, updated, err := docsIn(path)
	if err != nil || text == updated {
		return err
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return cli.WrongUsage("exportbridge config docs > FILE", "--write %s: not a regular file", path)
	}
	return os.WriteFile(path, []byte(updated), info.Mode())
}

// docsIn returns the text of a file, before and after an update of its table.
func docsIn(path string) (text, updated string, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	before, rest, begins := strings.Cut(string(content), docsBegin+"\n")
	_, after, ends := strings.Cut(rest, docsEnd)
	if !begins || !ends {
		return "", "", fmt.Errorf("find the settings table in %s: no lines %s and %s", path, docsBegin, docsEnd)
	}
	table := config.Markdown(config.Variables())
	return string(content), before + docsBegin + "\n" + table + docsEnd + after, nil
}

func newConfigEnvCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "env",
		Short: "Print a commented .env file with all settings",
		Long: `Print a commented .env file with all settings and their defaults: those of the
profile, if EXPORT_PROFILE names one. Values that you have set are not printed.`,
		Example: `  exportbridge config env > .env
  exportbridge config env --export-profile generic > .env
  exportbridge config show --env-file .env`,
		Args: cli.NoArgs,
	}
	a.TakeSettings(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		profile, err := a.Profile()
		if err != nil {
			return err
		}
		_, err = io.WriteString(a.Stdout, config.EnvTemplate(config.Variables(), profile))
		return err
	}
	return cmd
}

func newConfigSchemaCommand(a *cli.App) *cobra.Command {
	var file bool
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of all settings",
		Long: `Print the JSON Schema (2020-12) of an object with settings as members, for
editors and deployment tools. A member is named after its variable; an object
can hold a subset of the settings. With --file, print the schema of the file
that BRIDGE_CONFIG names. "config show" also checks that the settings fit
together.`,
		Example: `  exportbridge config schema > exportbridge.schema.json
  exportbridge config schema --file > streams.schema.json`,
		Args: cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if file {
				return cli.PrintJSON(a.Stdout, config.FileSchema(config.Variables()))
			}
			return cli.PrintJSON(a.Stdout, config.Schema(config.Variables()))
		},
	}
	cmd.Flags().BoolVar(&file, "file", false, "print the schema of the file of BRIDGE_CONFIG")
	return cmd
}

func newConfigImportCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import-env",
		Short: "Print a file for BRIDGE_CONFIG from variables",
		Long: `Print a file for BRIDGE_CONFIG with the settings that flags, variables and
--env-file set. Secrets stay where they are: the file has only the paths of
their files. Variables take precedence over the file: unset those that it has.`,
		Example: `  exportbridge config import-env --env-file .env > streams.yaml
  exportbridge config show --bridge-config streams.yaml`,
		Args: cli.NoArgs,
	}
	a.TakeSettings(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		s, err := a.Settings(config.UsesAll, nil)
		if err != nil {
			return err
		}
		a.Warn(s)
		text, stay, err := s.ImportEnv()
		if err != nil {
			return cli.WrongUsage("unset BRIDGE_CONFIG", "%w", err)
		}
		for _, line := range stay {
			fmt.Fprintf(a.Stderr, "note: %s\n", line)
		}
		_, err = io.WriteString(a.Stdout, text)
		return err
	}
	return cmd
}
