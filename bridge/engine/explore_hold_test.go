package engine_test

import (
	"fmt"
	"strings"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
)

// held checks that a commit keeps to a pause.
func (w *world) held(last, c bridge.Checkpoint, items []int) {
	now := time.Now()
	switch {
	case !last.Paused(now):
	case len(items) > 0:
		w.fail(rulePaused, "%s publishes %v at %d, %s says paused until %d", c.Version, items, now.UnixMilli(),
			last.Version, last.PausedUntil)
	case c.Kind == bridge.KindPause || c.Kind == bridge.KindResume || c.Epoch != last.Epoch && (w.lossy || w.switched):
	case c.PausedUntil != last.PausedUntil:
		w.fail(rulePaused, "%s is paused until %d, %s before it until %d", c.Version, c.PausedUntil, last.Version,
			last.PausedUntil)
	}
}

// forget makes the topic lose its checkpoints and keep its items, as one does
// whose topic of checkpoints is deleted, and the store everything.
func (w *world) forget() {
	x := &w.topic
	w.sessions++
	x.session = w.sessions
	x.gone = append(x.gone, x.log...)
	x.log, x.items, x.ends, x.copied = nil, nil, nil, bridge.Checkpoint{}
	w.row, w.none = 0, false
	w.lossy, w.lost, w.forgot = true, true, true
	w.wipe()
}

// lapse lets time pass in which no call is answered.
func (w *world) lapse() {
	t := time.NewTimer(70 * time.Second)
	defer t.Stop()
	<-t.C
}

// left reports whether the caller has given up, as it may while time passes.
func (w *world) left(c *call) bool {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return c.gone
}

// orphaned returns what is to be done at the change that a command asks for, if
// its claimer is to die there: the change is on its way, the process is gone,
// and the deadline passes.
func (w *world) orphaned(c *call) (after func()) {
	a := w.orphan
	commits := c.op == opAdvance
	if w.exactly {
		commits = c.op == opPublish
	}
	if a == nil || w.calm || !commits || w.inbox.pending != a || a.claimed == "" || a.claimer != c.proc.who {
		return nil
	}
	w.orphan = nil
	w.note("* orphaned (%c %s)", 'A'+c.proc.who, opNames[c.op])
	return func() {
		w.later, w.late = append(w.later, w.late...), nil
		w.crash(c.proc.who, true)
		w.lapse()
	}
}

func (w *world) states() string {
	var all []string
	for who, p := range w.procs {
		if p != nil {
			s := p.bridge.Status()
			all = append(all, fmt.Sprintf("%c %s %s %s %s", 'A'+who, s.Version, s.State, s.Reason, s.Error))
		}
	}
	return strings.Join(all, "; ")
}

// traceWriter writes the log of an instance into the trace.
type traceWriter struct {
	w   *world
	who int
}

func (t traceWriter) Write(line []byte) (int, error) {
	_, text, _ := strings.Cut(string(line), "level=")
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	t.w.trace = append(t.w.trace, fmt.Sprintf("                   %c  %s", 'a'+t.who, strings.TrimSpace(text)))
	return len(line), nil
}
