package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/learn"
)

// learnTimeout is how long learn may take unless --timeout says otherwise.
const learnTimeout = time.Minute

func newLearnCommand(a *cli.App) *cobra.Command {
	timeout := learnTimeout
	cmd := &cobra.Command{
		Use:   "learn [flags] -- curl ...",
		Short: "Find the settings for another API",
		Long: `Find the settings for an API from a curl command that lists its first items, and
print them as a profile. The command requests at most 16 pages of the same list
with the same key. The profile says what was proven by a request, and asks what
was not; it does not contain the key.

A list that begins with the newest items is followed by windows of time. The
parameters of a start and an end are tried by usual names and by those that the
API names; a question says which were tried. Put them into the command if the
documentation has others. The exit code is 3 if a list names no cursor, or can
be followed in neither way.

--record keeps the pages for a test of the profile: exportbridge-dev simulate
--from serves them as the API did. Texts have other letters of the same length;
ids, times, types that repeat, numbers and the names of members are kept. The
key and the parameters of the command are not. Look at it before you share it.`,
		Example: `  exportbridge learn --output acme.env -- curl -H "Authorization: Bearer $KEY" \
    'https://api.example.com/v2/audit?limit=100'
  export EXPORT_PROFILE=./acme.env EXPORT_API_KEY_FILE=key
  exportbridge check --only api --sample 5`,
		GroupID: cli.GroupSetup,
	}
	output := cli.TakeOutput(cmd)
	record := cli.TakeFile(cmd, output, "record", "write the pages, without their texts, to new `FILE`")
	cmd.Flags().Var(cli.Parsed(&timeout, bridge.ParseDuration, "DURATION").Shown("1m"), "timeout", "maximum time")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if timeout <= 0 {
			return cli.WrongUsage("--timeout "+learnTimeout.String(), "--timeout %s is not above 0", timeout)
		}
		request, err := learn.ParseCurl(args)
		if err != nil {
			const example = "exportbridge learn -- curl -H 'X-Api-Key: ...' 'https://api.example.com/e?limit=9'"
			return cli.WrongUsage(example, "%w", err)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		lesson, err := learn.Learn(ctx, request, a.Environ)
		if err != nil {
			return explainLearning(ctx, request, err)
		}
		if record.Named() {
			if err := writeRecording(a, record, lesson); err != nil {
				return err
			}
		}
		return a.PrintTo(output, lesson.Profile)
	}
	return cmd
}

func writeRecording(a *cli.App, to *cli.Output, lesson *learn.Lesson) error {
	recording, err := lesson.Recording()
	if err != nil {
		return &cli.Error{Code: cli.ExitFailed, Err: err, Hint: "leave out --record"}
	}
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(recording); err != nil {
		return fmt.Errorf("encode the recording: %w", err)
	}
	return a.PrintTo(to, text.String())
}

// explainLearning gives the error of learn its exit code and its hint.
func explainLearning(ctx context.Context, request *learn.Request, err error) error {
	if no, ok := errors.AsType[*learn.UnfollowableError](err); ok {
		return &cli.Error{Code: cli.ExitCheck, Err: err, Hint: no.Hint}
	}
	if _, ok := errors.AsType[*learn.ThrottledError](err); ok {
		return &cli.Error{Code: cli.ExitFailed, Err: err, Hint: "repeat the command after that"}
	}
	if _, ok := errors.AsType[config.Problems](err); ok {
		return &cli.Error{Code: cli.ExitUsage, Err: err, Hint: "correct the curl command"}
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = errors.New("the export API did not answer in time")
		return &cli.Error{Code: cli.ExitFailed, Err: err, Hint: "raise --timeout"}
	}
	if f, ok := errors.AsType[*bridge.Fault](err); ok {
		f.Hint = request.Hint(f)
	}
	return cli.Explain(err)
}
