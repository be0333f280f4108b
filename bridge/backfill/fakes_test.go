package backfill_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/engine"
)

const stream = "events"

// second returns a time of the tests' ranges, in milliseconds since the epoch.
func second(n int) int64 { return 900_000_000_000 + int64(n)*1000 }

// planLog is a Log in memory. Its checkpoints are those of a Topic.
type planLog struct {
	topic *bridgetest.Topic

	mu      sync.Mutex // guards all below
	plans   map[string]*kgo.Record
	offset  int64
	gone    []string
	changes int
	fails   map[int]bridgetest.Failure // of Change, by number
	// onChange is called in each Change before change is, with its number.
	onChange func(n int)
	changed  chan struct{} // closed, and made anew, with every change
	// away, while it is set, is the first Change to which no broker answers.
	away int
	// members, if not nil, is asked who works on a job.
	members func(id string) []bridge.Member
	lanes   func(id string, n int) []bridge.Member
}

func newPlanLog(topic *bridgetest.Topic) *planLog {
	return &planLog{topic: topic, plans: make(map[string]*kgo.Record), fails: make(map[int]bridgetest.Failure),
		changed: make(chan struct{})}
}

func (l *planLog) Records(context.Context, time.Duration) (plans, checkpoints map[string]*kgo.Record, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	plans, checkpoints = maps.Clone(l.plans), make(map[string]*kgo.Record)
	for _, k := range slices.Backward(l.topic.Kept()) {
		name := k.Checkpoint.Stream
		if checkpoints[name] != nil || slices.Contains(l.gone, name) {
			continue
		}
		value, err := k.Checkpoint.Encode()
		if err != nil {
			return nil, nil, err
		}
		checkpoints[name] = &kgo.Record{Key: []byte(name), Value: value}
	}
	return plans, checkpoints, nil
}

func (l *planLog) Change(ctx context.Context, id string, change func(*kgo.Record) ([]byte, []string, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	l.changes++
	n, on, away := l.changes, l.onChange, l.away > 0 && l.changes >= l.away
	l.mu.Unlock()
	if away {
		bridge.Sleep(ctx, 45*time.Second)
		return &bridge.Fault{Class: bridge.Transient, Err: bridgetest.ErrDown}
	}
	if on != nil {
		on(n)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	how, fails := l.fails[n]
	plan, gone, err := change(l.plans[id])
	if err != nil {
		return err
	}
	down := &bridge.Fault{Class: bridge.Transient, Err: bridgetest.ErrDown}
	if fails && how == bridgetest.Failed {
		return down
	}
	if l.plans[id], l.offset = (&kgo.Record{Key: []byte("job/" + stream + "/" + id), Value: plan, Offset: l.offset}), l.offset+1; plan == nil {
		delete(l.plans, id)
	}
	l.gone = append(l.gone, gone...)
	close(l.changed)
	l.changed = make(chan struct{})
	if fails {
		return down
	}
	return nil
}

func (l *planLog) Begin(ctx context.Context, id string, check func(map[string]*kgo.Record) ([]byte, error)) error {
	return l.Change(ctx, id, func(have *kgo.Record) (plan []byte, gone []string, err error) {
		if plan, err = check(l.plans); plan == nil && have != nil {
			plan = have.Value
		}
		return plan, nil, err
	})
}

func (l *planLog) Watch(ctx context.Context, id string, visit func(*kgo.Record)) error {
	for ctx.Err() == nil {
		l.mu.Lock()
		r, changed := l.plans[id], l.changed
		l.mu.Unlock()
		if r != nil {
			visit(r)
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil
}

func (l *planLog) Members(_ context.Context, id string) ([]bridge.Member, error) {
	if l.members == nil {
		return nil, nil
	}
	return l.members(id), nil
}

// Lanes and Hosts are those of no fleet, unless the test has one.
func (l *planLog) Lanes(_ context.Context, id string, n int) ([]bridge.Member, error) {
	if l.lanes == nil {
		return make([]bridge.Member, n), nil
	}
	return l.lanes(id, n), nil
}

func (l *planLog) Hosts(context.Context) ([]bridge.Member, error) { return nil, nil }

// put commits a value as a plan.
func (l *planLog) put(id, value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.plans[id] = &kgo.Record{Key: []byte("job/" + stream + "/" + id), Value: []byte(value)}
}

// world is an export, the topics, and the process that publishes from one into
// the other.
type world struct {
	t     *testing.T
	topic *bridgetest.Topic
	log   *planLog
	jobs  *backfill.Jobs
	group *bridgetest.Group
	items []string

	identity bridge.SourceIdentity // of the pages
	endless  bool                  // the API ignores the end of a window
	ignores  bool                  // the API ignores the cursor
	cuts     *cuts                 // the API lists one page of a window, nil if it lists all
	logged   *slog.Logger          // of the engines
	live     checkpoints           // of the stream
	request  bridge.Fingerprint    // of the settings
	list     *list                 // what the stream follows by windows, nil for a cursor

	mu      sync.Mutex                    // guards all below
	sources map[string]*bridgetest.Source // by window: its cursors outlast the process
	opened  []string
	running int
	most    int // windows that ran at a time
	limit   float64
	broken  map[int]error // what the API says in a window
	ids     string        // the Origin.ItemID of the settings
	said    []string
}

func newWorld(t *testing.T, events int) *world {
	t.Helper()
	topic := bridgetest.NewTopic(t, bridge.ExactlyOnce)
	w := &world{
		t: t, topic: topic, log: newPlanLog(topic), group: bridgetest.NewGroup(t),
		sources: make(map[string]*bridgetest.Source), broken: make(map[int]error),
	}
	w.jobs = backfill.NewJobs(w.log, stream)
	for i := range events {
		w.items = append(w.items, fmt.Sprintf(`{"eventId":"e%d","timestamp":%d}`, i, second(i)))
	}
	return w
}

// inOwnWorld is inWorld beside other tests.
func inOwnWorld(t *testing.T, events int, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	inWorld(t, events, f)
}

// inWorld runs f with a new world in a synctest bubble.
func inWorld(t *testing.T, events int, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t, events)) })
}

// plan is a backfill of the first so many seconds in n windows.
func (w *world) plan(seconds, n int) backfill.Job {
	return backfill.Job{
		Version: 1, ID: "aaaaaa", Kind: backfill.Backfill, Stream: stream, Resource: "events", Topic: "export.events",
		From: second(0), To: second(seconds), Windows: backfill.Split(second(0), second(seconds), n), Parallel: 2, PageSize: 4,
		Who: "me", Created: time.Now().UnixMilli(), State: backfill.Running,
	}
}

// open makes what a window runs on, and wants its plan to be committed.
func (w *world) open(j *backfill.Job, n int) (*backfill.Setup, error) {
	w.log.mu.Lock()
	if w.log.plans[j.ID] == nil {
		w.t.Errorf("window %d begins before its plan is committed", n)
	}
	w.log.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	name := j.WindowName(n)
	w.opened = append(w.opened, name)
	w.running++
	w.most = max(w.most, w.running)
	source := w.sources[name]
	if source == nil {
		source = bridgetest.NewSource(w.t, bridgetest.Export{PageSize: 4, Latency: 100 * time.Millisecond, Identity: w.identity})
		source.Append(w.items...)
		w.sources[name] = source
	}
	source.Refuse(func(bridge.Position) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.broken[n]
	})
	cfg := engine.DefaultConfig()
	cfg.PageSize, cfg.OnInvalidCursor, cfg.Origin.ItemID, cfg.Log = j.PageSize, "previous", w.ids, w.logged
	port := bridge.Source(source)
	switch {
	case w.endless:
		port = endless{source}
	case w.ignores:
		port = ignores{source}
	case w.cuts != nil:
		port = cuts{source, w.cuts.unread}
	case w.list != nil:
		port = w.list
	}
	return &backfill.Setup{Config: cfg, Source: port, Ranges: w.list.ranges, Sink: w.topic.Open(name), Close: func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running--
	}}, nil
}

// endless is a Source that ignores the end of a window.
type endless struct{ bridge.Source }

func (e endless) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	asked := at
	asked.End = bridge.MaxNumber
	p, err := e.Source.Fetch(ctx, asked)
	if err == nil {
		p.At = at
	}
	return p, err
}

// ignores is a Source that ignores the cursor.
type ignores struct{ bridge.Source }

func (i ignores) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	asked := at
	asked.Cursor = ""
	p, err := i.Source.Fetch(ctx, asked)
	if err == nil {
		p.At = at
	}
	return p, err
}

// cuts is a Source that names no next page.
type cuts struct {
	bridge.Source
	unread bridge.Unread // what the page has instead
}

func (c cuts) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	p, err := c.Source.Fetch(ctx, at)
	if err == nil && p.Next != "" {
		p.Next, p.Unread = "", c.unread
	}
	return p, err
}

func (c cuts) Decode(p *bridge.Page) error {
	err := c.Source.Decode(p)
	p.Next = ""
	return err
}

// owner is an Owner in memory.
type owner struct{ *bridgetest.Owner }

func (o owner) Close(context.Context) error {
	o.Owner.Close()
	return nil
}

// planner plans the jobs of the world's stream.
func (w *world) planner() *backfill.Planner {
	return &backfill.Planner{
		Jobs: w.jobs, Resource: "events", Topic: "export.events", PageSize: 4, Request: w.request, RateLimit: w.limit,
		SessionTimeout: 10 * time.Second, Live: w.live, Topics: new(fakeTopics),
		CheckAPI: func(context.Context, []string) error { return nil },
		Windows:  w.list != nil,
		Open:     w.open, Owner: func(string) backfill.Owner { return owner{w.group.Open("")} },
		Retrying: func(err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.said = append(w.said, err.Error())
		},
	}
}

// start returns a run of a job in a process of its own.
func (w *world) start(job backfill.Job) *backfill.Run {
	return w.planner().Run(job, "a test")
}

// begin commits a plan, whatever it overlaps.
func (w *world) begin(plan backfill.Job) backfill.Job {
	w.t.Helper()
	must.Do(w.t, w.jobs.Begin(w.t.Context(), plan, true))
	return plan
}

// resume commits that a job goes on, which nobody works on.
func (w *world) resume(r backfill.Resumption) (backfill.Job, error) {
	r.ID, r.Kind = "aaaaaa", cmp.Or(r.Kind, backfill.Backfill)
	return w.planner().Resume(w.t.Context(), &r)
}

// resumed is resume of a job that can be resumed.
func (w *world) resumed() backfill.Job {
	w.t.Helper()
	return must.Get(w.resume(backfill.Resumption{}))(w.t)
}

// job returns the job as it is listed.
func (w *world) job() backfill.Job {
	w.t.Helper()
	all, err := w.jobs.List(w.t.Context(), 0)
	if err != nil || len(all) != 1 {
		w.t.Fatalf("%d jobs, %v", len(all), err)
	}
	return all[0]
}

// wantOnce wants the first n events once each, and no other.
func (w *world) wantOnce(n int) {
	w.t.Helper()
	count := make(map[string]int)
	for _, r := range w.topic.Records() {
		count[r.ID]++
	}
	for i := range n {
		if id := fmt.Sprint("e", i); count[id] != 1 {
			w.t.Errorf("event %s is there %d times", id, count[id])
		}
	}
	if len(count) != n {
		w.t.Errorf("%d events are there, want %d", len(count), n)
	}
}
