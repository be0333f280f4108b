package process

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"exportbridge/bridge"
)

const (
	lineInterval = 200 * time.Millisecond
	logInterval  = 10 * time.Second
)

// StatusLine is a writer of log lines that keeps a status line below them on a
// terminal. Elsewhere it only writes the log. It may be used concurrently.
type StatusLine struct {
	terminal bool

	mu   sync.Mutex // guards all below and the order of what is written
	w    io.Writer
	line string // as it was given, "" for none
	cut  string // on the screen now: what the terminal has room for
}

// NewStatusLine returns a status line on w, shown if w is a terminal.
func NewStatusLine(w io.Writer) *StatusLine {
	return &StatusLine{w: Exact(w), terminal: IsTerminal(w)}
}

func (l *StatusLine) beneath() io.Writer { return l.w }

const clearLine = "\r\x1b[K"

// Write implements io.Writer for the log.
func (l *StatusLine) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.line == "" {
		return l.w.Write(p)
	}
	l.fit()
	_, err := io.WriteString(l.w, clearLine+string(p)+l.cut)
	return len(p), err
}

// fit cuts the line for the terminal as it is now. The last column stays free:
// some terminals wrap when it is written.
func (l *StatusLine) fit() { l.cut = Cut(l.line, max(2, Columns(l.w))-1) }

// show replaces the status line; an empty one removes it.
func (l *StatusLine) show(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.cut
	l.line = Printable(line)
	if l.fit(); l.cut != was {
		_, _ = io.WriteString(l.w, clearLine+l.cut) // losing the terminal ends the process
	}
}

// Keep shows the result of line on a terminal, and elsewhere calls log every ten
// seconds, until ctx ends.
func (l *StatusLine) Keep(ctx context.Context, line func(time.Time) string, log func(time.Time)) {
	interval := logInterval
	if l.terminal {
		interval = lineInterval
		defer l.show("")
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if l.terminal {
				l.show(line(now))
			} else {
				log(now)
			}
		}
	}
}

// Run runs the process and reports its progress on line and to the service manager.
// It ends as the streams do: when ctx ends or all bounded runs are done.
func (p *Process) Run(ctx context.Context, line *StatusLine) error {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	var watcher sync.WaitGroup
	watcher.Go(func() { p.show(watching, line) })
	err := p.notified(ctx, newNotifier(ctx, p.options.Environ, p.log), p.runStreams)
	stop()
	watcher.Wait()
	return err
}

func (p *Process) show(ctx context.Context, line *StatusLine) {
	began, progress := time.Now(), new(progressLog)
	line.Keep(ctx, func(now time.Time) string {
		running := now.Sub(began)
		return fmt.Sprintf("  %02d:%02d  %s", int(running.Minutes()), int(running.Seconds())%60, p.options.Describe(p.statuses(), now))
	}, func(now time.Time) {
		for _, fields := range progress.lines(p.statuses(), now) {
			p.plain.Info("progress", fields...)
		}
	})
}

// restInterval is how often streams at rest are logged.
const restInterval = 5 * time.Minute

// progressLog decides which streams are logged. The zero value logs all at first.
type progressLog struct {
	resting map[string]bool // the streams that were at rest when they were logged
	rested  time.Time       // when the streams at rest were logged
}

// lines returns the fields of the lines at now: a line for each stream that works or
// has just come to rest, and every five minutes one for all streams at rest.
func (l *progressLog) lines(all []bridge.Status, now time.Time) (lines [][]any) {
	due := now.Sub(l.rested) >= restInterval
	var resting []*bridge.Status
	was := l.resting
	l.resting = make(map[string]bool, len(all))
	for i := range all {
		s := &all[i]
		switch l.resting[s.Stream] = atRest(s); {
		case l.resting[s.Stream] && was[s.Stream]:
			resting = append(resting, s)
		default:
			lines = append(lines, progressOf(s))
		}
	}
	switch {
	case was == nil:
		l.rested = now
	case due && len(resting) > 0:
		l.rested = now
		lines = append(lines, restOf(resting))
	}
	return lines
}

// atRest reports whether nothing is to be done for a stream, or by this process.
func atRest(s *bridge.Status) bool {
	switch s.State {
	case bridge.StateIdle, bridge.StateRunning:
		return s.CaughtUp && len(s.Warnings) == 0 && s.Error == ""
	case bridge.StatePaused, bridge.StateStandby:
		return s.Error == ""
	}
	return false
}

// restOf are the fields of the line of all streams at rest.
func restOf(resting []*bridge.Status) []any {
	if len(resting) == 1 {
		return progressOf(resting[0])
	}
	states, published := make(map[bridge.State][]string), int64(0)
	for _, s := range resting {
		states[s.State] = append(states[s.State], s.Stream)
		published += s.Published
	}
	fields := []any{"published", published}
	for _, state := range slices.Sorted(maps.Keys(states)) {
		fields = append(fields, strings.ReplaceAll(state.Text(), " ", "_"), strings.Join(states[state], ","))
	}
	return fields
}

func progressOf(s *bridge.Status) []any {
	fields := []any{
		logStream, s.Stream, "state", s.State.Text(), "events", s.Events, "pages", s.Pages, "published", s.Published,
		"rate", fmt.Sprintf("%.0f/s", s.Rate), "caught_up", s.CaughtUp,
	}
	if !s.Position.IsZero() {
		fields = append(fields, "position", s.Position.UTC().Format(time.RFC3339))
	}
	if len(s.Warnings) > 0 {
		fields = append(fields, "warnings", len(s.Warnings), "warning", s.Warnings[0].Text)
	}
	if s.DeadLettered > 0 {
		fields = append(fields, "dead_lettered", s.DeadLettered)
	}
	if s.Error != "" {
		fields = append(fields, logError, s.Error)
	}
	return fields
}
