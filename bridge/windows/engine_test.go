package windows_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/engine"
	"exportbridge/bridge/windows"
)

// published reads back a topic of one partition.
type published struct {
	bridge.PublishedEvents
	topic *bridgetest.Topic
}

func (p published) Index(_ context.Context, since bridge.Since,
	_ bridge.SourceIdentity) (bridge.PublishedIndex, error) {
	from := int64(0)
	if t := bridge.FindTopic(since.Topics, "events"); since.EndsOnly && t != nil && len(t.Ends.Offsets()) > 0 {
		from = min(t.Ends.Offsets()[0], int64(len(p.topic.Records())))
	}
	index := &held{left: make(map[string]int)}
	for _, r := range p.topic.Records()[from:] {
		index.left[string(r.Value)]++
	}
	return index, nil
}

func (p published) PartialIndex(ctx context.Context, _ time.Time,
	source bridge.SourceIdentity) (bridge.PublishedIndex, error) {
	return p.Index(ctx, bridge.Since{}, source)
}

// world is a stream that follows windows, with everything around it.
type world struct {
	t     *testing.T
	rng   *rand.Rand
	list  *list
	cfg   engine.Config
	topic *bridgetest.Topic
	store *bridgetest.Store
	inbox *bridgetest.Inbox
	log   *strings.Builder
	down  atomic.Bool // the API

	lookBack       time.Duration
	noEnd, noStart bool
	engine         *engine.Engine // of the newest process
}

func newWorld(t *testing.T, seed uint64, lookBack time.Duration) *world {
	began := time.Now()
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 2)), list: &list{page: 4}, log: new(strings.Builder),
		topic: bridgetest.NewTopic(t, bridge.ExactlyOnce), store: bridgetest.NewStore(t, "events"),
		inbox: bridgetest.NewInbox(t),
	}
	w.store.Acknowledged = w.topic.Committed
	w.list.fail = func() error {
		if !w.down.Load() {
			return nil
		}
		return &bridge.Fault{Class: bridge.Transient, Code: "503", Err: errors.New("away")}
	}
	w.cfg = engine.DefaultConfig()
	lister := settings(lookBack)
	w.cfg.LookBack = lister.Reach()
	w.cfg.Stream, w.cfg.Mode, w.cfg.PageSize, w.cfg.Owner = "events", bridge.ExactlyOnce, 10, "me"
	w.cfg.Origin = bridge.Origin{Resource: "events", Follow: bridge.FollowWindows,
		Start: began.Add(-time.Hour).UnixMilli()}
	w.lookBack, w.cfg.MarksEnd, w.cfg.Log = lookBack, true, slog.New(slog.NewTextHandler(w.log, nil))
	return w
}

// fill puts items into the list, between two times from now; some are shown late, but
// within the look-back.
func (w *world) fill(n int, from, to time.Duration) {
	for i := range n {
		at := time.Now().Add(from + within(w.rng, to-from)).Truncate(time.Millisecond)
		e := entry{id: fmt.Sprintf("%c%d", 'e'+rune(len(w.list.all)/100), i), seq: len(w.list.all), at: at, visible: at}
		if e.at.After(time.Now()) && w.rng.IntN(3) == 0 {
			e.visible = at.Add(within(w.rng, w.lookBack+time.Second))
		}
		w.list.all = append(w.list.all, e)
	}
}

// byCursor lists oldest first what its list shows, in the order of its being shown.
type byCursor struct{ *list }

func (l byCursor) Fetch(_ context.Context, at bridge.Position) (*bridge.Page, error) {
	now := time.Now()
	shown := l.shown(time.UnixMilli(at.Start), now.Add(time.Hour), now)
	slices.SortFunc(shown, func(a, b entry) int { return cmp.Or(a.visible.Compare(b.visible), a.seq-b.seq) })
	if i := slices.IndexFunc(shown, func(e entry) bool { return fmt.Sprint(e.seq) == at.Cursor }); i >= 0 {
		shown = shown[i+1:]
	}
	shown = shown[:min(len(shown), 5)]
	p := &bridge.Page{At: at, RequestedAt: now, ArrivedAt: now, ServerTime: now, Next: at.Cursor, Items: len(shown)}
	for i, e := range shown {
		p.Events = append(p.Events, bridge.Event{Raw: []byte(e.raw()), ID: []byte(e.id), Time: e.at.UnixMilli(), Index: i})
		p.Next = fmt.Sprint(e.seq)
	}
	return p, nil
}

// start begins a process; stop ends it.
func (w *world) start() (stop func()) {
	cfg := settings(w.lookBack)
	cfg.PageSize, cfg.NoEnd, cfg.NoStart = w.cfg.PageSize, w.noEnd, w.noStart
	var source bridge.Source = windows.New(w.list, cfg)
	if w.cfg.Origin.Follow != bridge.FollowWindows {
		source = byCursor{w.list}
	}
	e := must.Get(engine.New(w.cfg, engine.Ports{
		Source: source, Sink: w.topic.Open("events"), Store: w.store, Inbox: w.inbox, Published: published{topic: w.topic},
	}))(w.t)
	w.engine = e
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("run: %v", err)
		}
	}
}

// live runs processes one after the other for a time, in which everything fails. The
// last one recovers by itself.
func (w *world) live(d time.Duration) {
	stop := w.start()
	for end := time.Now().Add(d); time.Now().Before(end); {
		if w.rng.IntN(2) == 0 {
			stop()
			stop = w.start()
		}
		for range w.rng.IntN(5) {
			bridge.Sleep(w.t.Context(), within(w.rng, 20*time.Second))
			switch w.rng.IntN(6) {
			case 0:
				w.topic.FailNext(bridgetest.Failed)
			case 1:
				w.topic.FailNext(bridgetest.Persisted)
			case 2:
				heal := w.topic.Break()
				bridge.Sleep(w.t.Context(), within(w.rng, 10*time.Second))
				heal()
			case 3:
				heal := w.store.Break()
				bridge.Sleep(w.t.Context(), within(w.rng, 10*time.Second))
				heal()
			case 4:
				w.down.Store(true)
				bridge.Sleep(w.t.Context(), within(w.rng, 5*time.Second))
				w.down.Store(false)
			}
		}
	}
	bridge.Sleep(w.t.Context(), 3*time.Minute+2*w.lookBack)
	stop()
}

// want checks how often each item is in the topic.
func (w *world) want(times func(entry) int) {
	w.t.Helper()
	for _, e := range w.list.all {
		if got := w.topic.Count([]byte(e.raw())); got != times(e) {
			w.t.Errorf("%s, shown %s later: %d times in the topic, want %d", e.raw(), e.visible.Sub(e.at), got, times(e))
		}
	}
	if w.t.Failed() {
		w.t.Log(w.log)
		w.t.FailNow()
	}
}

// reset moves the stream, which runs.
func (w *world) reset(to bridge.Target) {
	w.t.Helper()
	at := w.store.Checkpoint()
	id := fmt.Sprint("reset", at.Epoch)
	w.inbox.Push(bridge.Command{
		ID: id, Kind: bridge.KindReset, BaseEpoch: at.Epoch, Target: to, Who: "op",
		Deadline: time.Now().Add(time.Minute).UnixMilli(),
	})
	if a, err := w.inbox.Await(w.t.Context(), id); err != nil || !a.Applied {
		w.t.Fatalf("reset: %+v %v\n%s", a, err, w.log)
	}
}

// TestFollowOtherwise: a stream goes from its cursor to windows, and back, and publishes
// each item once.
func TestFollowOtherwise(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed, time.Minute)
			w.cfg.Origin.Follow = ""
			w.fill(100, time.Second-time.Hour, 5*time.Minute)
			w.live(4 * time.Minute)
			for _, follow := range []string{bridge.FollowWindows, ""} {
				w.want(func(entry) int { return 1 })
				w.fill(60, time.Second, 3*time.Minute) // while no process reads the list
				stop := w.start()
				bridge.Sleep(t.Context(), time.Minute+within(w.rng, 2*time.Minute))
				stop()
				w.cfg.Origin.Follow = follow
				stop = w.start()
				at := w.store.Checkpoint()
				w.reset(bridge.Target{Start: at.FollowedUntil(), FollowOtherwise: true})
				stop()
				w.live(4 * time.Minute)
			}
			w.want(func(entry) int { return 1 })
		})
	}
}

// TestEngineEqualItems: pages of equal items without an id are no cycle, and all of them
// are published.
func TestEngineEqualItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, time.Minute)
		w.list.noIDs = true
		at := time.Now().Add(-10 * time.Minute)
		for i := range 45 {
			w.list.all = append(w.list.all, entry{id: "same", seq: i, at: at, visible: at})
		}
		stop := w.start()
		bridge.Sleep(t.Context(), time.Minute)
		stop()
		w.want(func(entry) int { return 45 })
	})
}

// TestEngineRewindIntoWindow: a rewind to a page within a window publishes again all of the
// list from the watermark on, also what ended the page before.
func TestEngineRewindIntoWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, time.Minute)
		w.fill(50, time.Second-time.Hour, -30*time.Minute)
		w.cfg.Limits.MaxEvents = 5
		stop := w.start()
		bridge.Sleep(t.Context(), time.Minute)
		stop()
		was := w.store.Checkpoint()
		if at, _ := bridge.ParseWatermark(was.Cursor); at.Part != 1 {
			t.Fatalf("the run ended at %q, want a part of a window", was.Cursor)
		}
		w.cfg.Limits.MaxEvents = 0
		stop = w.start()
		bridge.Sleep(t.Context(), time.Minute)
		w.reset(bridge.Target{Cursor: was.Cursor, Start: was.Origin.Start, Border: was.Border})
		bridge.Sleep(t.Context(), time.Minute)
		stop()
		w.want(func(entry) int { return 2 })
	})
}

// TestEngineResetAccepts: a reset that accepts another list, or a topic that lost events,
// begins a new listing: earlier items that are listed again would not be recognized.
func TestEngineResetAccepts(t *testing.T) {
	for name, change := range map[string]func(*world){
		"nothing":      func(*world) {},
		"other ids":    func(w *world) { w.cfg.Origin.ItemID = "/other" },
		"more types":   func(w *world) { w.cfg.Origin.Events = []string{"a", "b"} },
		"a lost topic": func(w *world) { w.topic.Recreate() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1, 2*time.Minute)
				w.fill(100, time.Second-time.Hour, -time.Second)
				stop := w.start()
				bridge.Sleep(t.Context(), 3*time.Minute)
				stop()
				change(w)
				stop = w.start()
				bridge.Sleep(t.Context(), time.Minute)
				was := w.store.Checkpoint()
				w.reset(bridge.Target{Cursor: was.Cursor, Start: was.Origin.Start})
				bridge.Sleep(t.Context(), 2*time.Minute)
				stop()
				at, _ := bridge.ParseWatermark(was.Cursor)
				if got := w.store.Checkpoint().Listing; got == nil || (got.Floor == at.At) != (name != "nothing") {
					t.Errorf("%s: reset at %d, goes on with %+v\n%s", name, at.At, got, w.log)
				}
			})
		})
	}
}

// TestEngineResetAfterCursor: soon after a stream has left its cursor for windows, a reset
// publishes again what is listed since its time.
func TestEngineResetAfterCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 10*time.Minute)
		w.cfg.Origin.Follow = ""
		w.fill(100, time.Second-time.Hour, -time.Second)
		stop := w.start()
		bridge.Sleep(t.Context(), 3*time.Minute)
		stop()
		w.cfg.Origin.Follow = bridge.FollowWindows
		stop = w.start()
		was := w.store.Checkpoint()
		w.reset(bridge.Target{Start: was.FollowedUntil(), FollowOtherwise: true})
		bridge.Sleep(t.Context(), 2*time.Minute)
		to := time.Now().Add(-9 * time.Minute).Truncate(time.Second)
		w.reset(bridge.Target{Start: to.UnixMilli()})
		bridge.Sleep(t.Context(), 2*time.Minute)
		stop()
		w.want(func(e entry) int {
			if e.at.Before(to) {
				return 1
			}
			return 2
		})
	})
}

// TestEngineResetToCurrent: a reset that keeps the position publishes nothing again of what
// a list without an end has shown from the watermark on.
func TestEngineResetToCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, time.Minute)
		w.noEnd = true
		w.fill(30, time.Second-time.Hour, -time.Second)
		w.fill(60, time.Minute, 80*time.Second)
		stop := w.start()
		bridge.Sleep(t.Context(), time.Minute)
		was := w.store.Checkpoint()
		ahead := func(e entry) bool {
			at, _ := bridge.ParseWatermark(was.Cursor)
			return e.at.UnixMilli() >= at.At && w.topic.Count([]byte(e.raw())) > 0
		}
		for i := 0; !slices.ContainsFunc(w.list.all, ahead); i++ {
			if i == 20 {
				t.Fatal("no item was published ahead of the watermark")
			}
			bridge.Sleep(t.Context(), time.Second)
			was = w.store.Checkpoint()
		}
		w.reset(bridge.Target{Cursor: was.Cursor, Start: was.Origin.Start, Events: was.Events, Pages: was.Pages,
			Entry: &was.Version})
		bridge.Sleep(t.Context(), 2*time.Minute)
		stop()
		w.want(func(entry) int { return 1 })
	})
}

// TestEngineResetTwice: a second reset, before the first one has got anywhere, publishes
// again all that is listed since its own time.
func TestEngineResetTwice(t *testing.T) {
	for _, second := range []time.Duration{-5 * time.Minute, -15 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1, 10*time.Minute)
			w.fill(100, -30*time.Minute, -time.Second)
			stop := w.start()
			bridge.Sleep(t.Context(), 2*time.Minute)
			w.down.Store(true)
			now := time.Now().Truncate(time.Second)
			w.reset(bridge.Target{Start: now.Add(-9 * time.Minute).UnixMilli()})
			w.reset(bridge.Target{Start: now.Add(second).UnixMilli()})
			w.down.Store(false)
			bridge.Sleep(t.Context(), 5*time.Minute)
			stop()
			w.want(func(e entry) int {
				if e.at.Before(now.Add(second)) {
					return 1
				}
				return 2
			})
		})
	}
}

// TestEngineGap: a list without bounds that has no known item when a session begins may be
// cut off. The status has a warning, after restarts too, until an operator resets the stream.
func TestEngineGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, time.Minute)
		w.noStart, w.noEnd, w.cfg.PageSize = true, true, 100
		w.list.page, w.list.noCursor = 15, true
		var known string // the watermark before the gap
		run := func(change func()) (gap bool) {
			defer w.start()()
			bridge.Sleep(t.Context(), time.Minute)
			change()
			bridge.Sleep(t.Context(), time.Minute)
			return slices.ContainsFunc(w.engine.Status().Warnings, func(g bridge.Warning) bool {
				return g.Code == bridge.WarningGap && strings.Contains(g.Text, known)
			})
		}
		nothing := func() {}
		w.list.add(10, time.Now(), -time.Minute)
		if run(nothing) {
			t.Error("a list that goes back behind the watermark has a gap")
		}
		known, _, _ = strings.Cut(strings.TrimPrefix(w.store.Checkpoint().Cursor, "w1:"), "+")
		if at, err := time.Parse(time.RFC3339, known); err != nil || time.Since(at) > time.Minute {
			t.Fatalf("the watermark is %q", known)
		}
		bridge.Sleep(t.Context(), 10*time.Minute)
		w.list.add(40, time.Now(), -time.Second) // of which it lists 15
		pause := bridge.Command{ID: "p", Kind: bridge.KindPause, PausedUntil: bridge.Forever, Deadline: bridge.MaxNumber}
		for _, change := range []func(){nothing, nothing, func() { w.inbox.Push(pause) }} {
			if !run(change) {
				t.Errorf("the status does not show the gap: %+v", w.engine.Status().Warnings)
			}
		}
		if run(func() { w.reset(bridge.Target{Cursor: w.store.Checkpoint().Cursor, Start: w.cfg.Origin.Start}) }) {
			t.Errorf("the gap is there after a reset: %+v", w.engine.Status().Warnings)
		}
	})
}

// TestWindowsProveList: the API's host gets another name. The listings show items that were
// published before, so it is the same list.
func TestWindowsProveList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 10*time.Minute)
		of := func(host string) bridge.Fingerprint {
			return bridge.NewFingerprint([]bridge.RequestPart{{Name: bridge.PartHost, Value: host}})
		}
		w.cfg.Origin.Request = of("old.example.com")
		w.list.add(60, time.Now().Add(-time.Minute), time.Second)
		stop := w.start()
		bridge.Sleep(t.Context(), 2*time.Minute)
		stop()
		w.cfg.Origin.Request = of("new.example.com")
		w.list.add(60, time.Now(), time.Second)
		stop = w.start()
		bridge.Sleep(t.Context(), 3*time.Minute)
		if s := w.engine.Status(); s.State == bridge.StateBlocked {
			t.Errorf("%s: %s", s.Reason, s.Error)
		}
		stop()
		w.want(func(entry) int { return 1 })
	})
}
