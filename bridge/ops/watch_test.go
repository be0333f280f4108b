package ops_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/bridge/ops"
)

// fleet has the streams of a process, and counts the reads of their reports.
type fleet struct {
	mu       sync.Mutex // guards all below
	statuses []bridge.Status
	reports  map[string]control.Report // of Redis and Kafka
	asked    map[string]int            // by "status NAME" or "glance NAME"
}

// newFleet has n streams, which this process owns.
func newFleet(n int) *fleet {
	f := &fleet{reports: make(map[string]control.Report), asked: make(map[string]int)}
	for i := range n {
		f.statuses = append(f.statuses, bridge.Status{
			Stream: fmt.Sprintf("tenant-%04d", i), State: bridge.StateIdle, CaughtUp: true, Leader: true, Owner: "bridge-0",
			Mode: bridge.ExactlyOnce, Dependencies: map[string]bridge.Dependency{bridge.DependencyStore: {Up: true}},
		})
	}
	return f
}

// change changes the status of a stream.
func (f *fleet) change(i int, change func(*bridge.Status)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.statuses[i])
}

// remove removes the last stream.
func (f *fleet) remove() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.statuses = f.statuses[:len(f.statuses)-1]
}

func (f *fleet) parts() ops.Parts {
	return ops.Parts{
		Streams: func() []ops.Stream {
			f.mu.Lock()
			defer f.mu.Unlock()
			var all []ops.Stream
			for i := range f.statuses {
				all = append(all, &fakeStream{status: f.statuses[i], turning: true})
			}
			return all
		},
		Controller: func(name string) ops.Controller { return &fleetController{f: f, name: name} },
	}
}

// asks returns the number of reads since the last call.
func (f *fleet) asks() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.asked
	f.asked = make(map[string]int)
	return was
}

type fleetController struct {
	fakeController
	f    *fleet
	name string
}

// answer takes a second.
func (c *fleetController) answer(kind string) control.Report {
	<-time.After(time.Second)
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.f.asked[kind+" "+c.name]++
	if r, ok := c.f.reports[c.name]; ok {
		return r
	}
	return control.NewReport(c.name, bridge.ExactlyOnce)
}

func (c *fleetController) Status(context.Context) control.Report { return c.answer("status") }
func (c *fleetController) Glance(context.Context) control.Report { return c.answer("glance") }

// watched has the messages of a feed in a synctest bubble.
type watched struct {
	*httptest.ResponseRecorder
	leave context.CancelFunc
	ended chan struct{}

	mu  sync.Mutex // guards all below
	all []message
}

func (w *watched) SetWriteDeadline(time.Time) error { return nil }

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if rest, ok := strings.CutPrefix(string(b), "event: "); ok {
		event, data, _ := strings.Cut(rest, "\ndata: ")
		w.all = append(w.all, message{event, strings.TrimSpace(data)})
	}
	return len(b), nil
}

// took returns the messages of a kind since the last call, and forgets all.
func (w *watched) took(event string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []string
	for _, m := range w.all {
		if m.event == event {
			found = append(found, m.data)
		}
	}
	w.all = nil
	return found
}

// watch connects a page that shows a stream, or none, until the test ends.
func watch(t *testing.T, handler http.Handler, stream string) *watched {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	w := &watched{ResponseRecorder: httptest.NewRecorder(), leave: leave, ended: make(chan struct{})}
	t.Cleanup(func() {
		leave()
		<-w.ended
	})
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/api/v1/events?stream="+stream, http.NoBody)
	go func() {
		defer close(w.ended)
		handler.ServeHTTP(w, r)
	}()
	return w
}

func handlerOf(f *fleet) http.Handler {
	parts := f.parts()
	parts.Metrics = metricsOf(new(fakeStream))
	return ops.Handler(ops.Config{}, parts)
}

type briefs struct {
	All     bool
	Briefs  []control.Brief
	Removed []string
}

func decoded[T any](t *testing.T, data string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(data), &v); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return v
}

// After the first message, the feed of a thousand streams sends only changes.
func TestBriefsThatChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(1000)
		w := watch(t, handlerOf(f), "")
		synctest.Wait()
		first := w.took("briefs")
		if len(first) != 1 {
			t.Fatalf("%d first messages", len(first))
		}
		if m := decoded[briefs](t, first[0]); !m.All || len(m.Briefs) != 1000 || m.Briefs[7].Condition != bridge.StateIdle {
			t.Errorf("the first message: all %v, %d briefs", m.All, len(m.Briefs))
		}
		f.change(7, func(s *bridge.Status) { s.State, s.Reason, s.Error = bridge.StateBlocked, bridge.ReasonAuth, "401" })
		f.change(8, func(s *bridge.Status) { s.Events, s.LastPoll = 5, time.Now() }) // no figure of the row
		<-time.After(10 * time.Second)
		synctest.Wait()
		bytes := 0
		var changed []control.Brief
		messages := w.took("briefs")
		for _, data := range messages {
			bytes += len(data)
			changed = append(changed, decoded[briefs](t, data).Briefs...)
		}
		want := []control.Brief{{
			Stream: "tenant-0007", Condition: bridge.StateBlocked, State: bridge.StateBlocked, Reason: bridge.ReasonAuth,
			Why: "401", CaughtUp: true, Owner: "bridge-0",
		}}
		if !slices.Equal(changed, want) || bytes > 500 || len(messages) < 3 || len(messages) > 5 {
			t.Errorf("one change in ten seconds: %d messages of %d bytes, with %+v; want %+v and signs of life",
				len(messages), bytes, changed, want)
		}
		f.remove()
		<-time.After(2 * time.Second)
		synctest.Wait()
		if m := decoded[briefs](t, w.took("briefs")[0]); !slices.Equal(m.Removed, []string{"tenant-0999"}) {
			t.Errorf("removed %q", m.Removed)
		}
		if n := f.asks(); len(n) != 0 {
			t.Errorf("Redis and Kafka are asked for streams that this process owns: %v", n)
		}
	})
}

// A feed sends the detail of the stream shown only, as long as the process has the stream.
func TestDetailOfTheStreamShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3)
		h := handlerOf(f)
		all, one := watch(t, h, ""), watch(t, h, "tenant-0002")
		<-time.After(3 * time.Second)
		synctest.Wait()
		if got := all.took("detail"); len(got) != 0 {
			t.Errorf("details without a stream: %q", got)
		}
		for _, data := range one.took("detail") {
			if decoded[control.Report](t, data).Stream != "tenant-0002" {
				t.Errorf("detail %s", data)
			}
		}
		f.remove()
		<-one.ended
		if w := watch(t, h, "tenant-0002"); func() bool { <-w.ended; return w.Code != http.StatusNotFound }() {
			t.Errorf("a removed stream: %d", w.Code)
		}
	})
}

// The reports of the stream shown, and of streams of other processes, are read once for all
// feeds, at most every five seconds.
func TestReportsAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(40)
		for i := range 20 {
			f.statuses[i].Leader, f.statuses[i].State, f.statuses[i].CaughtUp = false, bridge.StateStandby, false
		}
		h := handlerOf(f)
		for range 10 {
			watch(t, h, "tenant-0030")
		}
		watch(t, h, "")
		<-time.After(time.Minute)
		synctest.Wait()
		n := f.asks()
		if got := n["status tenant-0030"]; got < 9 || got > 12 || len(n) != 21 {
			t.Errorf("asked %d times in a minute, want about ten; all: %v", got, n)
		}
		for i := range 20 {
			if got := n[fmt.Sprintf("glance tenant-%04d", i)]; got < 8 || got > 12 {
				t.Errorf("stream %d: %d glances in a minute, want about ten", i, got)
			}
		}
	})
}

// TestManyUnknownStreams: a stream whose owner does not report stays unknown while so many streams are asked for that
// its last report is old.
func TestManyUnknownStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 40 * control.AtOnce // which takes 40 seconds
		f := newFleet(n)
		for i := range n {
			own := &f.statuses[i]
			own.Leader, own.State, own.CaughtUp = false, bridge.StateStandby, false
			r := control.NewReport(own.Stream, bridge.ExactlyOnce)
			r.Notes = []string{"live status unknown: Redis is away"}
			f.reports[own.Stream] = r
		}
		w := watch(t, handlerOf(f), "")
		<-time.After(41 * time.Second)
		synctest.Wait()
		w.took("briefs")
		<-time.After(3 * time.Minute)
		synctest.Wait()
		for _, data := range w.took("briefs") {
			if m := decoded[briefs](t, data); len(m.Briefs) > 0 {
				t.Fatalf("%d streams changed, such as %+v", len(m.Briefs), m.Briefs[0])
			}
		}
	})
}

// TestOldUnknownStream: a report in which no process reports a stream says nothing once this process has
// owned it, nor long after the last feed.
func TestOldUnknownStream(t *testing.T) {
	t.Parallel()
	for name, owns := range map[string]bool{"another owner": true, "an hour without a feed": false} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(1)
			standby := func(own *bridge.Status) { own.Leader, own.State, own.CaughtUp = false, bridge.StateStandby, false }
			f.change(0, standby)
			h := handlerOf(f)
			w := watch(t, h, "")
			<-time.After(5 * time.Second)
			if owns {
				f.change(0, func(own *bridge.Status) { own.Leader, own.State = true, bridge.StateIdle })
				<-time.After(5 * time.Second)
			}
			w.leave()
			<-w.ended
			if f.change(0, standby); owns {
				<-time.After(2 * time.Second)
			} else {
				<-time.After(time.Hour)
			}
			w = watch(t, h, "")
			<-time.After(500 * time.Millisecond) // a report takes a second
			synctest.Wait()
			data := w.took("briefs")
			if len(data) == 0 {
				t.Fatalf("%s: no briefs", name)
			}
			if b := decoded[briefs](t, data[0]).Briefs[0]; b.Condition != bridge.StateStandby {
				t.Errorf("%s: the stream is %+v", name, b)
			}
		})
	}
}

// The detail of a stream of another process has that process's status, and the dependencies of
// this process.
func TestDetailOfAnotherProcess(t *testing.T) {
	t.Parallel()
	type shown struct {
		control.Report
		Brief     control.Brief
		Asked     bool
		Elsewhere bool
		ManyDead  bool `json:"many_dead_letters"`
		Servers   map[string]bridge.Dependency
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(1)
		f.statuses[0].Leader, f.statuses[0].State, f.statuses[0].CaughtUp = false, bridge.StateStandby, false
		owner := bridge.Status{
			Stream: "tenant-0000", State: bridge.StateRunning, Leader: true, Owner: "bridge-1", Rate: 12.34, Published: 1,
			DeadLettered: 1, Position: time.Now().Add(-time.Hour),
		}
		f.reports["tenant-0000"] = control.Report{Stream: "tenant-0000", Live: &owner, MembersKnown: true, CaughtUpIn: -1}
		h := handlerOf(f)
		w := watch(t, h, "tenant-0000")
		synctest.Wait()
		if d := decoded[shown](t, w.took("detail")[0]); d.Asked || d.Elsewhere || d.Live.State != bridge.StateStandby {
			t.Errorf("before the first report: %+v", d)
		}
		<-time.After(3 * time.Second)
		synctest.Wait()
		messages := w.took("detail")
		d := decoded[shown](t, messages[len(messages)-1])
		if !d.Asked || !d.Elsewhere || d.Live.Owner != "bridge-1" || d.Brief.Condition != control.StateDegraded ||
			d.Brief.Rate != 12.3 || !d.ManyDead || !d.Servers[bridge.DependencyStore].Up || d.LagSeconds < 3600 {
			t.Errorf("%+v", d)
		}
		w.leave()
		<-time.After(time.Minute)
		w = watch(t, h, "tenant-0000")
		synctest.Wait()
		if d := decoded[shown](t, w.took("detail")[0]); d.Asked || d.Elsewhere {
			t.Errorf("after a minute without a page: %+v", d)
		}
	})
}

// After an action the report of the stream is read again.
func TestActionInvalidatesTheReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(1)
		s := &site{handler: handlerOf(f)}
		watch(t, s.handler, "tenant-0000")
		<-time.After(2500 * time.Millisecond)
		f.asks()
		w := s.do(ask{line: "POST /api/v1/streams/tenant-0000/pause", body: `{"reason": "why"}`})
		<-time.After(2500 * time.Millisecond)
		synctest.Wait()
		if n := f.asks()["status tenant-0000"]; w.Code != 200 || n != 1 {
			t.Errorf("%d %s, asked %d times", w.Code, w.Body, n)
		}
	})
}
