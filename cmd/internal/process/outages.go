package process

import (
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"exportbridge/bridge"
	"exportbridge/cursorstore"
)

// flapping is the time after a recovery in which another failure is not logged, unless the
// failure lasts longer.
const flapping = 30 * time.Second

// logChanges returns a reporter that logs when a server fails and when it recovers, each
// once, the latter with more fields. The engine logs failures of the API.
func logChanges(log *slog.Logger, server string) func(err error, more ...any) {
	var mu sync.Mutex // guards all below
	var away, back time.Time
	var silent bool // the server is flapping
	return func(err error, more ...any) {
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
			if ok && fault.Class == bridge.Permanent { // the server answers: a topic or a permission is missing
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
				log.Info("server recovered", append([]any{"server", server,
					"after", time.Since(away).Round(time.Millisecond).String()}, more...)...)
			}
			away, back = time.Time{}, time.Now()
		}
	}
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
