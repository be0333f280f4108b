package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/cmd/internal/cli"
)

func newCursorExportCommand(a *cli.App) *cobra.Command {
	var stream, file string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Export the committed cursor to a file",
		Long: `Export the committed cursor with its stream, its source and a checksum, as a
backup or for another Redis and Kafka. The file holds the cursor, which can be
sensitive.`,
		Example: `  exportbridge cursor export > events.cursor
  exportbridge cursor export --file events.cursor`,
		Args: cli.NoArgs,
	}
	a.TakeSettings(cmd)
	cli.TakeStream(cmd, &stream)
	cmd.Flags().StringVar(&file, "file", "-", "write to new `FILE`; - is standard output")
	cmd.RunE = withStream(a, &stream, func(ctx context.Context, h *streamHandle) error {
		c, err := h.Position(ctx)
		if err != nil {
			return err
		}
		if c.Note != "" {
			fmt.Fprintf(a.Stderr, "  %s\n", c.Note)
		}
		return writeCursor(a.Stdio, &c.Checkpoint, file)
	})
	return cmd
}

func writeCursor(std cli.Stdio, c *bridge.Checkpoint, name string) (err error) {
	out, err := control.NewExport(c)
	if err != nil {
		return err
	}
	if name == "-" {
		return cli.PrintJSON(std.Stdout, out)
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return cli.Errorf(cli.ExitFailed, "choose another --file", "write the cursor: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := cli.PrintJSON(file, out); err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.Stderr, "  entry %s of stream %s written to %s\n", c.Version, c.Stream, name)
	return err
}

func newCursorImportCommand(a *cli.App) *cobra.Command {
	m := &move{change: newChange(a)}
	var other bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Reset to an exported cursor",
		Long: `Reset a stream to an exported cursor. If some events of the page at the cursor
were already published, they are skipped. FILE can be -, standard input. Stream,
source and filter must match, unless --accept-other is given. The running bridge
applies and acknowledges the change; without one, the command applies it itself.

Without --execute, the command is a dry run.`,
		Example: `  exportbridge cursor import events.cursor
  exportbridge cursor import events.cursor --reason "new cluster" --execute`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.WrongUsage("exportbridge cursor import events.cursor", "import expects one FILE, not %d", len(args))
			}
			return nil
		},
	}
	cli.OfferFiles(cmd)
	m.flags(cmd)
	cmd.Flags().BoolVar(&other, "accept-other", false, "accept a cursor of another stream, source or filter")
	cmd.RunE = steering(func(cmd *cobra.Command, args []string) error {
		c, err := readCursor(a.Stdin, args[0])
		if err != nil {
			return cli.Errorf(cli.ExitFailed, "create the file with exportbridge cursor export", "import %s: %w", args[0], err)
		}
		return m.run(cmd.Context(), control.Import{Checkpoint: c, AcceptOther: other})
	})
	return cmd
}

// readCursor reads an exported cursor from a file, or from standard input if name is -.
func readCursor(stdin io.Reader, name string) (bridge.Checkpoint, error) {
	if name == "-" {
		return control.ReadExport(stdin)
	}
	file, err := os.Open(name)
	if err != nil {
		return bridge.Checkpoint{}, err
	}
	defer func() { _ = file.Close() }() // the file is only read
	return control.ReadExport(file)
}
