package process

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"exportbridge/bridge"
	"exportbridge/cursorstore"
)

// flapping is how soon after a recovery another failure is not logged, unless it
// lasts longer than that.
const flapping = 30 * time.Second

// logChanges returns a reporter that logs once when a server fails and once when it
// recovers. The engine logs failures of the API.
func logChanges(log *slog.Logger, server string) func(error) {
	var mu sync.Mutex // guards all below
	var away, back time.Time
	var silent bool // the server is flapping
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil && (away.IsZero() || silent):
			if away.IsZero() {
				away = time.Now()
				silent = away.Sub(back) < flapping
			}
			if silent = silent && time.Since(away) < flapping; silent {
				return
			}
			fields := []any{"server", server, logError, err}
			fault, ok := errors.AsType[*bridge.Fault](err)
			if ok && fault.Hint != "" {
				fields = append(fields, logHint, fault.Hint)
			}
			if ok && fault.Class == bridge.Permanent { // it answers: a topic or a right is missing
				log.Warn("connection rejected; retrying", fields...)
				return
			}
			if errors.Is(err, cursorstore.ErrWrites) {
				log.Warn("server rejects writes; retrying", fields...)
				return
			}
			log.Warn("server unreachable; retrying", fields...)
		case err == nil && !away.IsZero():
			if !silent {
				log.Info("server recovered", "server", server, "after", time.Since(away).Round(time.Millisecond).String())
			}
			away, back = time.Time{}, time.Now()
		}
	}
}
