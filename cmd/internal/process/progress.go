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
	"exportbridge/cmd/internal/config"
)

const (
	lineInterval = 200 * time.Millisecond
	logInterval  = 10 * time.Second
)

// StatusLine is a writer of log lines that keeps a status line below them on a
// terminal. Elsewhere it only writes the log. It may be used concurrently.
type StatusLine struct {
	terminal bool

	mu   sync.Mutex // guards all below, and keeps the output in order
	w    io.Writer
	line string // as given to show, "" for none
	cut  string // as shown, cut to the width of the terminal
}

// NewStatusLine returns a status line on w, shown if w is a terminal.
func NewStatusLine(w io.Writer) *StatusLine {
	return &StatusLine{w: Exact(w), terminal: IsTerminal(w)}
}

func (s *StatusLine) beneath() io.Writer { return s.w }

const clearLine = "\r\x1b[K"

// Write implements io.Writer for the log.
func (s *StatusLine) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line == "" {
		return s.w.Write(p)
	}
	s.fit()
	_, err := io.WriteString(s.w, clearLine+string(p)+s.cut)
	return len(p), err
}

// fit cuts the line to the present width of the terminal. The last column stays free,
// because some terminals wrap when it is written.
func (s *StatusLine) fit() { s.cut = Cut(s.line, max(2, Columns(s.w))-1) }

// show replaces the status line; an empty one removes it.
func (s *StatusLine) show(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.cut
	s.line = Printable(line)
	if s.fit(); s.cut != was {
		_, _ = io.WriteString(s.w, clearLine+s.cut) // the process ends if the terminal is lost
	}
}

// Keep shows the result of line on a terminal, and elsewhere calls log every ten seconds,
// until stop is called. stop waits for a call of line or log.
func (s *StatusLine) Keep(line func(time.Time) string, log func(time.Time)) (stop func()) {
	stopped := make(chan struct{})
	var keeper sync.WaitGroup
	keeper.Go(func() {
		interval := logInterval
		if s.terminal {
			interval = lineInterval
			defer s.show("")
		}
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-stopped:
				return
			case now := <-tick.C:
				if s.terminal {
					s.show(line(now))
				} else {
					log(now)
				}
			}
		}
	})
	return func() {
		close(stopped)
		keeper.Wait()
	}
}

// Run runs the process, and reports its progress on line and to the service manager. It
// ends when the streams end: when ctx ends, or when all bounded runs are done.
func (p *Process) Run(ctx context.Context, line *StatusLine) error {
	stop := p.show(line)
	defer stop()
	return p.notified(ctx, newNotifier(ctx, p.options.Environ, p.log), p.runStreams)
}

// show reports the progress of the process on line, until stop is called.
func (p *Process) show(line *StatusLine) (stop func()) {
	began, progress := time.Now(), new(progressLog)
	return line.Keep(func(now time.Time) string {
		running := now.Sub(began)
		return fmt.Sprintf("  %02d:%02d  %s", int(running.Minutes()), int(running.Seconds())%60,
			p.options.Describe(p.streams.statuses(), now))
	}, func(now time.Time) {
		all := p.streams.statuses()
		if len(all) > 1 {
			for i := range all {
				p.plain.Debug("stream progress", progressOf(&all[i])...)
			}
		}
		if progress.due(all, now) {
			p.plain.Info("progress", progressOfAll(all)...)
		}
	})
}

const (
	// workInterval is how often a process is logged while a stream is behind or fails.
	// restInterval is how often it is logged otherwise.
	workInterval = time.Minute
	restInterval = 5 * time.Minute
)

// progressLog decides when a process is logged. The zero value logs it at once.
type progressLog struct {
	last   time.Time // when the process was last logged
	atWork bool      // whether a stream was at work then
}

// due reports whether to log the process now: by its interval, or because all streams have
// come to rest since the last time.
func (p *progressLog) due(all []bridge.Status, now time.Time) bool {
	atWork, interval := false, restInterval
	for i := range all {
		atWork = atWork || !atRest(&all[i])
	}
	if atWork {
		interval = workInterval
	}
	due := p.last.IsZero() || now.Sub(p.last) >= interval || p.atWork && !atWork
	if due {
		p.last, p.atWork = now, atWork
	}
	return due
}

// atRest reports whether this process has nothing to do for a stream.
func atRest(s *bridge.Status) bool {
	switch s.State {
	case bridge.StateIdle, bridge.StateRunning:
		return s.CaughtUp && len(s.Warnings) == 0 && s.Error == ""
	case bridge.StatePaused, bridge.StateStandby:
		return s.Error == ""
	}
	return false
}

// progressOfAll returns the fields of a process's log line. For several streams these are
// sums, the number in each state, and the streams that need attention.
func progressOfAll(all []bridge.Status) []any {
	if len(all) == 1 {
		return progressOf(&all[0])
	}
	var published, dead int64
	var rate float64
	var behind, warned, failing []string
	oldest, states := time.Time{}, make(map[string]int)
	for i := range all {
		s := &all[i]
		states[strings.ReplaceAll(s.State.Text(), " ", "_")]++
		published, dead, rate = published+s.Published, dead+s.DeadLettered, rate+s.Rate
		if s.State == bridge.StateRunning && !s.CaughtUp {
			behind = append(behind, s.Stream)
			if oldest.IsZero() || !s.Position.IsZero() && s.Position.Before(oldest) {
				oldest = s.Position
			}
		}
		if len(s.Warnings) > 0 {
			warned = append(warned, s.Stream)
		}
		if s.Error != "" {
			failing = append(failing, s.Stream)
		}
	}
	fields := []any{"streams", len(all), "published", published, "rate", fmt.Sprintf("%.0f/s", rate)}
	for _, state := range slices.Sorted(maps.Keys(states)) {
		fields = append(fields, state, states[state])
	}
	if !oldest.IsZero() {
		fields = append(fields, "position", oldest.UTC().Format(time.RFC3339))
	}
	for _, list := range []struct {
		key   string
		names []string
	}{{"behind", behind}, {"warned", warned}, {"failing", failing}} {
		if len(list.names) > 0 {
			fields = append(fields, list.key, config.SomeOf(list.names, ","))
		}
	}
	if dead > 0 {
		fields = append(fields, "dead_lettered", dead)
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
