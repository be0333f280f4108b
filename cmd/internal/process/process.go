// Package process makes a bridge process of its parts: it wires the streams that
// the settings describe, runs them beside metrics, traces and the HTTP server,
// logs, and tells a terminal and the service manager how far it is.
//
// It is not called runtime, which would hide the standard library's.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/collectors"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"exportbridge/bridge"
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
	// statusInterval is how often a running stream tells Redis that it runs.
	statusInterval = time.Second
	// thinInterval is how often old history is thinned out, a bounded piece
	// at a time.
	thinInterval = time.Minute
)

// Process is a bridge process: its streams and what they share.
type Process struct {
	options Options
	log     *slog.Logger // what the page shows too
	plain   *slog.Logger // for what it does not
	tail    *ops.LogTail
	redis   *cursorstore.Client
	metrics *metrics.Metrics
	samples *ops.Sampler
	server  *ops.Server              // nil if off
	traces  *sdktrace.TracerProvider // nil if off
	streams []*stream
}

// stream is one stream and its adapters.
type stream struct {
	name   string
	bridge *bridge.Bridge
	api    *exportapi.Client
	sink   *kafkasink.Sink
	owner  *kafkagroup.Owner
	store  *cursorstore.Store
	// Windows counts those of its jobs.
	windows func(ctx context.Context, age time.Duration) (map[string]int, error)
}

// Options are what a process needs besides its settings.
type Options struct {
	Build  metrics.Build
	Limits bridge.Limits
	Log    *slog.Logger // of NewLogger
	// Environ is asked for the service manager that wants to be told how the
	// process is; nil for none.
	Environ []string
	// Control makes what HTTP asks: the controllers of the streams, by name, and
	// their dead letters and jobs.
	Control func(*cursorstore.Client) (map[string]ops.Controller, ops.Records)
	// Windows returns what counts the windows of a stream's backfills and replays
	// by their state, as they were so long ago at most.
	Windows func(*config.Stream) func(ctx context.Context, age time.Duration) (map[string]int, error)
	// Describe says in a line what the streams do.
	Describe func([]bridge.Status, time.Time) string
	// ports, if not nil, changes what a bridge is made of.
	Ports func(bridge.Ports) bridge.Ports
}

// ListenError says that the HTTP server cannot have its address.
type ListenError struct{ err error }

// Error implements error.
func (e *ListenError) Error() string { return e.err.Error() }

// Unwrap returns why not.
func (e *ListenError) Unwrap() error { return e.err }

// New wires the parts of a process. Nothing runs yet, and no server is
// asked yet: servers that are away are waited for while running.
func New(ctx context.Context, s *config.Settings, o Options) (*Process, error) {
	p := &Process{options: o}
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
	healths := make([]*bridge.Health, len(s.Streams))
	for i := range healths {
		healths[i] = new(bridge.Health)
	}
	cursorstore.LogTo(log.With(LogComponent, "redis"))
	takeStandardLog(log)
	said := LogChanges(log, "redis")
	s.Cursor.Report = func(err error) {
		said(err)
		for _, h := range healths {
			h.Reporter(bridge.DependencyStore)(err)
		}
	}
	redis, err := cursorstore.Open(s.Cursor)
	if err != nil {
		return nil, err
	}
	p.redis = redis
	p.samples = ops.NewSampler(names, s.HTTP.ShowEvents)
	for i := range s.Streams {
		st, err := p.wire(&s.Streams[i], healths[i])
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.streams = append(p.streams, st)
	}
	if s.HTTP.Off() {
		return p, nil
	}
	err = p.listen(ctx, s.HTTP)
	switch {
	case err != nil && o.Limits != (bridge.Limits{}):
		// A bounded run beside a running bridge: nobody scrapes it.
		log.Warn("no metrics and health in this run", logError, err)
	case err != nil:
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// listen opens the HTTP server, and says who may do what there.
func (p *Process) listen(ctx context.Context, cfg ops.Config) error {
	controllers, records := p.options.Control(p.redis)
	log := p.log.With(LogComponent, "http")
	parts := ops.Parts{
		Version: p.options.Build.Version, Metrics: p.metrics, Controllers: controllers, Records: records, Log: p.tail, Samples: p.samples,
		Logger: log, Page: ui.Handler(),
	}
	for _, st := range p.streams {
		parts.Streams = append(parts.Streams, st.bridge)
	}
	var err error
	if p.server, err = ops.Listen(ctx, cfg, parts); err != nil {
		return &ListenError{err}
	}
	p.sayWhoMay(log, cfg)
	return nil
}

// sayWhoMay says what others than this machine may do where they reach the
// HTTP server.
func (p *Process) sayWhoMay(log *slog.Logger, cfg ops.Config) {
	if cfg.Local() {
		return
	}
	if cfg.AdminToken == "" {
		log.Info("actions are only taken from this machine", logAddr, cfg.Addr, logHint, "set HTTP_ADMIN_TOKEN_FILE to take them from elsewhere")
	}
	if cfg.ShowEvents {
		log.Warn("unsafe setting", "setting", "HTTP_SHOW_EVENTS", logAddr, cfg.Addr)
		p.metrics.Unsafe("", "HTTP_SHOW_EVENTS")
	}
}

// wire makes one stream's adapters and its bridge.
func (p *Process) wire(st *config.Stream, health *bridge.Health) (*stream, error) {
	log := p.log.With(logStream, st.Name)
	st.Export.Report, st.Export.Waited = health.Reporter(bridge.DependencySource), p.metrics.Throttled(st.Name)
	said, kafka := LogChanges(log, "kafka"), health.Reporter(bridge.DependencySink)
	st.Kafka.Report = func(err error) { said(err); kafka(err) }
	st.Kafka.Log = log.With(LogComponent, "kafka")
	st.Kafka.Sampled = sampler(p.samples, st.Name, st.Kafka.Topic)
	st.Engine.Log, st.Engine.Limits = p.log, p.options.Limits
	api, err := exportapi.New(st.Export)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", st.Name, err)
	}
	store := p.redis.Stream(st.Name)
	st.Kafka.Known = store.Load
	sink, err := kafkasink.New(st.Kafka)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", st.Name, err)
	}
	p.metrics.CountLosses(st.Name, sink.Losses)
	p.metrics.CountRefused(st.Name, sink.Refused)
	owner := st.Kafka.Ownership().Owner()
	s := &stream{name: st.Name, api: api, sink: sink, owner: owner, store: store, windows: p.options.Windows(st)}
	ports := bridge.Ports{
		Source: api, Sink: sink, Store: store, Owner: owner, Inbox: store, History: store, Published: sink, Observer: observers{p.metrics, p.samples}, Health: health,
	}
	p.trace(st, &ports, s)
	if p.options.Ports != nil {
		ports = p.options.Ports(ports)
	}
	if s.bridge, err = bridge.New(st.Engine, ports); err != nil {
		return nil, fmt.Errorf("stream %s: %w", st.Name, err)
	}
	return s, nil
}

// observers are told one after the other.
type observers []bridge.Observer

// Observe implements bridge.Observer.
func (all observers) Observe(o bridge.Observation) {
	for _, each := range all {
		each.Observe(o)
	}
}

// flapping is how soon after it was back a server that is away again is not
// worth another message: a Redis that refuses writes still answers to reads.
const flapping = 30 * time.Second

// LogChanges returns a reporter that logs once when a server goes away and
// once when it is back. What the API does is logged by the engine.
func LogChanges(log *slog.Logger, server string) func(error) {
	var mu sync.Mutex // guards all below
	var away, back time.Time
	var silent bool // a server that goes and comes all the time is spoken of once
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil && away.IsZero():
			away = time.Now()
			if silent = away.Sub(back) < flapping; silent {
				return
			}
			fields := []any{"server", server, logError, err}
			fault, ok := errors.AsType[*bridge.Fault](err)
			if ok && fault.Hint != "" {
				fields = append(fields, logHint, fault.Hint)
			}
			if ok && fault.Class == bridge.Permanent { // it answers: a topic or a right is missing
				log.Warn("server is not ready for us, waiting for it", fields...)
				return
			}
			log.Warn("server does not answer, waiting for it", fields...)
		case err == nil && !away.IsZero():
			if !silent {
				log.Info("server answers again", "server", server, "after", time.Since(away).Round(time.Millisecond).String())
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

// runStreams moves all streams until ctx ends or their bounded runs are done. One
// stream's end leaves the others running.
func (p *Process) runStreams(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var helpers, running sync.WaitGroup
	errs := make([]error, len(p.streams)+1)
	for _, st := range p.streams {
		helpers.Go(func() { p.tell(background, st) })
	}
	if p.server != nil {
		for _, st := range p.streams {
			helpers.Go(func() { p.watchJobs(background, st) })
		}
		helpers.Go(func() {
			if errs[len(p.streams)] = p.server.Serve(background); errs[len(p.streams)] != nil {
				p.log.Error("the HTTP server ended", logError, errs[len(p.streams)])
			}
		})
	}
	for i, st := range p.streams {
		running.Go(func() {
			if errs[i] = st.bridge.Run(ctx); errs[i] != nil {
				p.log.Error("stream ended", logStream, st.name, logError, errs[i])
			}
			st.leave(p.log)
		})
	}
	running.Wait()
	stop()
	helpers.Wait()
	return errors.Join(errs...)
}

// Announce says once, at the start, what the streams do and which of their
// settings deserve attention.
func (p *Process) Announce(s *config.Settings) {
	for i := range s.Streams {
		st := &s.Streams[i]
		p.log.Info("stream starts", logStream, st.Name, "version", p.options.Build.Version, "delivery", string(st.Engine.Mode),
			"api", st.Export.URL, "resource", st.Export.Resource, "topic", st.Kafka.Topic, "owner", st.Engine.Owner)
		for _, unsafe := range st.Unsafe() {
			p.log.Warn("unsafe setting", logStream, st.Name, "setting", unsafe)
			p.metrics.Unsafe(st.Name, unsafe)
		}
	}
}

// leaveTimeout bounds the goodbye to the group. Without it another process
// takes the stream over after BRIDGE_SESSION_TIMEOUT.
const leaveTimeout = 3 * time.Second

// leave lets another process have the stream at once.
func (st *stream) leave(log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := st.owner.Close(ctx); err != nil {
		log.Warn("the group was not left; another process has the stream after BRIDGE_SESSION_TIMEOUT", logStream, st.name, logError, err)
	}
}

// tell keeps the stream's live status in Redis, and its history thin. Redis
// being away is reported by the store itself and stops nothing here.
func (p *Process) tell(ctx context.Context, st *stream) {
	status, thin := time.NewTicker(statusInterval), time.NewTicker(thinInterval)
	defer status.Stop()
	defer thin.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusInterval)
			_ = st.store.PutStatus(last, st.bridge.Status()) // removes it; it would expire in any case
			cancel()
			return
		case <-status.C:
			now := st.bridge.Status()
			if now.State != bridge.StateStandby { // the one who runs the stream tells
				_ = st.store.PutStatus(ctx, now) // the next one follows in a second
			}
		case now := <-thin.C:
			if _, err := st.store.Thin(ctx, now); err != nil && ctx.Err() == nil {
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

// Close ends what a process holds that has run, or never did.
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
