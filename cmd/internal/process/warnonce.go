package process

import (
	"log/slog"
	"sync"
)

// warnOnce returns a logger of warnings that logs each text once: the windows of
// a job say the same as the stream. It may be used concurrently.
func warnOnce(log *slog.Logger) func(text, hint string) {
	var said sync.Map
	return func(text, hint string) {
		if _, again := said.LoadOrStore(text, true); !again {
			log.Warn("export API: check the settings", "warning", text, logHint, hint)
		}
	}
}
