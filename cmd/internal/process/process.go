// Package process is the runtime of a bridge. It wires the streams of the settings, and
// runs them with metrics, traces, logs and the HTTP server. It reports progress to a
// terminal and to the service manager.
//
// It is not called runtime, because that name would hide the standard library's package.
package process

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/collectors"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/engine"
	"exportbridge/bridge/engine/budget"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/kafkagroup"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/keyring"
	"exportbridge/bridge/ops"
	"exportbridge/bridge/ops/metrics"
	"exportbridge/bridge/ops/ui"
	"exportbridge/cmd/internal/config"
	"exportbridge/cursorstore"
)

const (
	// statusInterval is how often the status of a stream is written to Redis. One that has
	// not changed is written every quietInterval: writing all took a sixth of the CPU of a
	// process with 300 quiet streams. The status lives for cursorstore.StatusTTL.
	statusInterval = time.Second
	quietInterval  = 2 * statusInterval
	// thinInterval is how often a part of the old history is thinned out.
	thinInterval = time.Minute
	// endTimeout is the time of a shutdown beyond BRIDGE_SHUTDOWN_TIMEOUT, in which streams
	// commit. It is for leaving groups, answering requests and closing connections. The
	// documents say 3 s, and Kubernetes kills after 30 s.
	endTimeout = 2500 * time.Millisecond
)

// ErrShutdown means that a shutdown took too long and was cut short. No event is lost or
// published twice: the next start settles an open transaction.
var ErrShutdown = errors.New("shutdown timed out with connections open")

// Process is a bridge process: its streams and what they share.
type Process struct {
	options Options
	log     *slog.Logger // also shown in the web UI
	plain   *slog.Logger // not shown in the web UI
	tail    *ops.LogTail
	redis   *cursorstore.Client
	metrics *metrics.Metrics
	samples *ops.Sampler
	server  *ops.Server     // nil if HTTP is off
	jobs    *backfill.Host  // jobs begun over HTTP
	lanes   *backfill.Lanes // nil without a fleet, and in a bounded run
	jobLogs kafkasink.JobLogs
	traces  *sdktrace.TracerProvider // nil if tracing is off
	streams streams
	fleet   *kafkagroup.Fleet // nil if each stream has a group of its own
	exports exportapi.Shared  // shared by the clients of all streams and jobs
	keys    keyring.Pool      // keys of encrypted values, shared by the clients of all streams and jobs
	budget  *budget.Budget    // memory for the pages of all streams and jobs
	starts  *engine.Starts    // limits the sessions that all streams begin
	// attesting limits the concurrent comparisons of all attestations by its capacity.
	attesting chan struct{}
	// kafkaOutage logs the reports of a stream about Kafka.
	kafkaOutage func(stream string, err error)
	// settings are those of the running streams; after New owned by runner.
	settings *config.Settings
	// outdated is the warning that the last reload of the settings failed; nil if it did
	// not.
	outdated atomic.Pointer[bridge.Warning]
	// operators serves the requests of operators over HTTP; it is replaced when the
	// settings change.
	operators atomic.Pointer[operators]
	// shutdown is the longest BRIDGE_SHUTDOWN_TIMEOUT of the streams so far.
	shutdown atomic.Int64
}

// operators are the controllers of the streams, by name, and their records.
type operators struct {
	controllers map[string]ops.Controller
	records     ops.Records
}

// Options are the needs of a process besides its settings.
type Options struct {
	Build  metrics.Build
	Limits engine.Limits
	Log    *slog.Logger // a result of NewLogger
	// Environ is the environment, which has the socket of the service manager; may be nil.
	Environ []string
	// Control returns the controllers of the streams of the settings, by name, and their
	// records, for the HTTP server. It does not change the settings.
	Control func(*cursorstore.Client, *config.Settings) (map[string]ops.Controller, ops.Records)
	// Reload, if not nil, makes the streams follow changed settings.
	Reload *Reload
	// Windows returns the function that counts the windows of a stream's backfills
	// and replays by state, at most age old.
	Windows func(*config.Stream) func(ctx context.Context, age time.Duration) (map[string]int, error)
	// Describe describes the streams in a line.
	Describe func([]bridge.Status, time.Time) string
	// Ports, if not nil, replaces the ports of a bridge.
	Ports func(engine.Ports) engine.Ports
}

// ListenError means that the HTTP server could not bind an address or open its audit log.
type ListenError struct{ err error }

// Error implements error.
func (l *ListenError) Error() string { return l.err.Error() }

// Unwrap returns the cause.
func (l *ListenError) Unwrap() error { return l.err }

// New wires the parts of a process. It starts nothing and contacts no server:
// unreachable servers are retried while running.
func New(ctx context.Context, s *config.Settings, o Options) (*Process, error) {
	p := &Process{options: o, budget: budget.New(s.Memory), starts: engine.NewStarts(), settings: s,
		attesting: make(chan struct{}, attestedAtOnce)}
	log := o.Log
	p.metrics = metrics.New(o.Build, s.MetricsDetail, s.Names(), p.streams.statuses)
	p.metrics.Registry().MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	p.plain = slog.New(p.metrics.CountLogs(log.Handler()))
	log = slog.New(p.metrics.CountLogs(beneathFolds(log, func(to slog.Handler) slog.Handler {
		p.tail = ops.NewLogTail(to)
		return p.tail
	})))
	p.log = log
	if s.TraceURL != "" {
		traces, err := startTraces(ctx, s.TraceURL, o.Build.Version, log)
		if err != nil {
			return nil, err
		}
		p.traces = traces
	}
	cursorstore.LogTo(log.With(logComponent, "redis"))
	takeStandardLog(log)
	s.Cursor.Report = redisReports(log, p.streams.healthOf)
	p.kafkaOutage = logOutages(log, "kafka", func(stream string) bool { return p.streams.named(stream) != nil })
	var err error
	if p.redis, err = cursorstore.Open(s.Cursor); err != nil {
		return nil, err
	}
	p.samples = ops.NewSampler(s.HTTP.ShowEvents)
	own := unwired(s)
	var all []*stream
	for i := range s.Streams {
		st, err := p.wire(&s.Streams[i])
		if err != nil {
			closeAll(all)
			return nil, errors.Join(err, p.Close())
		}
		all = append(all, st)
		p.adopt(st)
	}
	p.streams.set(all)
	if o.Reload != nil {
		p.metrics.Reloaded(true)
	}
	if err = p.operate(own); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	if s.HTTP.Off() {
		return p, nil
	}
	err = p.listen(ctx, s.HTTP)
	switch {
	case err != nil && o.Limits.Bounded():
		// A bounded run may share the machine with a running bridge.
		log.Warn("metrics and health endpoints disabled", logError, err)
	case err != nil:
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// listen opens the HTTP server and logs its access control.
func (p *Process) listen(ctx context.Context, cfg ops.Config) error {
	log := p.log.With(logComponent, componentHTTP)
	parts := ops.Parts{
		Version: p.options.Build.Version, Metrics: p.metrics, Records: liveRecords{p}, Jobs: p.jobs,
		Log: p.tail, Samples: p.samples, Logger: log, Page: ui.Handler(),
		Controller: func(name string) ops.Controller { return p.operators.Load().controllers[name] },
		Streams: func() []ops.Stream {
			var all []ops.Stream
			for _, st := range p.streams.list() {
				all = append(all, st)
			}
			return all
		},
	}
	var err error
	if p.server, err = ops.Listen(ctx, cfg, parts); err != nil {
		return &ListenError{err}
	}
	p.logAccess(log, cfg)
	return nil
}

// logAccess logs what clients of the HTTP server may do.
func (p *Process) logAccess(log *slog.Logger, cfg ops.Config) {
	if cfg.AdminToken == "" && slices.Contains(cfg.Unsafe(), "HTTP_ADDR") {
		log.Info("HTTP actions restricted to localhost", logAddr, cfg.Addr, logHint,
			"set HTTP_ADMIN_TOKEN_FILE to allow them from elsewhere")
	}
	p.warnUnsafe(log.With(logAddr, cfg.Addr), "", cfg.Unsafe())
}

// Announce logs the streams and their unsafe settings, once at the start.
func (p *Process) Announce(s *config.Settings) {
	for i := range s.Streams {
		p.announce(&s.Streams[i])
	}
	p.warnUnsafe(p.log, "", s.Unsafe())
}

func (p *Process) announce(st *config.Stream) {
	p.log.Info("stream starts", logStream, st.Name, "version", p.options.Build.Version, "delivery", string(st.Engine.Mode),
		"api", st.Export.URL, "resource", st.Export.Resource, "topic", st.Kafka.Topic, "owner", st.Engine.Owner)
	p.warnUnsafe(p.log.With(logStream, st.Name), st.Name, st.Unsafe())
}

// warnUnsafe logs and counts the unsafe settings of a stream, or of the process if stream
// is empty.
func (p *Process) warnUnsafe(log *slog.Logger, stream string, settings []string) {
	for _, setting := range settings {
		why, remedy := config.UnsafeReason(setting)
		log.Warn("unsafe setting", "setting", setting, "why", why, logHint, remedy)
		p.metrics.Unsafe(stream, setting)
	}
}

// tell writes the live statuses of the streams to Redis. The store reports failures itself.
func (p *Process) tell(ctx context.Context) {
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	told := make(map[string]*toldStatus)
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusInterval)
			_ = p.redis.PutStatuses(last, reports(p.streams.statuses()...)) // removes them at once, not when they expire
			cancel()
			return
		case now := <-tick.C:
			if p.redis.PutStatuses(ctx, dueStatuses(told, now, p.streams.statuses())) != nil {
				clear(told) // all statuses follow in a second
			}
		}
	}
}

// toldStatus is a status as it was last written.
type toldStatus struct {
	cursorstore.EncodedStatus
	at time.Time
}

// dueStatuses returns the statuses to write now, and notes them in told.
func dueStatuses(told map[string]*toldStatus, now time.Time, all []bridge.Status) (due []*cursorstore.EncodedStatus) {
	if len(told) > len(all) { // it has streams that a reload removed
		clear(told)
	}
	for i := range all {
		s := &all[i]
		if s.State == bridge.StateStandby { // the owner writes the status
			delete(told, s.Stream)
			continue
		}
		is := told[s.Stream]
		if is == nil || !reflect.DeepEqual(&is.Status, s) {
			is = &toldStatus{EncodedStatus: cursorstore.EncodedStatus{Status: *s}}
			told[s.Stream] = is
		}
		if now.Sub(is.at) >= quietInterval-statusInterval/2 { // one tick may be late, and the next one not
			is.at, due = now, append(due, &is.EncodedStatus)
		}
	}
	return due
}

// reports returns the statuses to write.
func reports(all ...bridge.Status) []*cursorstore.EncodedStatus {
	written := make([]*cursorstore.EncodedStatus, len(all))
	for i := range all {
		written[i] = &cursorstore.EncodedStatus{Status: all[i]}
	}
	return written
}

// thin thins the histories of the streams.
func (p *Process) thin(ctx context.Context) {
	for bridge.Sleep(ctx, thinInterval); ctx.Err() == nil; bridge.Sleep(ctx, thinInterval) {
		for _, st := range p.streams.list() {
			if _, err := st.store.Thin(ctx, time.Now()); err != nil && ctx.Err() == nil {
				p.log.Debug("history not thinned", logStream, st.name, logError, err)
			}
		}
	}
}

// Addr returns the address of HTTP_ADDR, nil if HTTP is off.
func (p *Process) Addr() net.Addr {
	if p.server == nil {
		return nil
	}
	return p.server.Addr()
}

// RunAndClose calls Run and then Close, for a caller that ends the process afterwards. When
// ctx ends, both have BRIDGE_SHUTDOWN_TIMEOUT and a little more. It does not wait longer
// for anything that hangs.
func (p *Process) RunAndClose(ctx context.Context, line *StatusLine) error {
	limit := func() time.Duration { return time.Duration(p.shutdown.Load()) + endTimeout }
	return endWithin(ctx, limit, func() error {
		err := p.Run(ctx, line)
		if err == nil && p.options.Limits.Bounded() && ctx.Err() == nil {
			err = doubts(p.streams.statuses())
		}
		return errors.Join(err, p.Close())
	})
}

// endWithin returns the error of run, or ErrShutdown if run has not ended within limit
// after the end of ctx.
func endWithin(ctx context.Context, limit func() time.Duration, run func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- run() }() // ends before endWithin returns, or with the process
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	t := time.NewTimer(limit())
	defer t.Stop()
	select {
	case err := <-ended:
		return err
	case <-t.C:
		return ErrShutdown
	}
}

// Close releases the resources of a process, whether or not it has run.
func (p *Process) Close() error {
	var errs []error
	p.flushTraces()
	for _, st := range p.streams.list() {
		st.close()
	}
	if p.server != nil {
		if err := p.server.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, p.redis.Close())...)
}
