package records

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/keyring"
	"exportbridge/bridge/seal"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/process"
)

func newKeysCommand(a *cli.App) *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:     "keys",
		Short:   "Wrap the keys of encrypted values again",
		Example: "  exportbridge keys rewrap",
		GroupID: cli.GroupPosition,
	}, newKeysRewrapCommand(a))
}

// rewrapping is an element of the output of keys rewrap.
type rewrapping struct {
	Stream string `json:"stream"`
	Topic  string `json:"topic"`
	keyring.Rewrapping
	Error string `json:"error,omitempty"`
}

func newKeysRewrapCommand(a *cli.App) *cobra.Command {
	var stream string
	var execute bool
	cmd := &cobra.Command{
		Use:   "rewrap",
		Short: "Wrap all data keys with the last master key",
		Long: `Show which master keys the data keys in <topic>.keys need, of each stream that
has EVENT_ENCRYPT, or had it and still has keys, and of each former KAFKA_TOPIC
that its checkpoint names. With --execute, wrap all of them with the last line
of EVENT_ENCRYPT_KEY. Values stay as they are. Bridges may run, and forget too:
a key that is deleted stays deleted. The command goes on after a failure, names
the streams that failed, and may be repeated.

Before, append the line to the files of all bridges and consumers and restart
them: others cannot read what is wrapped with it. Afterwards, a line may leave
the files once the table does not list it: column RECORDS counts what Kafka has
yet to compact; for a topic that no running bridge uses, repeat the command
after a quarter of an hour. The first line names subjects and must stay.`,
		Example: `  exportbridge keys rewrap
  exportbridge keys rewrap --execute`,
		Args: cli.NoArgs,
	}
	a.TakeSettings(cmd)
	asJSON := cli.TakeJSON(cmd)
	cli.TakeStreams(cmd, &stream)
	cli.TakeExecute(cmd, &execute)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return runRewrap(cmd.Context(), a, stream, execute, *asJSON)
	}
	return cmd
}

func runRewrap(ctx context.Context, a *cli.App, stream string, execute, asJSON bool) error {
	s, err := keysSettings(a, stream)
	if err != nil {
		return err
	}
	all := []rewrapping{}
	old, done := 0, 0
	failed := eachKeys(ctx, a, s, stream, func(stream string, cfg keyring.Config, err error) error {
		var found keyring.Rewrapping
		if err == nil {
			found, err = keyring.Rewrap(ctx, cfg, execute)
		}
		all = append(all, rewrapping{stream, cfg.Topic, found, errorText(err)})
		done += found.Rewrapped
		for id, n := range found.Keys {
			if id != found.Newest {
				old += n
			}
		}
		return err
	})
	if !asJSON && !slices.ContainsFunc(all, func(one rewrapping) bool { return one.Topic != "" }) {
		return failed // no topic was found
	}
	err = printKeys(a, asJSON, all, rewrappingRows, failed)
	switch {
	case execute:
		fmt.Fprintf(a.Stderr, "%s wrapped again.\n", are(int64(done), "data key", "was", "were"))
	case err == nil:
		fmt.Fprintf(a.Stderr, "dry run: nothing was changed. Add --execute to wrap %s again.\n",
			cli.Counted(int64(old), "data key"))
	}
	return err
}

func rewrappingRows(all []rewrapping) [][]string {
	rows := [][]string{{"STREAM", "TOPIC", "MASTER", "KEYS", "RECORDS", "ERROR"}}
	for i := range all {
		r := &all[i]
		for _, id := range slices.Sorted(maps.Keys(r.Records)) {
			rows = append(rows, []string{r.Stream, r.Topic, id, strconv.Itoa(r.Keys[id]), strconv.Itoa(r.Records[id]), r.Error})
		}
		if len(r.Records) == 0 && r.Error != "" {
			rows = append(rows, []string{r.Stream, r.Topic, "", "", "", r.Error})
		}
	}
	return rows
}

// printKeys prints a result of each stream, and returns the errors of those that failed. The last column is that of
// their errors; the table has it if there are any.
func printKeys[T any](a *cli.App, asJSON bool, all []T, table func([]T) [][]string, failed error) error {
	if asJSON {
		return errors.Join(cli.PrintJSON(a.Stdout, all), failed)
	}
	rows := table(all)
	if failed == nil {
		for i, row := range rows {
			rows[i] = row[:len(row)-1]
		}
	}
	return errors.Join(a.PrintTable(rows), failed)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// keysSettings loads the settings of all streams. The stream of a name must be one of them.
func keysSettings(a *cli.App, name string) (*config.Settings, error) {
	s, err := a.StreamsSettings(0, "")
	if err == nil && name != "" {
		_, err = cli.StreamNamed(s, name)
	}
	return s, err
}

// eachKeys calls do with the topics of keys of each stream that encrypts values, or has done so. There must be one. It
// goes on after an error; the result has all of them, with the names of their streams. do gets those of a topic that
// cannot be used, or of a stream whose topics cannot be listed, and returns them.
func eachKeys(
	ctx context.Context, a *cli.App, s *config.Settings, name string,
	do func(stream string, cfg keyring.Config, err error) error,
) error {
	done := make(map[string]bool)
	var errs []error
	for _, encrypts := range []bool{true, false} {
		for i := range s.Streams {
			st := &s.Streams[i]
			if name != "" && st.Name != name || st.Export.Private.Encrypts() != encrypts {
				continue
			}
			all, err := process.AllKeys(ctx, s, st)
			if !encrypts {
				all = slices.DeleteFunc(all, func(cfg keyring.Config) bool { return done[cfg.Topic] })
				err = unseenKeys(a, st.Name, err)
			}
			for n, cfg := range all {
				done[cfg.Topic] = true
				if err := masterFault(st, cfg.Topic); err != nil {
					errs = append(errs, do(st.Name, cfg, err))
					continue
				}
				errs = append(errs, keysError(st.Name, cfg.Topic, n > 0 || !encrypts, do(st.Name, cfg, nil)))
			}
			if err != nil {
				errs = append(errs, keysError(st.Name, "", false, do(st.Name, keyring.Config{}, err)))
			}
		}
	}
	if err := errors.Join(errs...); err != nil || len(done) > 0 {
		return err
	}
	return cli.Errorf(cli.ExitFailed, "set EVENT_ENCRYPT as for the bridge", "no stream encrypts values")
}

// unseenKeys drops the errors of process.AllKeys if each says that a stream without EVENT_ENCRYPT may not look for keys.
// Most such streams have never had a topic of keys, nor its grants.
func unseenKeys(a *cli.App, stream string, err error) error {
	all, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err)
	other := func(e error) bool { return bridge.FaultOf(e).Reason != bridge.ReasonAuth }
	if !ok || slices.ContainsFunc(all.Unwrap(), other) {
		return err
	}
	fmt.Fprintf(a.Stderr, "stream %s encrypts no values now, and its keys were not searched: %v\n"+
		"If it had EVENT_ENCRYPT before, repeat the command as a user who may describe and write that topic.\n", stream, err)
	return nil
}

// masterFault says why the keys of a topic cannot be read with EVENT_ENCRYPT_KEY.
func masterFault(st *config.Stream, topic string) error {
	master := st.Export.Private.Master.Reveal()
	_, err := seal.ParseMaster(master)
	switch {
	case err == nil:
		return nil
	case master == "" && !st.Export.Private.Encrypts():
		return cli.Errorf(cli.ExitFailed, "set EVENT_ENCRYPT_KEY_FILE as when the stream had EVENT_ENCRYPT; or, if nobody may "+
			"read its values any longer, delete topic "+topic,
			"stream %s: topic %s exists, and EVENT_ENCRYPT_KEY is not set: its values can be decrypted still", st.Name, topic)
	}
	return cli.WrongUsage("set EVENT_ENCRYPT_KEY_FILE as for the bridge", "stream %s: EVENT_ENCRYPT_KEY: %w", st.Name, err)
}

// keysError adds the stream and the hint to an error of a topic of keys, which may be a former one.
func keysError(stream, topic string, former bool, err error) error {
	if err == nil {
		return nil
	}
	err = cli.Explain(fmt.Errorf("stream %s: %w", stream, err))
	if e, ok := errors.AsType[*cli.Error](err); ok && former && bridge.FaultOf(err).Reason == bridge.ReasonConfig {
		e.Hint = "repeat the command with KAFKA_TOPIC and EVENT_ENCRYPT_KEY as at that time; or, if no stream uses them and " +
			"nobody may read their values any longer, delete topic " + topic
	}
	return err
}
