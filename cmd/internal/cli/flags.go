package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// takeJSON gives the command the flag --json.
func TakeJSON(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print JSON")
}

// takeStream gives the command the flag --stream.
func TakeStream(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "stream", "", "`NAME` of the stream, if there are several")
}

// renamed keeps the old spelling of a flag, which help does not show.
func Renamed(cmd *cobra.Command, old, name string) {
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, given string) pflag.NormalizedName {
		if given == old {
			given = name
		}
		return pflag.NormalizedName(given)
	})
}

// takeOutput adds the flag that has a command write to a file.
func TakeOutput(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "output", "", "write to `FILE`, not to standard output")
}

// parsedFlag is a flag whose text a function reads.
type ParsedFlag[T any] struct {
	Target *T
	Parse  func(string) (T, error)
	Kind   string
	text   string
}

func Parsed[T any](target *T, parse func(string) (T, error), kind string) *ParsedFlag[T] {
	return &ParsedFlag[T]{Target: target, Parse: parse, Kind: kind}
}

// shown has the help show text as the default.
func (f *ParsedFlag[T]) Shown(text string) *ParsedFlag[T] {
	f.text = text
	return f
}

func (f *ParsedFlag[T]) String() string { return f.text }

func (f *ParsedFlag[T]) Type() string { return f.Kind }

func (f *ParsedFlag[T]) Set(text string) error {
	value, err := f.Parse(text)
	if err != nil {
		return err
	}
	*f.Target, f.text = value, text
	return nil
}
