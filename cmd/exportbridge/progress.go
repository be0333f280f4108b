package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"exportbridge/bridge"
)

const (
	lineInterval = 200 * time.Millisecond
	logInterval  = 10 * time.Second
)

// statusLine is a writer for log lines that keeps one line of status below
// them on a terminal. Elsewhere it only passes the log on. Safe for
// concurrent use.
type statusLine struct {
	terminal bool

	mu   sync.Mutex // guards all below and the order of what is written
	w    io.Writer
	line string // on the screen now
}

func newStatusLine(w io.Writer) *statusLine {
	return &statusLine{w: w, terminal: isTerminal(w)}
}

const clearLine = "\r\x1b[K"

// Write implements io.Writer for the log.
func (l *statusLine) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.line == "" {
		return l.w.Write(p)
	}
	_, err := io.WriteString(l.w, clearLine+string(p)+l.line)
	return len(p), err
}

// show replaces the status line; an empty one removes it.
func (l *statusLine) show(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if line == l.line {
		return
	}
	l.line = line
	_, _ = io.WriteString(l.w, clearLine+line) // a terminal that is gone ends the process by itself
}

// runShown runs the process and shows how far it is: a live line on a
// terminal, elsewhere a log line every ten seconds.
func (p *process) runShown(ctx context.Context, line *statusLine) error {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	var watcher sync.WaitGroup
	watcher.Go(func() { p.show(watching, line) })
	err := p.run(ctx)
	stop()
	watcher.Wait()
	return err
}

func (p *process) show(ctx context.Context, line *statusLine) {
	began := time.Now()
	interval := logInterval
	if line.terminal {
		interval = lineInterval
		defer line.show("")
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if line.terminal {
				line.show(describeAll(p.statuses(), now.Sub(began), now))
				continue
			}
			for _, s := range p.statuses() {
				p.plain.Info("progress", progressOf(&s)...)
			}
		}
	}
}

func progressOf(s *bridge.Status) []any {
	fields := []any{
		logStream, s.Stream, "state", string(s.State), "events", s.Events, "pages", s.Pages, "published", s.Published,
		"rate", fmt.Sprintf("%.0f/s", s.Rate), "caught_up", s.CaughtUp,
	}
	if !s.Position.IsZero() {
		fields = append(fields, "position", s.Position.UTC().Format(time.RFC3339))
	}
	if s.DeadLettered > 0 {
		fields = append(fields, "dead_lettered", s.DeadLettered)
	}
	if s.Error != "" {
		fields = append(fields, logError, s.Error)
	}
	return fields
}

// describeAll is the status line: how long the process runs, and a piece per
// stream.
func describeAll(all []bridge.Status, running time.Duration, now time.Time) string {
	return fmt.Sprintf("  %02d:%02d  %s", int(running.Minutes()), int(running.Seconds())%60, describeStreams(all, now))
}

// describeStreams says what each stream does.
func describeStreams(all []bridge.Status, now time.Time) string {
	parts := make([]string, len(all))
	for i := range all {
		parts[i] = describeStatus(&all[i], now)
		if len(all) > 1 {
			parts[i] = all[i].Stream + ": " + parts[i]
		}
	}
	return strings.Join(parts, "  |  ")
}

// describeState says in a few words what a stream does.
func describeState(s *bridge.Status, now time.Time) string {
	state := string(s.State)
	switch {
	case s.State == bridge.StateIdle:
		state = "caught up"
	case s.State == bridge.StateRunning && !s.Position.IsZero() && now.Sub(s.Position) > time.Minute:
		state = "behind " + roundDuration(now.Sub(s.Position))
	case s.State == bridge.StateBackoff && s.NextTry.IsZero():
		state = "waiting: " + cut(s.Error, 80)
	case s.State == bridge.StateBackoff:
		state = fmt.Sprintf("retry in %s: %s", roundDuration(max(0, s.NextTry.Sub(now))), cut(s.Error, 60))
	case s.State == bridge.StatePaused:
		state = pauseText(s.PausedUntil, now)
	case s.State == bridge.StateBlocked:
		state = fmt.Sprintf("BLOCKED (%s), next try in %s: %s", s.Reason, roundDuration(max(0, s.NextTry.Sub(now))), cut(s.Error, 60))
	}
	return state
}

// describeStatus adds to that how far the stream is.
func describeStatus(s *bridge.Status, now time.Time) string {
	text := fmt.Sprintf("%s   %s events   page %s committed   %.0f/s", describeState(s, now), humanize.Comma(s.Events), humanize.Comma(s.Pages), s.Rate)
	if !s.Position.IsZero() && s.State != bridge.StateBlocked {
		text += "   position " + s.Position.UTC().Format("2006-01-02 15:04:05Z")
	}
	return text
}

func roundDuration(d time.Duration) string {
	switch {
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// cut shortens a text to n characters.
func cut(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}
