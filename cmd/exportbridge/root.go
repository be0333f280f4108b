package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"exportbridge/cmd/internal/config"
)

// Exit codes of the program.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2 // wrong usage or configuration
	exitCheck       = 3 // check found a blocking problem
	exitNotOwner    = 4 // the stream is somebody else's by now
	exitRefused     = 5 // refused by the other side, or blocked
	exitInterrupted = 130
)

// Groups of commands in the help.
const (
	groupRun      = "run"
	groupPosition = "position"
	groupSetup    = "setup"
)

// stdio is where a command reads and writes: data on stdout, everything
// else on stderr.
type stdio struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}

// app is what the commands share: one process runs one command.
type app struct {
	stdio
	environ []string
	given   map[string]string // settings from flags, by variable
	envFile string
	started bool // the arguments were understood
}

// run is the program: it runs the command that args name with the variables of
// environ (NAME=VALUE) and returns the exit code. It ends early, as gracefully
// as the command can, when ctx is cancelled.
func run(ctx context.Context, args, environ []string, std stdio) int {
	a := &app{stdio: std, environ: environ, given: make(map[string]string)}
	root := newRootCommand(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil {
		err = a.classify(ctx, err)
		printError(std.stderr, err)
	}
	return exitCode(err)
}

func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "exportbridge",
		Short: "Turn a paginated export API into a Kafka topic",
		Long: `exportbridge follows the cursor of a paginated export API, publishes every
event to Kafka, and keeps the committed cursor in Redis.`,
		Example: `  exportbridge demo                                   # no installation needed
  EXPORT_API_KEY_FILE=key exportbridge check          # is everything there?
  EXPORT_API_KEY_FILE=key exportbridge run
  exportbridge cursor rewind --to-datetime -2h --execute`,
		Version:               readBuildInfo().String(),
		Args:                  noSubcommand,
		RunE:                  showHelp,
		DisableFlagsInUseLine: true,
		SilenceErrors:         true,
		SilenceUsage:          true,
		// No other command may have a PersistentPreRun: cobra runs only one.
		PersistentPreRun: func(*cobra.Command, []string) { a.started = true },
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(explainFlag)
	root.SetUsageTemplate(usageTemplate(root.UsageTemplate()))
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Run it:"},
		&cobra.Group{ID: groupPosition, Title: "Look and steer:"},
		&cobra.Group{ID: groupSetup, Title: "Set it up:"},
	)
	root.SetHelpCommandGroupID(groupSetup)
	root.SetCompletionCommandGroupID(groupSetup)
	root.AddCommand(commands(a)...)
	// Added by cobra at the start otherwise, too late for suggestions.
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	a.addCompletions(root)
	return root
}

// commands are all commands of the program.
func commands(a *app) []*cobra.Command {
	return []*cobra.Command{
		newRunCommand(a),
		newDemoCommand(a),
		newSimulateCommand(a),
		newTailCommand(a),
		newStatusCommand(a),
		newCursorCommand(a),
		newPauseCommand(a),
		newResumeCommand(a),
		newReplayCommand(a),
		newBackfillCommand(a),
		newDLQCommand(a),
		newVerifyCommand(a),
		newConfigCommand(a),
		newCheckCommand(a),
		newTopicsCommand(a),
		newHealthcheckCommand(a),
		newAlertsCommand(a),
		newDashboardCommand(a),
		newBenchCommand(a),
		newVersionCommand(a),
	}
}

// usageTemplate adds to cobra's how settings are given.
func usageTemplate(template string) string {
	return template + `{{if .Annotations.` + settingsAnnotation + `}}
Settings come from environment variables or flags: KAFKA_BROKERS is --kafka-brokers.
"exportbridge config docs" lists them all.
{{end}}`
}

// noSubcommand is the Args of a command that only holds others.
func noSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := &exitError{
		code: exitUsage,
		err:  fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath()),
		hint: cmd.CommandPath() + " --help",
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	if near := config.Nearest(args[0], names); near != "" {
		err.hint = cmd.CommandPath() + " " + near
	} else if found := commandsNamed(cmd.Root(), args[0]); len(found) == 1 {
		err.hint = found[0]
	}
	return err
}

// commandsNamed returns the paths of all commands of that name, at any depth.
func commandsNamed(cmd *cobra.Command, name string) []string {
	var paths []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() == name {
			paths = append(paths, sub.CommandPath())
		}
		paths = append(paths, commandsNamed(sub, name)...)
	}
	return paths
}

// noArgs is the Args of a command that takes none.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return &exitError{
		code: exitUsage,
		err:  fmt.Errorf("unexpected argument %q", args[0]),
		hint: cmd.CommandPath() + " --help",
	}
}

func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// explainFlag turns an error of the flag parser into one with a hint.
func explainFlag(cmd *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	wrong := &exitError{code: exitUsage, err: err, hint: cmd.CommandPath() + " --help"}
	missing, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return wrong
	}
	if cmd.HasSubCommands() {
		// The flag may be one of the command that was meant.
		if unknown := noSubcommand(cmd, cmd.Flags().Args()); unknown != nil {
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
		wrong.hint = cmd.CommandPath() + " --" + near
	}
	for _, v := range config.Variables() {
		if v.Secret && v.FlagName() == name {
			wrong.err = fmt.Errorf("%s is a secret and has no flag", v.Name)
			wrong.hint = fmt.Sprintf("set %s, or %s%s to a file that holds it", v.Name, v.Name, config.FileSuffix)
		}
	}
	return wrong
}

// onlyWith returns the only name that begins with prefix, or "".
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

// classify gives every error an exit code. What goes wrong before the command
// starts is wrong usage.
func (a *app) classify(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*exitError](err); ok {
		return err
	}
	switch {
	case !a.started:
		return &exitError{code: exitUsage, err: err, hint: "exportbridge --help"}
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return &exitError{code: exitInterrupted, err: errors.New("interrupted")}
	}
	return &exitError{code: exitFailed, err: err}
}

// exitError is an error that decides the exit code and may tell people what to
// do about it.
type exitError struct {
	code int
	err  error
	hint string // printed after "Try:", "" for none
}

func (e *exitError) Error() string { return e.err.Error() }

func (e *exitError) Unwrap() error { return e.err }

func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return exitFailed
}

// printError shows an error to people, with its hint.
func printError(w io.Writer, err error) {
	fmt.Fprintf(w, "error: %s\n", strings.TrimSpace(err.Error()))
	if e, ok := errors.AsType[*exitError](err); ok && e.hint != "" {
		fmt.Fprintf(w, "Try: %s\n", e.hint)
	}
}

// interruptible returns a context that the first SIGTERM or SIGINT cancels;
// the second ends the process at once. The returned function stops listening
// and waits for the goroutine started here.
func interruptible(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(done)
		for range 2 {
			select {
			case <-signals:
			case <-stopped:
				return
			}
			if ctx.Err() != nil {
				os.Exit(exitInterrupted)
			}
			cancel()
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(stopped)
		<-done
		cancel()
	}
}
