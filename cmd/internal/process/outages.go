package process

import (
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cursorstore"
)

// flapping is the time after a recovery in which another failure is not logged, unless the
// failure lasts longer.
const flapping = 30 * time.Second

// electing is the time in which an answer that Kafka expects clients to repeat is not logged:
// a new topic, and each topic while brokers restart, has no leader for a moment.
const electing = 5 * time.Second

// logChanges returns a reporter that logs when a server fails and when it recovers, each
// once, the latter with more fields. The engine logs failures of the API.
func logChanges(log *slog.Logger, server string) func(err error, more ...any) {
	var mu sync.Mutex // guards all below
	var away, back time.Time
	var told bool
	return func(err error, more ...any) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil && !told:
			if away.IsZero() {
				away = time.Now()
			}
			if time.Since(away) < patience(err, away.Sub(back)) {
				return
			}
			told = true
			fields := []any{"server", server, logError, err}
			fault := bridge.FaultOf(err)
			if fault.Hint != "" {
				fields = append(fields, logHint, fault.Hint)
			}
			switch {
			case fault.Class == bridge.Permanent: // the server answers: a topic or a permission is missing
				log.Warn("connection rejected; retrying", fields...)
			case errors.Is(err, cursorstore.ErrWrites):
				log.Warn("server rejects writes; retrying", fields...)
			case fault.Code == kafkasink.HeldBack:
				log.Warn("records held back; retrying", fields...)
			case kafkaclient.IsAnswer(err):
				log.Warn("server answers with an error; retrying", fields...)
			default:
				log.Warn("server unreachable; retrying", fields...)
			}
		case err == nil && !away.IsZero():
			if told {
				log.Info("server recovered", append([]any{"server", server,
					"after", time.Since(away).Round(time.Millisecond).String()}, more...)...)
			}
			if told || away.Sub(back) < flapping { // an election is no reason to be silent about an outage after it
				back = time.Now()
			}
			away, told = time.Time{}, false
		}
	}
}

// patience is how long a failure that begins a time after the last recovery is not logged.
func patience(err error, recovered time.Duration) time.Duration {
	switch {
	case recovered < flapping:
		return flapping
	case kerr.IsRetriable(err) && !kafkaclient.IsPermanent(err):
		return electing
	}
	return 0
}

// logOutages returns a reporter of a server for all streams. The log shows one outage: when
// the first stream fails, and when the last one recovers, with the number of streams that
// had failed. has reports whether the process has a stream.
func logOutages(log *slog.Logger, server string, has func(stream string) bool) func(stream string, err error) {
	said := logChanges(log, server)
	var mu sync.Mutex // guards all below, and keeps the messages of the log in order
	away, failed := make(map[string]struct{}), make(map[string]struct{})
	return func(stream string, err error) {
		mu.Lock()
		defer mu.Unlock()
		if delete(away, stream); err != nil {
			away[stream], failed[stream] = struct{}{}, struct{}{}
		}
		maps.DeleteFunc(away, func(stream string, _ struct{}) bool { return !has(stream) }) // streams that were removed
		switch {
		case err != nil:
			said(err)
		case len(away) == 0:
			said(nil, "streams", len(failed))
			clear(failed)
		}
	}
}

// kafkaReports returns the reporter of Kafka for a stream. A topic or permission that one
// stream lacks is not an outage of Kafka, which all streams share.
func kafkaReports(log *slog.Logger, stream string, outage func(stream string, err error)) func(error) {
	rejected := logChanges(log.With(logStream, stream), "kafka")
	return func(err error) {
		fault, ok := errors.AsType[*bridge.Fault](err)
		switch {
		case ok && fault.Class == bridge.Permanent:
			rejected(err)
			err = nil
		case err == nil:
			rejected(nil)
		}
		outage(stream, err)
	}
}

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
