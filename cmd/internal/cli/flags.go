package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TakeJSON gives the command the flag --json.
func TakeJSON(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print JSON")
}

// TakeStream gives the command the flag --stream.
func TakeStream(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "stream", "", "`NAME` of the stream, if there are several")
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

// TakeOutput adds the flag that has a command write to a file.
func TakeOutput(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "output", "", "write to `FILE`, not to standard output")
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
