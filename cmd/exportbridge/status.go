package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/ops"
)

const (
	// watchInterval is how often status --watch looks.
	watchInterval = time.Second
	// statusTimeout bounds what a status waits for, whoever does not answer.
	statusTimeout = 5 * time.Second
	// changesShown is how many of an operator's changes are shown, of those
	// among the newest changesSought entries of the history.
	changesShown  = 5
	changesSought = 200
)

// streamStatus is a report, for people.
type streamStatus struct{ ops.Report }

func newStatusCommand(a *app) *cobra.Command {
	var stream string
	var watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the streams do, and what they guarantee",
		Long: `Show what the streams do, and what they guarantee: as the bridge tells that runs
them, and where none does, what Redis and Kafka know. It disturbs nobody.`,
		Example: `  exportbridge status
  exportbridge status --watch
  exportbridge status --json | jq '.[].live.state'`,
		GroupID: groupPosition,
		Args:    noArgs,
	}
	a.takeSettings(cmd)
	asJSON := takeJSON(cmd)
	cmd.Flags().StringVar(&stream, "stream", "", "`NAME` of a stream; all of BRIDGE_STREAMS if not given")
	cmd.Flags().BoolVar(&watch, "watch", false, "show it again every second; with --json one line each time")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		for {
			all, err := a.statusOfAll(ctx, stream)
			if err != nil {
				return err
			}
			if err := a.printStatus(all, *asJSON, watch); err != nil || !watch {
				return err
			}
			if waitFor(ctx, watchInterval) != nil {
				return nil
			}
		}
	}
	return cmd
}

func (a *app) statusOfAll(ctx context.Context, name string) ([]streamStatus, error) {
	var all []streamStatus
	err := a.eachPosition(ctx, name, func(p *position) error {
		all = append(all, p.status(ctx))
		return nil
	})
	return all, err
}

// status asks everybody who may know, all at once, and says who does not answer.
func (p *position) status(ctx context.Context) streamStatus {
	s := streamStatus{ops.NewReport(p.store.Name(), p.stream.Engine.Mode)}
	var entries []bridge.Entry
	var notes [3]string // in the order of what they are about
	note := func(n int, what string, err error) { notes[n] = what + ": " + cut(err.Error(), 160) }
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	var asking sync.WaitGroup
	asking.Go(func() {
		live, alive, err := p.store.Status(ctx)
		if err != nil {
			note(0, "what the bridge says is not known", err)
		} else if alive {
			s.Live = &live
		}
	})
	asking.Go(func() {
		c, err := p.find(ctx)
		if err != nil {
			note(1, "no checkpoint", err)
			return
		}
		s.Checkpoint = &c.Checkpoint
		if c.note != "" {
			notes[1] = "checkpoint " + c.note
		}
	})
	if !p.kafkaIsHidden() {
		asking.Go(func() {
			members, err := p.stream.Kafka.Ownership().Members(ctx)
			if s.MembersKnown = err == nil; err != nil {
				note(2, "who runs the stream is not known", err)
			}
			for _, m := range members {
				s.Members = append(s.Members, ops.Member(m))
			}
		})
	}
	asking.Go(func() { entries, _ = p.store.History(ctx, bridge.HistoryQuery{Limit: changesSought}) }) // the notes say it
	asking.Wait()
	if p.kafkaIsHidden() {
		s.MembersKnown = s.Live == nil // it would say so
	}
	s.Changes = changesOf(entries, s.Checkpoint)
	s.Notes = slices.DeleteFunc(notes[:], func(n string) bool { return n == "" })
	s.Measure(time.Now())
	return s
}

// changesOf returns the newest changes by operators.
func changesOf(entries []bridge.Entry, now *bridge.Checkpoint) []bridge.Change {
	var all []bridge.Change
	add := func(ch *bridge.Change) {
		if ch != nil && len(all) < changesShown && (len(all) == 0 || all[len(all)-1].ID != ch.ID) {
			all = append(all, *ch)
		}
	}
	if now != nil {
		add(now.Change)
	}
	for i := range entries {
		add(entries[i].Change)
	}
	return all
}

func (a *app) printStatus(all []streamStatus, asJSON, watch bool) error {
	switch {
	case asJSON && watch:
		if err := json.NewEncoder(a.stdout).Encode(all); err != nil {
			return fmt.Errorf("print JSON: %w", err)
		}
		return nil
	case asJSON:
		return printJSON(a.stdout, all)
	}
	var text strings.Builder
	if watch && isTerminal(a.stdout) {
		text.WriteString("\x1b[H\x1b[2J")
	}
	for i := range all {
		if i > 0 || watch && !isTerminal(a.stdout) {
			text.WriteString("\n")
		}
		for _, row := range all[i].rows(time.Now()) {
			fmt.Fprintf(&text, "  %-11s %s\n", row[0], row[1])
		}
	}
	_, err := io.WriteString(a.stdout, text.String())
	return err
}

// rows are the lines of a stream's status, each with a name.
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
	if c := s.Checkpoint; c != nil {
		add("position", positionText(c, now))
		add("speed", s.speedText())
		add("committed", fmt.Sprintf("entry %s, page %s, %s events, %s ago", c.Place, humanize.Comma(c.Pages), humanize.Comma(c.Events),
			roundDuration(now.Sub(time.UnixMilli(c.WrittenAt)))))
	}
	if s.Live != nil {
		add("end", contractText(s.Live.Contract))
		if s.Live.DeadLettered > 0 {
			add("dead", humanize.Comma(s.Live.DeadLettered)+" dead letters since the bridge started: exportbridge tail --dlq")
		}
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
		add("read again", overlapText(c.Overlap))
	}
	for _, n := range s.Notes {
		add("note", n)
	}
	return rows
}

func (s *streamStatus) stateText(now time.Time) string {
	paused := s.Checkpoint != nil && s.Checkpoint.Paused(now)
	switch {
	case s.Live != nil && paused && s.Live.Place.Compare(s.Checkpoint.Place) < 0: // it tells once a second
		return fmt.Sprintf("%s (by %s)", pauseText(s.Checkpoint.PausedUntil, now), s.Live.Owner)
	case s.Live != nil:
		text := describeState(s.Live, now)
		if !s.Live.Since.IsZero() {
			text += ", for " + roundDuration(max(0, now.Sub(s.Live.Since)))
		}
		return fmt.Sprintf("%s (by %s)", text, s.Live.Owner)
	case paused:
		return pauseText(s.Checkpoint.PausedUntil, now) + "; no bridge tells more"
	case len(s.Members) > 0:
		return "a bridge runs it that has just started, or does not reach Redis"
	case !s.MembersKnown:
		return "whether a bridge runs it is not known"
	}
	return "no bridge runs it"
}

func (s *streamStatus) speedText() string {
	if s.Live == nil || s.Live.State == bridge.StatePaused {
		return ""
	}
	text := fmt.Sprintf("%.0f events/s", s.Live.Rate)
	switch {
	case s.CaughtUpIn > 0:
		text += fmt.Sprintf(", caught up in about %s (%.0f times as fast as time passes)", roundDuration(time.Duration(s.CaughtUpIn)*time.Second), s.Live.Pace)
	case s.CaughtUpIn < 0 && s.Live.Pace > 0:
		text += ", which does not catch up"
	}
	return text
}

func (s *streamStatus) membersText() string {
	var texts []string
	for _, m := range s.Members {
		name := m.ClientID
		if m.InstanceID != "" {
			name = m.InstanceID
		}
		role := "stands by"
		if m.Owner {
			role = "runs it"
		}
		texts = append(texts, fmt.Sprintf("%s at %s %s", name, m.Host, role))
	}
	return strings.Join(texts, "; ")
}

// overlapText says what was read again after a refused cursor.
func overlapText(o *bridge.Overlap) string {
	text := "now"
	if o.Done {
		text = "done"
	}
	return fmt.Sprintf("%s, after a refused cursor: from %s to %s; %s events were known and dropped", text,
		time.UnixMilli(o.From).UTC().Format(timeLayout), time.UnixMilli(o.Until).UTC().Format(timeLayout), humanize.Comma(o.Dropped))
}

// contractText says how the API marks the end of the results.
func contractText(c bridge.Contract) string {
	switch c {
	case bridge.ContractEmptyCursor:
		return "the API ends its results with an empty nextCursor"
	case bridge.ContractEmptyItems:
		return "the API ends its results with an empty page"
	}
	return ""
}

// waitFor waits, or less if ctx ends, whose error it returns then.
func waitFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
