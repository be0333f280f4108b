package attest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/attest"
	"exportbridge/bridge/bridgetest/fakelog"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/reconcile"
)

// world is a stream with its attestation topic, whose time is that of a synctest bubble.
type world struct {
	t     *testing.T
	topic *fakelog.Log

	mu       sync.Mutex // guards all below
	marks    map[string][]byte
	session  int // of the newest Ledger
	position time.Time
	skew     time.Duration // of the clock that the position follows
	behind   bool          // the stream has not reached the end of the export
	windows  *bridge.Listing
	missing  []int64 // by comparison, then none
	compared []string
	// lose has the next publication fail after it was persisted, or before.
	lose, refuse bool
	rejects      bool // repairs
}

func newWorld(t *testing.T) *world {
	return &world{t: t, topic: fakelog.New("export.events.attest", 1), marks: make(map[string][]byte), position: time.Now()}
}

// attestor returns an attestor of hours, in a process of that name.
func (w *world) attestor(by string) *attest.Attestor {
	return &attest.Attestor{
		Config: attest.Config{Period: time.Hour}, Stream: "events", Topic: "export.events", By: by,
		Delay: 10 * time.Minute, Confirm: time.Minute,
		Ports: attest.Ports{
			Owned: func() bool { return true }, Live: live{w}, Compare: w.compare, Open: w.open,
			Marks: func(context.Context) (map[string][]byte, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return maps.Clone(w.marks), nil
			},
			Last: w.last,
		},
	}
}

func (w *world) last(ctx context.Context) (value []byte, err error) {
	spans, err := w.topic.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	return value, w.topic.Read(ctx, spans, func(r *kgo.Record) error {
		value = r.Value
		return nil
	})
}

func (w *world) compare(_ context.Context, from, to int64, mode reconcile.Mode) (*reconcile.Report, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.compared = append(w.compared, fmt.Sprintf("%s %v", time.UnixMilli(from).UTC().Format(time.TimeOnly), mode))
	r := &reconcile.Report{Stream: "events", Topic: "export.events", From: from, To: to, API: 6, Held: 5, Dropped: 1}
	if len(w.missing) > 0 {
		r.Missing, w.missing = w.missing[0], w.missing[1:]
		r.Held -= r.Missing
	}
	if mode == reconcile.Repair && w.rejects {
		return nil, &reconcile.RejectedError{Reason: reconcile.BackfillOpen}
	}
	r.Topics = []reconcile.TopicCount{{Topic: "export.events", Listed: 5, Held: r.Held, Missing: r.Missing}}
	if mode == reconcile.Repair {
		r.Repair, r.Topics[0].Repaired = &reconcile.Repaired{Events: r.Missing}, r.Missing
	}
	return r, nil
}

// ledger implements attest.Ledger as kafkasink.Repair does.
type ledger struct {
	*world
	session int
	known   map[string][]byte
}

func (w *world) open(context.Context) (attest.Ledger, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.session++
	return &ledger{w, w.session, maps.Clone(w.marks)}, nil
}

func (l *ledger) Marks() map[string][]byte { return l.known }
func (l *ledger) Close()                   {}

func (l *ledger) Publish(_ context.Context, page *bridge.Page, mark string, value []byte) (bridge.Receipt, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != l.world.session {
		return bridge.Receipt{}, bridge.ErrFenced
	}
	if l.refuse {
		l.refuse = false
		return bridge.Receipt{}, errors.New("refused")
	}
	e := &page.Events[0]
	l.topic.Append(0, &kgo.Record{Key: e.Key, Value: e.Raw})
	l.marks[mark] = value
	if l.lose {
		l.lose = false
		return bridge.Receipt{}, errors.New("unknown outcome")
	}
	return bridge.Receipt{Published: 1}, nil
}

// live is the stream, whose position is given.
type live struct{ *world }

func (l live) checkpoint() bridge.Checkpoint {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bridge.Checkpoint{Format: 1, Stream: "events", Kind: bridge.KindData, PositionTime: l.position.UnixMilli(),
		Listing: l.windows}
}

func (l live) Walk(_ context.Context, visit func(bridge.Checkpoint) bool) error {
	visit(l.checkpoint())
	return nil
}

func (l live) Running(context.Context) (bool, error) { return true, nil }

func (l live) Status(context.Context) (bridge.Status, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bridge.Status{Leader: true, CaughtUp: !l.behind, Position: l.position}, true
}

func (l live) Backfills(context.Context) ([]reconcile.Backfill, error) { return nil, nil }

// follow moves the position with the time.
func (w *world) follow(ctx context.Context) {
	for ; ctx.Err() == nil; bridge.Sleep(ctx, time.Second) {
		w.mu.Lock()
		w.position = time.Now().Add(w.skew)
		w.mu.Unlock()
	}
}

// run runs attestors for a time while the stream is caught up.
func (w *world) run(length time.Duration, all ...*attest.Attestor) {
	ctx, cancel := context.WithTimeout(w.t.Context(), length)
	defer cancel()
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { w.follow(ctx) })
	for _, a := range all {
		group.Go(func() { a.Run(ctx) })
	}
}

// chain reads the records. The chain must be unbroken, and have n of them.
func (w *world) chain(n int) []attest.Link {
	w.t.Helper()
	c := must.Get(attest.Read(w.t.Context(), w.topic, "events"))(w.t)
	if breaks := c.Check(w.marks["export.events"]); len(breaks) > 0 || len(c.Records) != n {
		w.t.Errorf("%d records, want %d, with the breaks %v", len(c.Records), n, breaks)
	}
	return c.Records
}

// inWorld runs a test in a bubble, whose time begins at 0:15.
func inWorld(t *testing.T, f func(*world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bridge.Sleep(t.Context(), 15*time.Minute)
		f(newWorld(t))
	})
}

// TestPeriods: each period has one record, after its delay, and the first is the last whole
// one.
func TestPeriods(t *testing.T) {
	inWorld(t, func(w *world) {
		began := time.Now().Truncate(time.Hour)
		a := w.attestor("a")
		w.run(5*time.Hour+30*time.Minute, a)
		all := w.chain(6) // the hour before midnight, and those that begin at 0 to 4
		for i := range all {
			r := &all[i]
			if !r.From.Equal(began.Add(time.Duration(i-1)*time.Hour)) || r.To.Sub(r.From) != time.Hour || r.Listed != 6 ||
				r.At.Before(r.To.Add(10*time.Minute)) && i > 0 || r.Topic != "export.events" {
				t.Errorf("record %d is %+v", i, r)
			}
		}
		if s := a.Status(w.position); s == nil || s.Seq != 6 || !s.To.Equal(all[5].To) || s.Error != "" || s.Pending != 0 {
			t.Errorf("the status is %+v", s)
		}
		passed := all[5].To.Add(3*time.Hour + a.Delay)
		for at, want := range map[time.Time]int64{passed: 3, passed.Add(-1): 2, {}: 0} {
			if got := a.Status(at).Pending; got != want {
				t.Errorf("%d periods are pending at %s, want %d", got, at, want)
			}
		}
	})
}

// TestDoubt: after an unknown outcome, a failure, and beside another process, each period has
// one record.
func TestDoubt(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.attestor("a"), w.attestor("b")
		w.run(90*time.Minute, a, b) // records 1 and 2
		w.lose = true
		w.run(time.Hour, a, b)
		w.refuse = true
		w.run(time.Hour, a, b)
		w.chain(4)
		w.run(12*time.Hour, a, b)
		w.chain(16)
	})
}

// TestConfirm: events are missing only if a second comparison lacks them too. A repair
// follows only if that is set, and a rejected one leaves them missing.
func TestConfirm(t *testing.T) {
	for name, tc := range map[string]struct {
		missing         []int64
		repair, rejects bool
		left, repaired  int64
		unrepaired      bool
		compares        int
		second          reconcile.Mode
	}{
		"none":                  {compares: 1},
		"published meanwhile":   {missing: []int64{2}, compares: 2},
		"missing":               {missing: []int64{2, 2}, left: 2, compares: 2},
		"repaired":              {missing: []int64{2, 2}, repair: true, repaired: 2, compares: 2, second: reconcile.Repair},
		"a repair was rejected": {missing: []int64{2, 2, 2}, repair: true, rejects: true, left: 2, unrepaired: true, compares: 3, second: reconcile.Repair},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.missing, w.rejects = tc.missing, tc.rejects
				a := w.attestor("a")
				a.Repair = tc.repair
				w.run(30*time.Minute, a)
				r := w.chain(1)[0]
				if r.Missing != tc.left || r.Repaired != tc.repaired || (r.Unrepaired != "") != tc.unrepaired ||
					len(w.compared) != tc.compares || r.Listed != r.Held+r.Missing+r.Repaired+r.Dropped ||
					r.Topics[0].Missing != tc.left || r.Topics[0].Repaired != tc.repaired {
					t.Errorf("the record is %+v after %v", r, w.compared)
				}
				if tc.compares > 1 && w.compared[1] != fmt.Sprint("23:00:00 ", tc.second) {
					t.Errorf("the second comparison is %s", w.compared[1])
				}
				s := a.Status(w.position)
				if got := len(s.Warnings("events")); got != min(1, int(tc.left)) || s.Repaired != tc.repaired {
					t.Errorf("%d warnings, the status is %+v", got, s)
				}
			})
		})
	}
}

// TestOtherPeriod: the chain has no gap where BRIDGE_ATTEST changes, nor where the marks were
// lost.
func TestOtherPeriod(t *testing.T) {
	inWorld(t, func(w *world) {
		w.run(90*time.Minute, w.attestor("a")) // up to 1:00
		clear(w.marks)
		longer := w.attestor("a")
		longer.Period = 2 * time.Hour
		w.run(3*time.Hour, longer) // 1:00 to 2:00, 2:00 to 4:00
		all := w.chain(4)
		if from, to := all[3].From.Hour(), all[3].To.Hour(); from != 2 || to != 4 {
			t.Errorf("the last record is of %d to %d", from, to)
		}
	})
}

// TestSettles: a period is not attested before its stream has passed it.
func TestSettles(t *testing.T) {
	inWorld(t, func(w *world) {
		w.windows = &bridge.Listing{Floor: time.Now().UnixMilli()}
		w.run(5*time.Hour, w.attestor("a")) // whose windows may list again what is after 0:15
		w.chain(1)
	})
}

// TestOtherTopic: each topic has a chain of its own, which goes on when the stream returns to
// the topic.
func TestOtherTopic(t *testing.T) {
	inWorld(t, func(w *world) {
		w.run(time.Minute, w.attestor("a"))
		first := w.topic
		other := w.attestor("a")
		other.Topic, w.topic = "other.events", fakelog.New("other.events.attest", 1)
		w.run(90*time.Minute, other)
		c, err := attest.Read(t.Context(), w.topic, "events")
		if breaks := c.Check(w.marks["other.events"]); err != nil || len(breaks) > 0 || len(c.Records) != 2 {
			t.Errorf("%d records of the other topic: %v, %v", len(c.Records), breaks, err)
		}
		w.topic = first
		w.chain(1)
		w.run(90*time.Minute, w.attestor("a"))
		w.chain(4)
	})
}

// TestBehind: the position of a stream that is behind proves nothing, because an event may be
// far ahead of its neighbours.
func TestBehind(t *testing.T) {
	inWorld(t, func(w *world) {
		w.behind = true
		w.run(5*time.Hour, w.attestor("a"))
		w.chain(0)
		w.behind = false
		w.run(time.Minute, w.attestor("a"))
		w.chain(1)
	})
}

// TestChecks: each way to change a chain is found.
func TestChecks(t *testing.T) {
	inWorld(t, func(w *world) {
		w.run(4*time.Hour, w.attestor("a"))
		w.chain(5)
		spans := must.Get(w.topic.Bounds(t.Context()))(t)
		var values []string
		must.Do(t, w.topic.Read(t.Context(), spans, func(r *kgo.Record) error {
			values = append(values, string(r.Value))
			return nil
		}))
		last := len(values) - 1
		for name, tc := range map[string]struct {
			values []string
			want   string
		}{
			"unchanged":            {values, ""},
			"another number":       {append([]string{strings.Replace(values[0], `"listed":5`, `"listed":4`, 1)}, values[1:]...), "record 1 has the hash"},
			"the last was changed": {append(values[:last:last], strings.Replace(values[last], `"listed":5`, `"listed":4`, 1)), "it differs from its mark"},
			"the first is gone":    {values[1:], "record 1 is missing"},
			"two are gone":         {append([]string{values[0]}, values[3:]...), "records 2 to 3 are missing"},
			"the last is gone":     {values[:last], "record 5, which was the last one, is missing"},
			"all are gone":         {nil, "record 5, which was the last one, is missing"},
			"one twice":            {append([]string{values[0]}, values...), "record 1 is there more than once"},
			"another period":       {append([]string{values[0], strings.Replace(values[1], `"from":"`, `"from":"1`, 1)}, values[2:]...), "no record of the stream"},
			"a control character":  {append(values[:last:last], strings.Replace(values[last], `"previous":"`, `"previous":"\u001b]0;`, 1)), `record 5 says "\x1b]0;`},
			"no JSON":              {append([]string{"x"}, values...), "no record of the stream"},
		} {
			topic := fakelog.New("export.events.attest", 1)
			for _, value := range tc.values {
				topic.Append(0, &kgo.Record{Key: []byte("events"), Value: []byte(value)})
			}
			topic.Append(0, &kgo.Record{Key: []byte("users"), Value: []byte("of another stream")})
			c := must.Get(attest.Read(t.Context(), topic, "events"))(t)
			if got := fmt.Sprint(c.Check(w.marks["export.events"])); tc.want == "" && got != "[]" || !strings.Contains(got, tc.want) {
				t.Errorf("%s: %s, want %q", name, got, tc.want)
			}
		}
		c, _ := attest.Read(t.Context(), w.topic, "events")
		if got := fmt.Sprint(c.Check(nil)); !strings.Contains(got, "the mark of the last record is missing") {
			t.Errorf("without a mark: %s", got)
		}
	})
}

// TestClockBack: a position that jumps back, as after a wrong clock of the API, repeats no period.
func TestClockBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.run(90*time.Minute, w.attestor("a"))
		w.chain(2)
		w.skew = -5 * time.Hour
		a := w.attestor("a")
		w.run(4*time.Hour, a)
		w.chain(2)
		if s := a.Status(w.position); s.Pending != 0 || s.Error != "" {
			t.Errorf("the status is %+v", s)
		}
		w.skew = 0
		w.run(time.Hour, a)
		w.chain(7) // up to 6:00
	})
}

// TestLater: a topic that has deleted its first records has a chain that begins later.
func TestLater(t *testing.T) {
	inWorld(t, func(w *world) {
		w.run(4*time.Hour, w.attestor("a"))
		w.chain(5)
		w.topic.Delete(0, 2)
		c := must.Get(attest.Read(t.Context(), w.topic, "events"))(t)
		from := c.Records[0].From.UnixMilli()
		if breaks := c.Check(w.marks["export.events"]); len(breaks) > 0 || len(c.Records) != 3 ||
			!strings.HasPrefix(c.Begins(), "the chain begins with record 3, at ") ||
			len(c.Uncovered(from, 0)) != 0 || len(c.Uncovered(from-1, 0)) != 1 {
			t.Errorf("%d records with the breaks %v, %q", len(c.Records), breaks, c.Begins())
		}
		c.Records = append(c.Records[:1], c.Records[2:]...)
		if got := fmt.Sprint(c.Check(w.marks["export.events"])); !strings.Contains(got, "record 4 is missing") {
			t.Errorf("a gap after the first record: %s", got)
		}
		c.Deletes = false
		if got := fmt.Sprint(c.Check(w.marks["export.events"])); !strings.Contains(got, "records 1 to 2 are missing") {
			t.Errorf("a topic that deletes nothing: %s", got)
		}
	})
}

// TestDenied: without a right to the topic nothing is attested, and the status says why, until
// the right is there.
func TestDenied(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.attestor("a")
		denied := &bridge.Fault{
			Class: bridge.Permanent, Reason: bridge.ReasonAuth, Hint: "grant it",
			Err: errors.New("no right to write to topic export.events.attest"),
		}
		open := a.Open
		a.Open = func(context.Context) (attest.Ledger, error) { return nil, denied }
		w.run(time.Minute, a)
		w.chain(0)
		s := a.Status(w.position)
		if got := s.Warnings("events"); len(got) != 1 || got[0].Code != bridge.WarningAttestFailed || got[0].Hint != "grant it" ||
			!strings.Contains(got[0].Text, "no right to write") {
			t.Errorf("the warnings are %+v", got)
		}
		a.Open = open
		w.run(time.Minute, a)
		w.chain(1)
		if got := a.Status(w.position).Warnings("events"); len(got) > 0 {
			t.Errorf("the warnings are %+v", got)
		}
	})
}

// TestFirst: the first period is over for as long as events of it may come.
func TestFirst(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.attestor("a")
		a.Delay = 20 * time.Minute
		w.run(time.Minute, a) // at 0:15
		if r := w.chain(1)[0]; r.To.Hour() != 23 {
			t.Errorf("the first period ends at %s", r.To)
		}
	})
}
