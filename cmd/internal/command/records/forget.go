package records

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/bridge/keyring"
	"exportbridge/cmd/internal/cli"
)

// forgetOptions are the flags of forget.
type forgetOptions struct {
	stream  string
	execute bool
	json    *bool
}

// forgetting is a line of the output of forget.
type forgetting struct {
	Stream string `json:"stream"`
	Topic  string `json:"topic"`
	keyring.Forgetting
	Error string `json:"error,omitempty"`
}

func newForgetCommand(a *cli.App) *cobra.Command {
	var o forgetOptions
	cmd := &cobra.Command{
		Use:   "forget SUBJECT",
		Short: "Make the encrypted values of a person unreadable",
		Long: `Mark SUBJECT as forgotten in the topic <topic>.keys of each stream with
EVENT_ENCRYPT, of each stream whose EVENT_ENCRYPT was turned off, and of each
former KAFKA_TOPIC that a checkpoint names, if these keys still exist; and
delete the subject's data keys. All of them require EVENT_ENCRYPT_KEY. The
events stay, but nobody can decrypt their values, in any topic, replay or backup
of the topics of events. SUBJECT is the value at EVENT_SUBJECT as the API sends
it; - reads it from standard input, so that it is in no list of processes.

Events of a forgotten subject that are published later have the constant
"eb1:forgotten" in place of each value. A running process that has not read the
mark, usually for less than a second, encrypts with a deleted key.
Consumers keep what they have read, the API keeps its copy, and records from
before EVENT_ENCRYPT have plain values. The checkpoint does not name the topic
from before a stream was renamed: repeat the command with --kafka-topic.

Kafka deletes the keys from its disks with the next compaction: for a topic that
no running bridge uses, repeat the command after a quarter of an hour. The
command goes on after a failure, names the streams that failed, and may be
repeated.`,
		Example: `  exportbridge forget 4711
  exportbridge forget - --execute <subject`,
		GroupID: cli.GroupPosition,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return cli.WrongUsage("exportbridge forget 4711", "a subject is missing")
			}
			return cli.NoArgs(cmd, args[1:])
		},
	}
	a.TakeSettings(cmd)
	o.json = cli.TakeJSON(cmd)
	cli.TakeStreams(cmd, &o.stream)
	cmd.Flags().BoolVar(&o.execute, "execute", false, "forget; without it the command is a dry run")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		subject := args[0]
		if subject == "-" {
			text, err := io.ReadAll(a.Stdin)
			if err != nil {
				return fmt.Errorf("read the subject from standard input: %w", err)
			}
			switch subject = strings.TrimRight(string(text), "\r\n"); {
			case subject == "":
				return cli.WrongUsage("exportbridge forget 4711", "standard input has no subject")
			case strings.Contains(subject, "\n"):
				return cli.WrongUsage("run exportbridge forget - for each line",
					"standard input has several lines, one is a subject")
			}
		}
		return o.run(cmd.Context(), a, subject)
	}
	return cmd
}

func (o *forgetOptions) run(ctx context.Context, a *cli.App, subject string) error {
	s, err := keysSettings(a, o.stream)
	if err != nil {
		return err
	}
	all := []forgetting{}
	failed := eachKeys(ctx, a, s, o.stream, func(stream string, cfg keyring.Config, err error) error {
		var found keyring.Forgetting
		if err == nil {
			found, err = keyring.Forget(ctx, cfg, subject, o.execute)
		}
		all = append(all, forgetting{stream, cfg.Topic, found, errorText(err)})
		return err
	})
	if !*o.json && !slices.ContainsFunc(all, func(one forgetting) bool { return one.Topic != "" }) {
		return failed // no topic was found
	}
	err = printKeys(a, *o.json, all, forgettingRows, failed)
	if err == nil && !slices.ContainsFunc(all, func(f forgetting) bool { return f.Keys > 0 }) {
		fmt.Fprintln(a.Stderr, "no data key of the subject was found. Unless it was forgotten before, check that\n"+
			"SUBJECT is the value at EVENT_SUBJECT as the API sends it: spelling matters.")
	}
	if err == nil && !o.execute {
		fmt.Fprintln(a.Stderr, "dry run: nothing was changed. Add --execute to forget the subject for ever.")
	}
	return err
}

func forgettingRows(all []forgetting) [][]string {
	rows := [][]string{{"STREAM", "TOPIC", "KEYS", "DELETED", "FORGOTTEN", "ERROR"}}
	for i := range all {
		f := &all[i]
		since := "no"
		switch {
		case f.Forgotten != nil:
			since = f.Forgotten.Format(time.RFC3339)
		case f.Error != "":
			since = "unknown"
		}
		rows = append(rows, []string{f.Stream, f.Topic, strconv.Itoa(f.Keys), strconv.Itoa(f.Deleted), since, f.Error})
	}
	return rows
}
