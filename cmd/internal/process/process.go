// Package process is the runtime of a bridge: it wires the streams of the settings,
// runs them with metrics, traces and the HTTP server, logs, and reports progress to a
// terminal and the service manager.
//
// It is not called runtime, which would hide the standard library's.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/collectors"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/engine"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/kafkagroup"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/ops"
	"exportbridge/bridge/ops/metrics"
	"exportbridge/bridge/ops/ui"
	"exportbridge/cmd/internal/config"
	"exportbridge/cursorstore"
)

const (
	// statusInterval is how often the status of a stream is written to Redis.
	statusInterval = time.Second
	// thinInterval is how often a bounded part of old history is thinned out.
	thinInterval = time.Minute
	// endTimeout is what a shutdown may take beyond BRIDGE_SHUTDOWN_TIMEOUT, in which
	// streams commit: to leave groups, answer requests and close connections. The
	// documents say 3 s, below the 30 s after which Kubernetes kills.
	endTimeout = 2500 * time.Millisecond
)

// ErrShutdown means that a shutdown took too long, and ends with the process. No event
// is lost or published twice by it: a transaction that is open is settled by the next start.
var ErrShutdown = errors.New("shutdown timed out with connections open")

// Process is a bridge process: its streams and what they share.
type Process struct {
	options Options
	log     *slog.Logger // also shown in the web UI
	plain   *slog.Logger // not shown there
	tail    *ops.LogTail
	redis   *cursorstore.Client
	metrics *metrics.Metrics
	samples *ops.Sampler
	server  *ops.Server              // nil if off
	jobs    *backfill.Host           // nil without a server
	traces  *sdktrace.TracerProvider // nil if off
	streams []*stream
	fleet   *kafkagroup.Fleet // nil if each stream has a group of its own
	limits  exportapi.Limits  // of the requests of all streams and jobs
	budget  *engine.Budget    // of the pages of all streams and jobs
	// shutdown is the longest BRIDGE_SHUTDOWN_TIMEOUT of the streams.
	shutdown time.Duration
}

// stream is one stream and its adapters.
type stream struct {
	name   string
	bridge *engine.Engine
	api    *exportapi.Client
	sink   *kafkasink.Sink
	owner  owner
	store  *cursorstore.Store
	// windows counts the windows of its jobs by state.
	windows func(ctx context.Context, age time.Duration) (map[string]int, error)
}

// Options are what a process needs besides its settings.
type Options struct {
	Build  metrics.Build
	Limits engine.Limits
	Log    *slog.Logger // of NewLogger
	// Environ is the environment, with the socket of the service manager; may be
	// nil.
	Environ []string
	// Control returns the controllers of the streams, by name, and their records,
	// for the HTTP server.
	Control func(*cursorstore.Client) (map[string]ops.Controller, ops.Records)
	// Windows returns the function that counts the windows of a stream's backfills
	// and replays by state, at most age old.
	Windows func(*config.Stream) func(ctx context.Context, age time.Duration) (map[string]int, error)
	// Describe describes the streams in a line.
	Describe func([]bridge.Status, time.Time) string
	// Ports, if not nil, replaces the ports of a bridge.
	Ports func(engine.Ports) engine.Ports
}

// ListenError means that the HTTP server could not bind its address.
type ListenError struct{ err error }

// Error implements error.
func (l *ListenError) Error() string { return l.err.Error() }

// Unwrap returns the cause.
func (l *ListenError) Unwrap() error { return l.err }

// New wires the parts of a process. It starts nothing and contacts no server:
// unreachable servers are retried while running.
func New(ctx context.Context, s *config.Settings, o Options) (*Process, error) {
	p := &Process{options: o, budget: engine.NewBudget(s.Memory)}
	log := o.Log
	names := make([]string, len(s.Streams))
	for i := range s.Streams {
		names[i] = s.Streams[i].Name
	}
	p.metrics = metrics.New(o.Build, names, p.statuses)
	p.metrics.Registry().MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
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
	healths := make(map[string]*bridge.Health, len(names))
	for _, name := range names {
		healths[name] = new(bridge.Health)
	}
	cursorstore.LogTo(log.With(logComponent, "redis"))
	takeStandardLog(log)
	s.Cursor.Report = redisReports(log, healths)
	var err error
	if p.redis, err = cursorstore.Open(s.Cursor); err != nil {
		return nil, err
	}
	own := *s // a job's view of Kafka does not count as that of its stream
	own.Streams = slices.Clone(s.Streams)
	p.samples = ops.NewSampler(names, s.HTTP.ShowEvents)
	for i := range s.Streams {
		st, err := p.wire(&s.Streams[i], healths[names[i]])
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.streams, p.shutdown = append(p.streams, st), max(p.shutdown, s.Streams[i].Engine.ShutdownTimeout)
	}
	if s.HTTP.Off() {
		return p, nil
	}
	if err = p.hostJobs(&own); err == nil {
		err = p.listen(ctx, s.HTTP)
	}
	switch {
	case err != nil && o.Limits != (engine.Limits{}):
		// A bounded run may share the machine with a running bridge.
		log.Warn("metrics and health endpoints disabled", logError, err)
	case err != nil:
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// listen opens the HTTP server and logs its access control.
func (p *Process) listen(ctx context.Context, cfg ops.Config) error {
	controllers, records := p.options.Control(p.redis)
	log := p.log.With(logComponent, componentHTTP)
	parts := ops.Parts{
		Version: p.options.Build.Version, Metrics: p.metrics, Controllers: controllers, Records: records, Jobs: p.jobs, Log: p.tail, Samples: p.samples,
		Logger: log, Page: ui.Handler(),
	}
	for _, st := range p.streams {
		parts.Streams = append(parts.Streams, st.bridge)
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
	if cfg.AdminToken == "" && !cfg.Local() {
		log.Info("HTTP actions restricted to localhost", logAddr, cfg.Addr, logHint,
			"set HTTP_ADMIN_TOKEN_FILE to allow them from elsewhere")
	}
	p.warnUnsafe(log.With(logAddr, cfg.Addr), "", cfg.Unsafe())
}

// wire makes one stream's adapters and its bridge.
func (p *Process) wire(st *config.Stream, health *bridge.Health) (*stream, error) {
	log := p.log.With(logStream, st.Name)
	st.Export.Limits = &p.limits
	st.Export.Report, st.Export.Waited = health.Reporter(bridge.DependencySource), p.metrics.Throttled(st.Name)
	st.Export.Warn = warnOnce(log)
	said, kafka := logChanges(log, "kafka"), health.Reporter(bridge.DependencySink)
	st.Kafka.Report = func(err error) { said(err); kafka(err) }
	st.Kafka.Log = log.With(logComponent, "kafka")
	st.Kafka.Sampled = sampler(p.samples, st.Name, st.Kafka.Topic)
	st.Engine.Log, st.Engine.Limits, st.Engine.Budget = p.log, p.options.Limits, p.budget
	st.Engine.StrayCursor, st.Engine.LeakInCursor = st.Export.StrayCursor, st.Export.LeakInCursor
	api, err := exportapi.New(st.Export)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", st.Name, err)
	}
	store := p.redis.Stream(st.Name)
	st.Kafka.Known = store.Load
	sink, err := st.Kafka.Sink()
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", st.Name, err)
	}
	p.metrics.CountLosses(st.Name, sink.Losses)
	p.metrics.CountRefused(st.Name, sink.Refused)
	owner, err := p.ownerOf(st)
	if err != nil {
		return nil, err
	}
	s := &stream{name: st.Name, api: api, sink: sink, owner: owner, store: store, windows: p.options.Windows(st)}
	ports := engine.Ports{
		Source: api, Sink: sink, Store: store, Owner: owner, Inbox: store, History: store, Published: sink, Observer: observers{p.metrics, p.samples}, Health: health,
	}
	p.trace(st, &ports, s)
	p.followWindows(st, &ports)
	if p.options.Ports != nil {
		ports = p.options.Ports(ports)
	}
	if s.bridge, err = engine.New(st.Engine, ports); err != nil {
		return nil, fmt.Errorf("stream %s: %w", st.Name, err)
	}
	return s, nil
}

// redisReports returns the reporter of Redis for the health of each stream. The log
// has one outage, from the first stream's to the last one's.
func redisReports(log *slog.Logger, healths map[string]*bridge.Health) func(stream string, err error) {
	said := logChanges(log, "redis")
	var mu sync.Mutex // guards away, and orders the log's reports
	away := make(map[string]struct{})
	return func(stream string, err error) {
		health := healths[stream]
		if health == nil { // a job's
			return
		}
		health.Reporter(bridge.DependencyStore)(err)
		mu.Lock()
		defer mu.Unlock()
		if delete(away, stream); err != nil {
			away[stream] = struct{}{}
		}
		if err != nil || len(away) == 0 {
			said(err)
		}
	}
}

// observers are several observers.
type observers []bridge.Observer

// Observe implements bridge.Observer.
func (all observers) Observe(o bridge.Observation) {
	for _, each := range all {
		each.Observe(o)
	}
}

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

func (p *Process) statuses() []bridge.Status {
	all := make([]bridge.Status, len(p.streams))
	for i, st := range p.streams {
		all[i] = st.bridge.Status()
	}
	return all
}

// Published counts the events that the process has published.
func (p *Process) Published() (events int64) {
	for _, st := range p.streams {
		events += st.bridge.Status().Published
	}
	return events
}

// runStreams runs all streams until ctx ends or their bounded runs are done. Streams
// are isolated: the end of one does not affect the others.
func (p *Process) runStreams(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	hosting, stopJobs := context.WithCancel(ctx)
	var helpers, jobs, streams sync.WaitGroup
	errs := make([]error, len(p.streams)+1)
	helpers.Go(func() { returnMemory(background, p.budget) })
	helpers.Go(func() { p.tell(background) })
	helpers.Go(func() { p.thin(background) })
	if p.server != nil {
		jobs.Go(func() { p.jobs.Run(hosting) })
		helpers.Go(func() { p.watchJobs(hosting) }) // a shutdown ends its questions first
		helpers.Go(func() {
			if errs[len(p.streams)] = p.server.Serve(background); errs[len(p.streams)] != nil {
				p.log.Error("HTTP server failed", logError, errs[len(p.streams)])
			}
		})
	}
	for i, st := range p.streams {
		streams.Go(func() {
			if errs[i] = st.bridge.Run(ctx); errs[i] != nil {
				p.log.Error("stream ended", logStream, st.name, logError, errs[i])
			}
			st.leave(p.log)
		})
	}
	helpers.Go(func() { p.abandon(ctx, background) })
	streams.Wait()
	stopJobs()
	jobs.Wait()
	stop()
	helpers.Wait()
	return errors.Join(errs...)
}

// Announce logs the streams and their unsafe settings, once at the start.
func (p *Process) Announce(s *config.Settings) {
	for i := range s.Streams {
		st := &s.Streams[i]
		p.log.Info("stream starts", logStream, st.Name, "version", p.options.Build.Version, "delivery", string(st.Engine.Mode),
			"api", st.Export.URL, "resource", st.Export.Resource, "topic", st.Kafka.Topic, "owner", st.Engine.Owner)
		p.warnUnsafe(p.log.With(logStream, st.Name), st.Name, st.Unsafe())
	}
	p.warnUnsafe(p.log, "", s.Unsafe())
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
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusInterval)
			_ = p.redis.PutStatuses(last, p.statuses()) // removes them; they would expire in any case
			cancel()
			return
		case <-tick.C:
			owned := slices.DeleteFunc(p.statuses(), func(s bridge.Status) bool {
				return s.State == bridge.StateStandby // the owner writes it
			})
			_ = p.redis.PutStatuses(ctx, owned) // the next ones follow in a second
		}
	}
}

// thin thins the histories of the streams.
func (p *Process) thin(ctx context.Context) {
	for bridge.Sleep(ctx, thinInterval); ctx.Err() == nil; bridge.Sleep(ctx, thinInterval) {
		for _, st := range p.streams {
			if _, err := st.store.Thin(ctx, time.Now()); err != nil && ctx.Err() == nil {
				p.log.Debug("history not thinned", logStream, st.name, logError, err)
			}
		}
	}
}

// Addr returns the address of the HTTP server, nil if there is none.
func (p *Process) Addr() net.Addr {
	if p.server == nil {
		return nil
	}
	return p.server.Addr()
}

// RunAndClose is Run and then Close, for a caller that ends the process afterwards: when
// ctx ends, both have BRIDGE_SHUTDOWN_TIMEOUT and a little more. What hangs is left.
func (p *Process) RunAndClose(ctx context.Context, line *StatusLine) error {
	return endWithin(ctx, p.shutdown+endTimeout, func() error {
		err := p.Run(ctx, line)
		if err == nil && p.options.Limits != (engine.Limits{}) && ctx.Err() == nil {
			err = doubts(p.statuses())
		}
		return errors.Join(err, p.Close())
	})
}

// endWithin returns the error of run, or ErrShutdown so long after the end of ctx.
func endWithin(ctx context.Context, limit time.Duration, run func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- run() }() // waited for, or ended by the process
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	t := time.NewTimer(limit)
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
	for _, st := range p.streams {
		st.sink.Close()
		st.api.Close()
	}
	if p.server != nil {
		if err := p.server.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, p.redis.Close())...)
}
