package process

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/attest"
	"exportbridge/bridge/engine"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/ops"
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

// sampler offers published events to the sampler of the web UI.
func sampler(to *ops.Sampler, stream, letters string) func(*kgo.Record) {
	return func(r *kgo.Record) {
		if r.Topic == letters {
			return // the record is a dead letter
		}
		to.Offer(stream, func(values bool) ops.Sample { return sampleOf(r, values) })
	}
}

func sampleOf(r *kgo.Record, values bool) ops.Sample {
	s := ops.Sample{Time: r.Timestamp.UTC(), Key: string(r.Key), Partition: r.Partition, Offset: r.Offset}
	for _, h := range r.Headers {
		switch h.Key {
		case "ce_type":
			s.Type = string(h.Value)
		case "ce_id":
			s.ID = string(h.Value)
		case "eb-origin":
			s.Origin = string(h.Value)
		}
	}
	if values {
		s.Value = string(r.Value)
	}
	return s
}

// streamCommand matches a command in a text that needs --stream if there are several
// streams. It also matches the flag that selects streams, if the command has one.
var streamCommand = regexp.MustCompile(`\bexportbridge (?:cursor ` +
	`(?:export|history|import|reset|rewind|show)|backfill(?: cancel| list| pause| resume| watch)?|` +
	`dlq (?:list|retry|show)|schema (?:check|infer|register|types)|` +
	`attest|replay|pause|resume|tail|verify)\b(?: --(?:stream|all|match)\b)?`)

// NameStream returns a text whose commands name the stream. If stream is "", they have NAME
// in its place.
func NameStream(text, stream string) string {
	return streamCommand.ReplaceAllStringFunc(text, func(command string) string {
		if strings.Contains(command, " --") {
			return command
		}
		return command + " --stream " + cmp.Or(stream, "NAME")
	})
}
