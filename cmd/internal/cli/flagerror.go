package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"exportbridge/cmd/internal/config"
)

// explainFlag adds a hint to an error of the flag parser.
func explainFlag(cmd *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	if value, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return explainValue(cmd, value)
	}
	wrong := &Error{Code: ExitUsage, Err: err, Hint: cmd.CommandPath() + " --help"}
	missing, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return wrong
	}
	if cmd.HasSubCommands() {
		// The flag may belong to a subcommand.
		if unknown := NoSubcommand(cmd, cmd.Flags().Args()); unknown != nil {
			return unknown
		}
	}
	if missing.GetSpecifiedShortnames() != "" {
		return wrong
	}
	name := missing.GetSpecifiedName()
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := cmp.Or(config.Nearest(name, names), onlyWith(name, names)); near != "" {
		wrong.Hint = cmd.CommandPath() + " --" + near
	} else if begin := beginFlag(cmd, name); begin != "" {
		wrong.Hint = cmd.CommandPath() + " " + begin
	}
	for _, v := range config.Variables() {
		if v.Secret && v.FlagName() == name {
			wrong.Err = fmt.Errorf("%s is a secret: secrets have no flags", v.Name)
			wrong.Hint = fmt.Sprintf("set %s, or set %s%s to a file with the value", v.Name, v.Name, config.FileSuffix)
		}
	}
	return wrong
}

// onlyWith returns the name that begins with prefix, "" unless there is exactly one.
func onlyWith(prefix string, names []string) string {
	found := ""
	for _, name := range names {
		switch {
		case !strings.HasPrefix(name, prefix):
		case found != "":
			return ""
		default:
			found = name
		}
	}
	return found
}

// beginFlag returns the command's flag for the beginning of a range if another command calls
// that flag name; else "".
func beginFlag(cmd *cobra.Command, name string) string {
	names := []string{"from", "since", "offset"}
	if !slices.Contains(names, name) {
		return ""
	}
	for _, other := range names {
		if f := cmd.Flags().Lookup(other); f != nil && takesTime(cmd) {
			return "--" + other + map[bool]string{true: " @TIME", false: " TIME"}[other == "offset"]
		}
	}
	return ""
}

// explainValue describes a wrong value of a flag, and corrects it if possible.
func explainValue(cmd *cobra.Command, e *pflag.InvalidValueError) error {
	flag, value, cause := e.GetFlag(), e.GetValue(), e.Unwrap()
	if errors.Is(cause, errBoth) { // its text needs no value, which pflag would add
		return WrongUsage(cmd.CommandPath()+" --help", "%w", cause)
	}
	name, right := "--"+flag.Name, ""
	if flag.Shorthand != "" {
		name = "-" + flag.Shorthand
	}
	what := cause.Error()
	switch _, noNumber := strconv.ParseFloat(value, 64); {
	case flag.Value.Type() == "bool":
		what = "is neither true nor false"
	case errors.Is(cause, strconv.ErrRange):
		what = "is out of range"
	case errors.Is(cause, strconv.ErrSyntax):
		what = "is not a whole number"
		if flag.DefValue != "0" {
			right = flag.DefValue
		}
	case flag.Value.Type() == "DURATION" && noNumber == nil && len(value) < len("100000"):
		right = value + "m"
		what = fmt.Sprintf("has no unit, such as %ss, %s or %sh", value, right, value)
	}
	if !strings.HasPrefix(what, "is ") && !strings.HasPrefix(what, "has ") {
		what = "is wrong: " + what
	}
	hint := cmd.CommandPath() + " --help"
	if right != "" {
		hint = fmt.Sprintf("%s %s %s", cmd.CommandPath(), name, right)
	}
	return WrongUsage(hint, "%s %q %s", name, value, what)
}
