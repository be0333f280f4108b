package process

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/attest"
	"exportbridge/bridge/engine"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/contract"
	"exportbridge/cursorstore"
)

// stream is one stream, its adapters and its run.
type stream struct {
	name   string
	bridge *engine.Engine
	health *bridge.Health
	api    *exportapi.Client
	sink   *kafkasink.Sink
	owner  owner
	store  *cursorstore.Store
	attest *attest.Attestor  // nil if the stream is not attested
	schema *contract.Checker // nil without a schema
	// attestAPI is the client with which attest reads the API.
	attestAPI *exportapi.Client
	// windows counts the windows of the stream's jobs by state.
	windows func(ctx context.Context, age time.Duration) (map[string]int, error)
	// shutdown is the stream's BRIDGE_SHUTDOWN_TIMEOUT.
	shutdown time.Duration
	// outdated is the warning that the last reload of the settings failed; nil if it did
	// not.
	outdated *atomic.Pointer[bridge.Warning]
	// gone is true once the stream was removed or replaced. Then its run, or the runner,
	// releases it.
	gone     atomic.Bool
	released sync.Once

	run run // owned by runner
}

// Status returns the status of the stream.
func (st *stream) Status() bridge.Status {
	s := st.bridge.Status()
	if w := st.outdated.Load(); w != nil {
		s.Warnings = append(slices.Clip(s.Warnings), *w)
	}
	if st.attest != nil && s.Leader {
		s.Attested = st.attest.Status(s.Position)
		s.Warnings = append(slices.Clip(s.Warnings), s.Attested.Warnings(st.name)...)
	}
	if s.Leader {
		s.Schema = st.schema.Status()
	}
	return s
}

// Alive reports whether the commit loop has not stalled.
func (st *stream) Alive() bool { return st.bridge.Alive() }

func (st *stream) close() {
	_ = st.owner.Close(context.Background()) // does nothing after a run, which leaves the group
	st.sink.Close()
	st.api.Close()
	if st.attest != nil {
		st.attestAPI.Close()
	}
}

// streams are the streams of a process, including those that wait for a predecessor. Only
// New and runner change them. Their methods may be called concurrently.
type streams struct{ now atomic.Pointer[streamSet] }

// streamSet never changes.
type streamSet struct {
	all    []*stream
	byName map[string]*stream
}

// list returns the streams. The caller does not change the list.
func (s *streams) list() []*stream {
	if now := s.now.Load(); now != nil {
		return now.all
	}
	return nil
}

// advice is NameStream if there are several streams.
func (s *streams) advice(text, stream string) string {
	if len(s.list()) > 1 {
		return NameStream(text, stream)
	}
	return text
}

func (s *streams) set(all []*stream) {
	now := &streamSet{slices.Clone(all), make(map[string]*stream, len(all))}
	for _, st := range all {
		now.byName[st.name] = st
	}
	s.now.Store(now)
}

// named returns the stream with a name, nil if there is none.
func (s *streams) named(name string) *stream {
	if now := s.now.Load(); now != nil {
		return now.byName[name]
	}
	return nil
}

// healthOf returns the health of a stream, nil if there is no such stream.
func (s *streams) healthOf(name string) *bridge.Health {
	if st := s.named(name); st != nil {
		return st.health
	}
	return nil
}

func (s *streams) statuses() []bridge.Status {
	running := s.list()
	all := make([]bridge.Status, len(running))
	for i, st := range running {
		all[i] = st.Status()
	}
	return all
}

// Published counts the events that the streams of the process have published.
func (p *Process) Published() (events int64) {
	for _, st := range p.streams.list() {
		events += st.bridge.Status().Published
	}
	return events
}

// wire makes the adapters and the bridge of a stream. It contacts no server.
func (p *Process) wire(st *config.Stream) (*stream, error) {
	log, health := p.log.With(logStream, st.Name), new(bridge.Health)
	st.Export.Shared = &p.exports
	UseKeys(st, &p.keys)
	st.Export.Report, st.Export.Waited = health.Reporter(bridge.DependencySource), p.metrics.Throttled(st.Name)
	st.Export.Warn = warnOnce(log)
	said, kafka := kafkaReports(p.log, st.Name, p.kafkaOutage), health.Reporter(bridge.DependencySink)
	st.Kafka.Report = func(err error) { said(err); kafka(err) }
	st.Kafka.Log = log.With(logComponent, "kafka")
	st.Kafka.Sampled = sampler(p.samples, st.Name, st.Kafka.DeadTopic())
	st.Engine.Log, st.Engine.Limits, st.Engine.Budget, st.Engine.Starts = p.log, p.options.Limits, p.budget, p.starts
	st.Engine.StrayCursor, st.Engine.LeakInCursor = st.Export.StrayCursor, st.Export.LeakInCursor
	st.Engine.Refuse = st.Export.Refuse
	schema, err := checkerOf(st, log, &p.streams)
	if err != nil {
		return nil, err
	}
	api, err := exportapi.New(st.Export)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", st.Name, err)
	}
	store := p.redis.Stream(st.Name)
	st.Kafka.Known = store.Load
	sink, err := st.Kafka.Sink()
	if err != nil {
		api.Close()
		return nil, fmt.Errorf("stream %s: %w", st.Name, err)
	}
	owner, err := p.ownerOf(st)
	if err != nil {
		api.Close()
		sink.Close()
		return nil, err
	}
	s := &stream{
		name: st.Name, health: health, api: api, sink: sink, owner: owner, store: store, windows: p.options.Windows(st),
		shutdown: st.Engine.ShutdownTimeout, outdated: &p.outdated, schema: schema,
	}
	ports := engine.Ports{
		Source: api, Sink: sink, Store: store, Owner: owner, Inbox: store, History: store, Published: sink, Health: health,
		Observer: observers{p.metrics, p.samples, schema},
	}
	p.trace(st, &ports, s)
	followWindows(st, &ports)
	if p.options.Ports != nil {
		ports = p.options.Ports(ports)
	}
	if s.bridge, err = engine.New(st.Engine, ports); err != nil {
		s.close()
		return nil, fmt.Errorf("stream %s: %w", st.Name, err)
	}
	if err := setAttest(st, s, p.attesting, log); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// redisReports returns the reporter of Redis for the health of each stream. healthOf returns
// nil for an unknown stream.
func redisReports(log *slog.Logger, healthOf func(stream string) *bridge.Health) func(stream string, err error) {
	outage := logOutages(log, "redis", func(stream string) bool { return healthOf(stream) != nil })
	return func(stream string, err error) {
		if health := healthOf(stream); health != nil { // nil for the stream of a job
			health.Reporter(bridge.DependencyStore)(err)
			outage(stream, err)
		}
	}
}

// observers passes observations to several observers.
type observers []bridge.Observer

// Observe implements bridge.Observer.
func (all observers) Observe(o bridge.Observation) {
	for _, each := range all {
		each.Observe(o)
	}
}
