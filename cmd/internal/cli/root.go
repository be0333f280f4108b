// Package cli has what all commands share: the program, settings as flags, exit codes,
// errors with a hint, tables and JSON.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/process"
)

// Exit codes of the program.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2 // wrong usage or configuration
	ExitCheck       = 3 // check or learn found a blocking problem, verify missing events, a run dead letters only
	ExitNotOwner    = 4 // another process runs the job or repair
	ExitRefused     = 5 // rejected by a server, or the stream is blocked
	ExitEmptyEnd    = 6 // done as far as read, and more may follow; or no event is in the range
	ExitInterrupted = 130
)

// Groups of commands in the help.
const (
	GroupSetup    = "setup"    // commands that prepare a run
	GroupPosition = "position" // commands that inspect and control streams
)

// Stdio has the standard streams of a command, which writes data to Stdout and everything else
// to Stderr. In an App, both are a process.Text for people; process.Exact is for programs.
type Stdio struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Columns        int // the width of the terminal at Stdout, 0 for none
}

// App is the state of a command. The process runs one command.
type App struct {
	Stdio
	Name    string // of the program
	Environ []string
	Given   map[string]string // settings from flags, by variable
	flags   []*pflag.Flag     // see settings
	envFile string
	pipes   config.Pipes // contents that Settings has read, for Reload
	path    string       // of the command that failed
	stream  string       // value of --stream, "" for none
	several bool         // the settings have several streams
	started bool         // the arguments are valid
	logs    bool         // the command logs to Stderr
	warned  []string     // warnings of the settings that were printed
	log     *slog.Logger // of a command that logs JSON, else nil
	tables  bool         // --wide can be given
	wide    bool         // --wide was given
}

// Program is a binary: its name, its help and its commands.
type Program struct {
	Name, Short, Long, Example string
	Groups                     []*cobra.Group // of commands in the help, besides GroupSetup
	Commands                   func(*App) []*cobra.Command
}

// Execute runs the command of the process's arguments and ends the process.
func (p *Program) Execute() {
	log.SetOutput(io.Discard) // drops the log of libraries; see package process
	ctx, stop := interruptible(context.Background())
	code := p.Run(ctx, os.Args[1:], os.Environ(), Stdio{os.Stdin, os.Stdout, os.Stderr, process.Columns(os.Stdout)})
	stop()
	os.Exit(code)
}

// Run runs the command of args with the variables of environ (NAME=VALUE), and returns the
// exit code. If ctx is cancelled, the command ends gracefully.
func (p *Program) Run(ctx context.Context, args, environ []string, std Stdio) int {
	a := p.app(environ, std)
	root := p.build(a)
	root.SetArgs(args)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		describePlainly(root)
	}
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil {
		a.path = cmd.CommandPath()
		a.takeNamed(cmd)
		err = a.classify(ctx, err)
		a.reportError(err)
	}
	return exitCode(err)
}

// Root returns the root command with all others, for documents about them. The commands have
// no input, and their output is discarded.
func (p *Program) Root() *cobra.Command {
	return p.build(p.app(nil, Stdio{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard}))
}

func (p *Program) app(environ []string, std Stdio) *App {
	std.Stdout, std.Stderr = process.Text{To: std.Stdout}, process.Text{To: std.Stderr}
	return &App{Stdio: std, Name: p.Name, Environ: environ, Given: make(map[string]string)}
}

func (p *Program) build(a *App) *cobra.Command {
	root := Parent(&cobra.Command{
		Use:                   p.Name,
		Short:                 p.Short,
		Long:                  p.Long,
		Example:               p.Example,
		Version:               p.Name + " " + ReadBuildInfo().String(),
		DisableFlagsInUseLine: true,
		SilenceErrors:         true,
		SilenceUsage:          true,
		// No other command may have a PersistentPreRun: cobra runs only one.
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			a.started = true
			a.takeNamed(cmd)
		},
	})
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SetFlagErrorFunc(explainFlag)
	root.SetUsageTemplate(usageTemplate(root.UsageTemplate()))
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddGroup(p.Groups...)
	root.AddGroup(&cobra.Group{ID: GroupSetup, Title: "Set up:"})
	root.SetHelpCommandGroupID(GroupSetup)
	root.SetCompletionCommandGroupID(GroupSetup)
	root.AddCommand(p.Commands(a)...)
	root.AddCommand(newVersionCommand(a))
	// cobra adds them at the start, too late for suggestions.
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	describeCompletion(root)
	a.addCompletions(root)
	return root
}

// usageTemplate returns cobra's template in 80 columns, with a note about settings and times.
func usageTemplate(template string) string {
	return strings.NewReplacer(
		".FlagUsages", ".FlagUsagesWrapped 80",
		`Use "{{.CommandPath}} [command] --help" for more information about a command.`,
		`Run "{{.CommandPath}} COMMAND --help" for details.`,
	).Replace(template) + `{{if .Annotations.` + settingsAnnotation + `}}
Settings are environment variables or flags: KAFKA_BROKERS is --kafka-brokers.
"exportbridge config docs" lists them.
{{end}}{{if takesTime .}}
TIME is one of: RFC 3339 (2026-11-22T10:57:00Z or 2026-11-22 10:57Z); a date in
UTC (2026-11-22); an offset from now (-2h, -7d, -PT2H); Unix milliseconds; now;
earliest.
{{end}}`
}

func init() { cobra.AddTemplateFunc("takesTime", takesTime) }

// takesTime reports whether a flag of the command takes a TIME.
func takesTime(cmd *cobra.Command) bool {
	takes := false
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		kind, usage := pflag.UnquoteUsage(f)
		takes = takes || kind == "TIME" || strings.Contains(usage, "@TIME")
	})
	return takes
}

// describeCompletion replaces cobra's help of completion, which exceeds 80 columns.
func describeCompletion(root *cobra.Command) {
	cmd, _, _ := root.Find([]string{"completion"}) // cannot fail: cobra has added it
	cmd.Short, cmd.Long = "Print a shell completion script", ""
	for _, shell := range Parent(cmd).Commands() {
		load := "  source <(%s)"
		switch shell.Name() {
		case "fish":
			load = "  %s | source"
		case "powershell":
			load = "  %s | Out-String | Invoke-Expression"
		}
		shell.Short = "Print the completion script for " + shell.Name()
		shell.Long, shell.Example = "", fmt.Sprintf(load, shell.CommandPath())
	}
}

// NoSubcommand is the Args of a command that only has subcommands.
func NoSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := cmd.CommandPath() + " --help"
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	if near := config.Nearest(args[0], names); near != "" {
		hint = cmd.CommandPath() + " " + near
	} else if found := commandsNamed(cmd.Root(), args[0]); len(found) == 1 {
		hint = found[0]
	}
	return WrongUsage(hint, "unknown command %q for %q", args[0], cmd.CommandPath())
}

// commandsNamed returns the paths of all commands with a name, at any depth.
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

// NoArgs is the Args of a command without arguments.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return WrongUsage(cmd.CommandPath()+" --help", "unexpected argument %q", args[0])
}

// Parent makes cmd a command that only has subcommands: by itself it shows its help.
func Parent(cmd *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	cmd.Args = NoSubcommand
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(subcommands...)
	return cmd
}

// classify adds an exit code to an error. An error before the start of the command is wrong
// usage.
func (a *App) classify(ctx context.Context, err error) error {
	known, typed := errors.AsType[*Error](err)
	outcome := typed && (known.Code != ExitFailed || known.Unsure)
	interrupted := a.started && ctx.Err() != nil && !outcome
	switch {
	case interrupted && errors.Is(err, context.Canceled):
		return &Error{Code: ExitInterrupted, Err: errors.New("interrupted")}
	case interrupted && transient(err):
		return &Error{Code: ExitInterrupted, Err: fmt.Errorf("interrupted: %w", err)}
	case typed:
		return err
	case !a.started:
		return &Error{Code: ExitUsage, Err: err, Hint: cmp.Or(a.path, a.Name) + " --help"}
	}
	return &Error{Code: ExitFailed, Err: err}
}

// transient reports whether an interruption can be the reason for an error. A client that waits for
// an unreachable server returns the last error of its connection, such as an i/o timeout.
func transient(err error) bool {
	fault, ok := errors.AsType[*bridge.Fault](err)
	return ok && fault.Class == bridge.Transient
}

func exitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ExitFailed
}

// reportError prints the error that ends the command. If the command logs JSON, the error is
// a line of that log, because a log collector reads nothing else.
func (a *App) reportError(err error) {
	if a.log == nil {
		printError(a.Stderr, err, a.hint(err))
		return
	}
	fields := []any{"code", exitCode(err), "error", strings.TrimSpace(err.Error())}
	if hint := a.hint(err); hint != "" {
		fields = append(fields, "hint", hint)
	}
	a.log.Error("exit", fields...)
}

// takeNamed stores the stream of --stream.
func (a *App) takeNamed(cmd *cobra.Command) {
	if f := cmd.Flags().Lookup("stream"); f != nil {
		a.stream = f.Value.String()
	}
}

// hint returns the hint of an error, "" for none.
func (a *App) hint(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return a.Advice(e.Hint, "")
	}
	return ""
}

// printError prints an error with its hint, if that is not empty.
func printError(w io.Writer, err error, hint string) {
	// Further lines are indented, so that none looks like the hint.
	text := strings.NewReplacer("\n  ", "\n  ", "\n", "\n  ").Replace(strings.TrimSpace(err.Error()))
	fmt.Fprintf(w, "error: %s\n", text)
	if hint != "" {
		fmt.Fprintf(w, "Try: %s\n", hint)
	}
}

// interruptible returns a context that the first SIGTERM or SIGINT cancels; the second
// ends the process at once. The returned function ends the goroutine.
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
				os.Exit(ExitInterrupted)
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
