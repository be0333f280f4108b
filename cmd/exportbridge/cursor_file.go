package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/config"
)

const (
	// cursorFormat names the format of an exported cursor.
	cursorFormat = "exportbridge.cursor/1"
	// mostCursorFile is the largest file that import reads: a checkpoint with
	// its longest cursor and tail is far below that.
	mostCursorFile = 8 << 20
)

// cursorFile is an exported cursor.
type cursorFile struct {
	Format     string    `json:"format"`
	ExportedAt time.Time `json:"exported_at"`
	// Checkpoint names the stream, its source and its topic, and holds the
	// cursor.
	Checkpoint json.RawMessage `json:"checkpoint"`
	// Checksum is the SHA-256 of the compact form of Checkpoint.
	Checksum string `json:"checksum"`
}

func newCursorExportCommand(a *app) *cobra.Command {
	var stream, file string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the committed cursor to a file",
		Long: `Write the committed cursor to a file, with what it belongs to and a checksum:
a copy for another Redis and Kafka, or for later. It holds the cursor itself,
which may be sensitive.`,
		Example: `  exportbridge cursor export > events.cursor
  exportbridge cursor export --file events.cursor`,
		Args: noArgs,
	}
	a.takeSettings(cmd)
	takeStream(cmd, &stream)
	cmd.Flags().StringVar(&file, "file", "-", "write to this `FILE`, which must not be there yet; - is standard output")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := a.openPosition(cmd.Context(), config.UsesKafka, stream)
		if err != nil {
			return err
		}
		defer p.close()
		c, err := p.find(cmd.Context())
		if err != nil {
			return err
		}
		if c.note != "" {
			fmt.Fprintf(a.stderr, "  %s\n", c.note)
		}
		return a.writeCursor(&c.Checkpoint, file)
	}
	return cmd
}

func (a *app) writeCursor(c *bridge.Checkpoint, name string) (err error) {
	data, err := c.Encode()
	if err != nil {
		return err
	}
	out := cursorFile{Format: cursorFormat, ExportedAt: time.Now().UTC().Truncate(time.Second), Checkpoint: data, Checksum: checksum(data)}
	if name == "-" {
		return printJSON(a.stdout, out)
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return &exitError{code: exitFailed, err: fmt.Errorf("write the cursor: %w", err), hint: "another --file"}
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := printJSON(file, out); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stderr, "  entry %s of stream %s written to %s\n", c.Place, c.Stream, name)
	return err
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func newCursorImportCommand(a *app) *cobra.Command {
	m := &move{request: newRequest(a)}
	var other bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Go to a cursor that was exported",
		Long: `Go to a cursor that was exported: a reset to it, with the events that are known to
be published of its page. - reads standard input. The cursor must be of the same
stream, source and filter, unless --accept-other says that it is known to fit. A
running bridge applies it and acknowledges; without one the command moves the
cursor itself.

Without --execute nothing is changed.`,
		Example: `  exportbridge cursor import events.cursor
  exportbridge cursor import events.cursor --reason "new cluster" --execute`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &exitError{code: exitUsage, err: fmt.Errorf("import takes one FILE, not %d", len(args)), hint: "exportbridge cursor import events.cursor"}
			}
			return nil
		},
	}
	m.flags(cmd)
	cmd.Flags().BoolVar(&other, "accept-other", false, "take a cursor of another stream, source or filter")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.readCursor(args[0])
		if err != nil {
			return &exitError{code: exitFailed, err: fmt.Errorf("import %s: %w", args[0], err), hint: "exportbridge cursor export writes such a file"}
		}
		return m.run(cmd.Context(), func(_ context.Context, p *position, now bridge.Checkpoint) (*plannedMove, error) {
			return planImport(p, &c, &now, other)
		})
	}
	return cmd
}

// readCursor reads an exported cursor and checks that it is whole.
func (a *app) readCursor(name string) (c bridge.Checkpoint, err error) {
	in := a.stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return c, err
		}
		defer func() { _ = file.Close() }() // only read
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, mostCursorFile+1))
	switch {
	case err != nil:
		return c, err
	case len(data) == 0:
		return c, errors.New("it is empty")
	case len(data) > mostCursorFile:
		return c, fmt.Errorf("it is larger than %s", humanize.IBytes(mostCursorFile))
	}
	var f cursorFile
	if err := json.Unmarshal(data, &f); err != nil {
		return c, fmt.Errorf("not a whole JSON document: %w", err)
	}
	if f.Format != cursorFormat {
		return c, fmt.Errorf("its format is %q, want %q", f.Format, cursorFormat)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, f.Checkpoint); err != nil {
		return c, fmt.Errorf("its checkpoint: %w", err)
	}
	if got := checksum(compact.Bytes()); got != f.Checksum {
		return c, fmt.Errorf("its checksum is %s, that of its checkpoint %s: it was changed", f.Checksum, got)
	}
	c, err = bridge.DecodeCheckpoint(compact.Bytes())
	if err != nil {
		return c, err
	}
	return c, checkCursor(c.Cursor)
}

// planImport checks that the cursor belongs to the stream.
func planImport(p *position, c, now *bridge.Checkpoint, other bool) (*plannedMove, error) {
	var differs []string
	differ := func(what string, have, want any) {
		differs = append(differs, fmt.Sprintf("it is of %s %v, here it is %v", what, have, want))
	}
	if want := p.store.Name(); c.Stream != want {
		differ("stream", c.Stream, want)
	}
	if want := p.stream.Engine.Origin; !c.Origin.Same(want) {
		differ("an export with", c.Origin, want)
	}
	if want := now.Source; want != (bridge.SourceIdentity{}) && c.Source != (bridge.SourceIdentity{}) && c.Source != want {
		differ("application", sourceText(c.Source), sourceText(want))
	}
	if len(differs) > 0 && !other {
		return nil, &exitError{
			code: exitRefused, err: fmt.Errorf("the cursor does not belong here: %s", differs[0]),
			hint: "--accept-other if you know that the API takes it all the same",
		}
	}
	plan := newPlan(fmt.Sprintf("cursor of entry %s of stream %s, exported from there", c.Place, c.Stream),
		bridge.Target{Cursor: c.Cursor, Tail: c.Tail, Carried: c.Carried, Start: c.Origin.Start, Events: c.Events, Pages: c.Pages})
	plan.Notes = differs
	if c.PositionTime > 0 {
		plan.To.Text += "   " + time.UnixMilli(c.PositionTime).UTC().Format(timeLayout)
	}
	if c.Events > now.Events && !now.Zero() {
		plan.Notes = append(plan.Notes, "it is ahead of the stream: what lies between will not be published")
	}
	return plan, nil
}

func sourceText(s bridge.SourceIdentity) string {
	return s.Organization + "/" + s.Workspace + "/" + s.Application
}
