package process

import (
	"context"
	"errors"
	"maps"
	"os"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/config"
)

// configInterval is how often the file of BRIDGE_CONFIG is read. A change counts after two
// equal reads, because an editor may still be writing.
const configInterval = 2 * time.Second

// Reload makes the streams of a process follow changed settings.
type Reload struct {
	// Load loads the settings again. With an error it may return incomplete settings.
	Load func() (*config.Settings, error)
	// Now requests a reload, whether or not a file changed.
	Now <-chan os.Signal
}

// loaded has reloaded settings, or the error of the reload.
type loaded struct {
	settings *config.Settings
	err      error
}

// run loads the settings on request and when their files changed, until ctx ends.
func (r *Reload) run(ctx context.Context, w watch, to chan<- loaded) {
	tick := time.NewTicker(configInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.Now:
		case <-tick.C:
			if !w.changed() {
				continue
			}
		}
		before := readAll(w.contents)
		s, err := r.Load()
		w.tried(s, before)
		select {
		case to <- loaded{s, err}:
		case <-ctx.Done():
			return
		}
	}
}

// watch detects whether files changed. It follows links, because Kubernetes replaces the
// link of a ConfigMap.
type watch struct {
	contents map[string]string // contents at the last load, by path
	seen     map[string]string // contents at the last read
}

// changed reads the files. It returns true if they differ from those of the last load, and
// two reads gave the same contents.
func (w *watch) changed() bool {
	now := readAll(w.contents)
	settled := maps.Equal(now, w.seen)
	w.seen = now
	return settled && !maps.Equal(now, w.contents)
}

// tried records the files of a load. Without settings, these are the files as read before it:
// a change during the load is then loaded again.
func (w *watch) tried(s *config.Settings, before map[string]string) {
	w.contents, w.seen = before, nil
	if s != nil && s.Contents() != nil {
		w.contents = s.Contents()
	}
}

// readAll reads the files again. A file that cannot be read twice, such as a pipe, keeps
// its content.
func readAll(before map[string]string) map[string]string {
	now := make(map[string]string, len(before))
	for path, text := range before {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			text = ""
		case info.Mode().IsRegular():
			content, _ := os.ReadFile(path) // Load reports the error
			text = string(content)
		}
		now[path] = text
	}
	return now
}

// restartError names settings that cannot change while the process runs.
type restartError []string

// Error implements error.
func (names restartError) Error() string {
	return strings.Join(names, ", ") + " changed, which requires a restart of the process"
}

// WarningConfig is the code of the warning that the last reload failed.
const WarningConfig = "config_reload"

// report reports the outcome of a reload in the log, in the status of every stream, and in
// a metric.
func (p *Process) report(err error) {
	p.metrics.Reloaded(err == nil)
	if err == nil {
		p.outdated.Store(nil)
		return
	}
	hint := "correct the file; exportbridge config show lists all mistakes"
	if _, ok := errors.AsType[restartError](err); ok {
		hint = "restart the process, or undo the change"
	}
	p.log.Error("settings not reloaded; the streams go on unchanged", logError, err, logHint, hint)
	first, rest, _ := strings.Cut(err.Error(), "\n  ")
	if rest != "" { // the first line counts the mistakes
		first, _, _ = strings.Cut(rest, "\n")
	}
	p.outdated.Store(&bridge.Warning{Code: WarningConfig, Text: "settings not reloaded: " + first, Hint: hint})
}
