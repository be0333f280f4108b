package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/process"
)

// watchInterval is the interval of status --watch.
const watchInterval = time.Second

// streamStatus is a report and its text.
type streamStatus struct {
	control.Report
	redisFull bool // Redis rejected writes when the status was read
}

// unseen reports whether a process runs the stream although Redis has no status of it.
func (s *streamStatus) unseen() bool {
	return s.Live == nil && len(s.Members) > 0 && !slices.Contains(s.Unreachable, bridge.DependencyStore)
}

func newStatusCommand(a *cli.App) *cobra.Command {
	var stream string
	var watch, group bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show stream status",
		Long: `Show state, position and guarantee of the streams, as reported by the running
bridge or, without one, as read from Redis and Kafka. The command is read-only.
It exits with 1 if Redis or Kafka does not answer.

More than three streams are a table, the worst first; --stream shows one of them
in full. With --watch the table fits the height of the terminal.

In JSON, checkpoint.events counts the events up to the committed cursor: from
the stream's start, or from where its last reset began. live.published counts
those that the reporting process has published since it started. They differ
after a rewind or a restart.

With --group it shows what Kafka knows of the processes with this BRIDGE_GROUP:
their versions, the streams that each owns, and which streams wait for what.
Redis and the processes are not asked. It exits with 1 if a group cannot be
described.`,
		Example: `  exportbridge status
  exportbridge status --watch
  exportbridge status --group
  exportbridge status --json | jq '.[].live.state'`,
		GroupID: cli.GroupPosition,
		Args:    cli.NoArgs,
	}
	a.TakeSettings(cmd)
	asJSON := cli.TakeJSON(cmd)
	cli.TakeStreams(cmd, &stream)
	cmd.Flags().BoolVar(&watch, "watch", false, "refresh every second; with --json, one line per refresh")
	cmd.Flags().BoolVar(&group, "group", false, "show the processes of the consumer group and their streams")
	cmd.RunE = steering(func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		switch {
		case group && watch:
			return cli.WrongUsage("exportbridge status --group", "--group and --watch are mutually exclusive")
		case group:
			return showGroup(ctx, a, stream, *asJSON)
		case watch:
			return watchStatus(ctx, a, stream, *asJSON)
		}
		all, err := statusOfAll(ctx, a, stream, *asJSON)
		if err == nil {
			err = printStatus(a, all, *asJSON, false)
		}
		if err != nil {
			return err
		}
		return unreachable(all)
	})
	return cmd
}

// watchStatus shows the status until ctx ends. Settings are loaded each time, so that streams come
// and go. If that fails later on, as while their file is written, the last status stays.
func watchStatus(ctx context.Context, a *cli.App, stream string, asJSON bool) error {
	shown, said := false, ""
	for ctx.Err() == nil {
		all, err := statusOfAll(ctx, a, stream, asJSON)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !shown:
			return err
		case err != nil:
			if text := err.Error(); text != said {
				said = text
				fmt.Fprintf(a.Stderr, "status not updated: %s\n", text)
			}
		default:
			shown, said = true, ""
			if err := printStatus(a, all, asJSON, true); err != nil {
				return err
			}
		}
		bridge.Sleep(ctx, watchInterval)
	}
	return nil
}

// statusOfAll reads the status of the named stream, or of all streams. Unless full is true,
// it reads only what the table shows.
func statusOfAll(ctx context.Context, a *cli.App, name string, full bool) ([]streamStatus, error) {
	client, streams, err := openStreams(a, 0, name)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	look := (*control.Controller).Status
	if !full && len(streams) > mostInFull {
		look = (*control.Controller).Glance
	}
	all := make([]streamStatus, len(streams))
	control.Each(len(streams), func(i int) { all[i] = streamStatus{Report: look(streams[i], ctx)} })
	if slices.ContainsFunc(all, func(s streamStatus) bool { return s.unseen() }) {
		full := client.Full(ctx)
		for i := range all {
			all[i].redisFull = full
		}
	}
	return all, ctx.Err() // an interrupted lookup is not an error of a server
}

// unreachable returns the error of an incomplete status, for which a server did not answer.
func unreachable(all []streamStatus) error {
	for i := range all {
		if names := all[i].Unreachable; len(names) > 0 {
			return cli.Errorf(cli.ExitFailed, "exportbridge check", "the status of stream %s is incomplete: no answer from %s",
				all[i].Stream, strings.Join(names, " and "))
		}
	}
	return nil
}

func printStatus(a *cli.App, all []streamStatus, asJSON, watch bool) error {
	switch {
	case asJSON && watch:
		if err := json.NewEncoder(process.JSON(a.Stdout)).Encode(all); err != nil {
			return fmt.Errorf("print JSON: %w", err)
		}
		return nil
	case asJSON:
		return cli.PrintJSON(a.Stdout, all)
	}
	var text strings.Builder
	terminal := a.Columns > 0
	if watch && terminal {
		text.WriteString("\x1b[H\x1b[2J")
	}
	if len(all) > mostInFull {
		if watch && !terminal {
			text.WriteString("\n")
		}
		height := 0
		if watch {
			_, height = process.Size(a.Stdout)
		}
		text.WriteString(statusTable(a, all, height))
		all = nil
	}
	for i := range all {
		if i > 0 || watch && !terminal {
			text.WriteString("\n")
		}
		var rows strings.Builder
		_ = cli.PrintFields(&rows, a.Advised(all[i].rows(time.Now()), all[i].Stream), a.Columns) // cannot fail in memory
		shown := rows.String()
		if terminal && !process.NoColor(a.Environ) && all[i].Live != nil && all[i].Live.State == bridge.StateBlocked {
			shown = strings.Replace(shown, " BLOCKED ", " \x1b[1;31mBLOCKED\x1b[0m ", 1)
		}
		text.WriteString(shown)
	}
	_, err := io.WriteString(process.Exact(a.Stdout), text.String()) // the values are printable
	return err
}

// rows returns the lines of a stream's status.
func (s *streamStatus) rows(now time.Time) [][2]string {
	rows := [][2]string{{"stream", s.Stream}, {"state", s.stateText(now)}}
	add := func(name, text string) {
		if text != "" {
			rows = append(rows, [2]string{name, text})
		}
	}
	if s.Live != nil && s.Live.Error != "" {
		add("why", s.Live.Error)
		add("try", s.Live.Hint)
	}
	if s.redisFull && s.unseen() {
		add("try", "raise maxmemory of Redis, or free memory; do not allow eviction")
	}
	if c := s.Checkpoint; c != nil {
		add("routes", c.Routes)
		add("position", positionText(c.Checkpoint, s.Live, now))
		add("speed", s.speedText(now))
		add("committed", committedText(c.Checkpoint, "events up to the cursor", now))
	}
	if s.Live != nil {
		if s.Live.Leader {
			add("published", humanize.Comma(s.Live.Published)+" events by this owner since its start")
		}
		add("end", contractText(s.Live.Contract))
		if done := s.Live.Attested; done != nil && done.Seq > 0 {
			add("attested", fmt.Sprintf("up to %s: record %d, %s events, %s missing, %s repaired, %s pending",
				done.To.UTC().Format(time.RFC3339), done.Seq, humanize.Comma(done.Listed), humanize.Comma(done.Missing),
				humanize.Comma(done.Repaired), cli.Counted(int(done.Pending), "period")))
		}
		for _, w := range s.Live.Warnings {
			add("warning", w.Text)
			add("try", w.Hint)
		}
		s.addCounts(add)
	}
	add("processes", s.membersText())
	add("guarantee", s.Guarantee)
	for i := range s.Changes {
		name := "changes"
		if i > 0 {
			name = ""
		}
		rows = append(rows, [2]string{name, changeText(&s.Changes[i])})
	}
	if c := s.Checkpoint; c != nil && c.Overlap != nil {
		add("re-read", overlapText(c.Overlap))
	}
	for _, n := range s.Notes {
		add("note", n)
	}
	return rows
}

// addCounts adds the counts of the owner since its start.
func (s *streamStatus) addCounts(add func(name, text string)) {
	if s.Live.BorderRepeats > 0 {
		add("borders", humanize.Comma(s.Live.BorderRepeats)+
			" items listed again at the beginning of the next page and dropped")
	}
	if late := s.Live.Late.Text(); late != "" {
		add("late", "events that the API showed late, since the start: "+late)
	}
	s.addSchema(add)
	if s.Live.Dropped > 0 {
		add("dropped", humanize.Comma(s.Live.Dropped)+" events by a route")
	}
	if s.Live.DeadLettered > 0 {
		add("dead", fmt.Sprintf("%s dead letters since the start, %s of the events: exportbridge dlq list",
			humanize.Comma(s.Live.DeadLettered), percent(s.Live.DeadShare())))
	}
}

// addSchema adds what the owner found when it compared events with EVENT_SCHEMA.
func (s *streamStatus) addSchema(add func(name, text string)) {
	found := s.Live.Schema
	if found == nil {
		return
	}
	text := cli.Counted(found.Mismatches, "event") + " differ"
	switch found.Mismatches {
	case 0:
		text = "no event differs"
	case 1:
		text += "s"
	}
	text += " from EVENT_SCHEMA since the start"
	if len(found.Unchecked) > 0 {
		text += "; not compared: topic " + strings.Join(found.Unchecked, ", ")
	}
	add("schema", text)
	if found.Mismatches == 0 {
		return
	}
	for i := range found.Differences {
		add("differs", found.Differences[i].Place()+" "+found.Differences[i].Text)
	}
	if found.More {
		add("differs", "further differences: exportbridge schema check")
	}
}

func (s *streamStatus) stateText(now time.Time) string {
	paused := s.Checkpoint != nil && s.Checkpoint.Paused(now)
	switch {
	case s.Live != nil && paused && s.Live.Version.Compare(s.Checkpoint.Version) < 0: // not reported yet
		until := s.Checkpoint.PausedUntil
		return fmt.Sprintf("%s (by %s)%s", pauseText(until, now), s.Live.Owner, resumeText(until))
	case s.Live != nil && s.Checkpoint != nil && s.Live.CaughtUp && s.Live.Version.Epoch < s.Checkpoint.Epoch:
		return fmt.Sprintf("%s (by %s)", bridge.StateRunning, s.Live.Owner)
	case s.Live != nil:
		live := s.Live
		if s.Checkpoint != nil {
			live = placed(live, s.Checkpoint.Checkpoint)
		}
		text := describeState(live, now)
		since := cli.RoundDuration(max(0, now.Sub(live.Since)))
		switch {
		case live.Since.IsZero():
		case live.State == bridge.StatePaused && live.PausedUntil != bridge.Forever:
			text = strings.Replace(text, "paused", "paused "+since+" ago", 1)
		default:
			text += ", for " + since
		}
		return fmt.Sprintf("%s (by %s)%s", text, s.Live.Owner, resumeText(live.PausedUntil))
	case paused:
		text := pauseText(s.Checkpoint.PausedUntil, now)
		if s.MembersKnown && len(s.Members) == 0 {
			text += ", not running"
		}
		return text + resumeText(s.Checkpoint.PausedUntil)
	case s.Ended() != "":
		return "ended: " + s.Ended()
	case s.unseen() && s.redisFull:
		return "running; what it does is unknown, since Redis is at its maxmemory and rejects writes"
	case s.unseen():
		return "running, but this Redis has no status of it: the bridge has just started or crashed, cannot reach Redis, " +
			"or has another REDIS_URL or CURSOR_PREFIX"
	case len(s.Members) > 0:
		return "running; what it does is unknown, since Redis does not answer"
	case !s.MembersKnown:
		return "unknown"
	}
	return "not running"
}

// speedText describes the speed of a stream; empty if the stream is not expected to publish.
func (s *streamStatus) speedText(now time.Time) string {
	live := s.Live
	if live == nil || live.State != bridge.StateRunning && live.State != bridge.StateIdle ||
		s.Checkpoint.Paused(now) || !moves(live) {
		return ""
	}
	text := fmt.Sprintf("%.0f events/s over the last 10 s", live.Rate)
	switch {
	case s.CaughtUpIn > 0:
		left := cli.RoundDuration(time.Duration(min(s.CaughtUpIn, math.MaxInt64/1e9)) * time.Second)
		text += fmt.Sprintf(", caught up in about %s (%.0fx real time)", left, live.Pace)
	case s.CaughtUpIn < 0 && live.Pace > 0 && s.LagSeconds > time.Minute.Seconds():
		text += ", too slow to catch up"
	}
	return text
}

func (s *streamStatus) membersText() string {
	var texts []string
	for _, m := range s.Members {
		role := "is standby"
		switch {
		case m.Owner && s.rival(m):
			role = "is the owner in its group, but " + s.Live.Owner + " reports from outside: " +
				cli.EngineHints[bridge.HintOwner]
		case m.Owner:
			role = "is the owner"
		}
		texts = append(texts, fmt.Sprintf("%s %s", m, role))
	}
	return strings.Join(texts, "; ")
}

// rival reports whether a process outside the group reports that it runs the stream.
func (s *streamStatus) rival(owner bridge.Member) bool {
	return s.Live != nil && s.Live.Leader && s.Live.Owner != owner.Name() &&
		!slices.ContainsFunc(s.Members, func(m bridge.Member) bool { return m.Name() == s.Live.Owner })
}

// overlapText describes the range that is read again after a rejected cursor, or after a
// change of EXPORT_FOLLOW.
func overlapText(o *bridge.Overlap) string {
	text := "in progress"
	if o.Done {
		text = "done"
	}
	return fmt.Sprintf("%s: %s to %s; %s known duplicates dropped",
		text, secondText(o.From), secondText(o.Until), humanize.Comma(o.Dropped))
}

// contractText describes the API's mark of the end of the results.
func contractText(c bridge.Contract) string {
	switch c {
	case bridge.ContractEmptyCursor:
		return "a page without a next one ends the results"
	case bridge.ContractEmptyItems:
		return "an empty page ends the results"
	}
	return ""
}
