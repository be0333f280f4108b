package cli

import (
	"errors"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TakeJSON adds the flag --json.
func TakeJSON(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print JSON")
}

// TakeWide adds the flag --wide to a command that prints a table.
func (a *App) TakeWide(cmd *cobra.Command) {
	a.tables = true
	cmd.Flags().BoolVar(&a.wide, "wide", false, "print full lines; the default fits them to the terminal width")
}

// Width returns the maximum width of tables, 0 for no limit.
func (a *App) Width() int {
	if a.wide {
		return 0
	}
	return a.Columns
}

// TakeStream adds the flag --stream.
func TakeStream(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "stream", "", "stream `NAME`, required if there are several")
}

// TakeStreams adds the flag --stream of a command that takes all streams without it.
func TakeStreams(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "stream", "", "stream `NAME` (default all of BRIDGE_STREAMS)")
}

// Renamed makes a command also accept the old name of a flag. Help does not show the old
// name.
func Renamed(cmd *cobra.Command, old, name string) {
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, given string) pflag.NormalizedName {
		if given == old {
			given = name
		}
		return pflag.NormalizedName(given)
	})
}

// Output is the output of a command: standard output, or a file.
type Output struct {
	file   string
	force  bool
	beside *Output // another output, whose --force counts here too; may be nil
	flag   string  // "" for output
}

// Named reports whether the flag names a file.
func (o *Output) Named() bool { return o.file != "" }

// TakeFile adds a flag for another file beside that of TakeOutput. --force replaces both.
func TakeFile(cmd *cobra.Command, beside *Output, name, usage string) *Output {
	o := &Output{beside: beside, flag: name}
	cmd.Flags().StringVar(&o.file, name, "", usage)
	cmd.Flags().Lookup("force").Usage = "replace the files of --output and --" + name
	return o
}

// TakeOutput adds the flags --output and --force.
func TakeOutput(cmd *cobra.Command) *Output {
	o := new(Output)
	cmd.Flags().StringVarP(&o.file, "output", "o", "", "write to new `FILE` instead of standard output")
	cmd.Flags().BoolVar(&o.force, "force", false, "replace the file of --output")
	return o
}

// TakeExecute adds the flags --execute and --dry-run, which is the default.
func TakeExecute(cmd *cobra.Command, execute *bool) {
	dry := new(bool)
	take := func(name, usage string, target, other *bool) {
		parse := func(text string) (bool, error) {
			on, err := strconv.ParseBool(text)
			if err == nil && on && *other {
				err = errBoth
			}
			return on, err
		}
		cmd.Flags().VarPF(Parsed(target, parse, "bool"), name, "", usage).NoOptDefVal = "true"
	}
	take("execute", "apply the change; without it, the command is a dry run", execute, dry)
	take("dry-run", "show the plan and change nothing (default)", dry, execute)
}

// errBoth is the error of a command with both flags.
var errBoth = errors.New("--execute and --dry-run are mutually exclusive")

// parsedFlag is a flag that a function parses.
type parsedFlag[T any] struct {
	target *T
	parse  func(string) (T, error)
	kind   string
	text   string
}

// Parsed returns a flag whose value parse reads into target. kind names the value in the
// help, in capitals.
func Parsed[T any](target *T, parse func(string) (T, error), kind string) *parsedFlag[T] {
	return &parsedFlag[T]{target: target, parse: parse, kind: kind}
}

// Shown sets the default for the help.
func (f *parsedFlag[T]) Shown(text string) *parsedFlag[T] {
	f.text = text
	return f
}

func (f *parsedFlag[T]) String() string { return f.text }

// Type implements pflag.Value.
func (f *parsedFlag[T]) Type() string { return f.kind }

// Set implements pflag.Value.
func (f *parsedFlag[T]) Set(text string) error {
	value, err := f.parse(text)
	if err != nil {
		return err
	}
	*f.target, f.text = value, text
	return nil
}
