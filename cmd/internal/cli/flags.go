package cli

import (
	"errors"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TakeJSON gives the command the flag --json.
func TakeJSON(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print JSON")
}

// TakeWide gives a command that prints a table the flag --wide.
func (a *App) TakeWide(cmd *cobra.Command) {
	a.tables = true
	cmd.Flags().BoolVar(&a.wide, "wide", false, "print full lines; the default fits them to the terminal width")
}

// Width is the width that tables are cut to, 0 for none.
func (a *App) Width() int {
	if a.wide {
		return 0
	}
	return a.Columns
}

// TakeStream gives the command the flag --stream.
func TakeStream(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "stream", "", "stream `NAME`, required if there are several")
}

// Renamed keeps the old spelling of a flag, which help does not show.
func Renamed(cmd *cobra.Command, old, name string) {
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, given string) pflag.NormalizedName {
		if given == old {
			given = name
		}
		return pflag.NormalizedName(given)
	})
}

// Output is where a command prints to: standard output, or a file.
type Output struct {
	file  string
	force bool
}

// TakeOutput adds the flags that have a command print to a file.
func TakeOutput(cmd *cobra.Command) *Output {
	o := new(Output)
	cmd.Flags().StringVarP(&o.file, "output", "o", "", "write to new `FILE` instead of standard output")
	cmd.Flags().BoolVar(&o.force, "force", false, "replace the file of --output")
	return o
}

// TakeExecute gives a command that changes something the flags --execute and
// --dry-run, which is the default.
func TakeExecute(cmd *cobra.Command, execute *bool) {
	dry := new(bool)
	f := cmd.Flags()
	f.VarPF(&eitherFlag{execute, dry}, "execute", "", "apply the change; without it, the command is a dry run").NoOptDefVal = "true"
	f.VarPF(&eitherFlag{dry, execute}, "dry-run", "", "show the plan and change nothing (default)").NoOptDefVal = "true"
}

// errBoth is the error of a call with both flags.
var errBoth = errors.New("--execute and --dry-run are mutually exclusive")

// eitherFlag is one of two boolean flags that exclude each other.
type eitherFlag struct{ on, other *bool }

func (f *eitherFlag) String() string { return "" }

// Type implements pflag.Value.
func (f *eitherFlag) Type() string { return "bool" }

// Set implements pflag.Value.
func (f *eitherFlag) Set(text string) error {
	on, err := strconv.ParseBool(text)
	if err == nil && on && *f.other {
		err = errBoth
	}
	*f.on = on
	return err
}

// ParsedFlag is a flag whose text a function reads.
type ParsedFlag[T any] struct {
	target *T
	parse  func(string) (T, error)
	kind   string
	text   string
}

// Parsed returns a flag whose text parse reads into target. kind stands for the
// value in the help, in capitals.
func Parsed[T any](target *T, parse func(string) (T, error), kind string) *ParsedFlag[T] {
	return &ParsedFlag[T]{target: target, parse: parse, kind: kind}
}

// Shown has the help show text as the default.
func (f *ParsedFlag[T]) Shown(text string) *ParsedFlag[T] {
	f.text = text
	return f
}

func (f *ParsedFlag[T]) String() string { return f.text }

// Type implements pflag.Value.
func (f *ParsedFlag[T]) Type() string { return f.kind }

// Set implements pflag.Value.
func (f *ParsedFlag[T]) Set(text string) error {
	value, err := f.parse(text)
	if err != nil {
		return err
	}
	*f.target, f.text = value, text
	return nil
}
