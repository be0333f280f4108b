package process

import (
	"log/slog"
	"sync"
)

// warnOnce returns a logger that logs the text of each warning once, because the windows of
// a job repeat the warnings of the stream. It may be used concurrently.
func warnOnce(log *slog.Logger) func(text, hint string) {
	var said sync.Map
	return func(text, hint string) {
		if _, again := said.LoadOrStore(text, true); !again {
			log.Warn("export API: check the settings", "warning", text, logHint, hint)
		}
	}
}
