package windows_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/windows"
)

// entry is an item of a list: when it was, and from when on the list shows it. placed is
// the time that the API selects it by, if that is another one.
type entry struct {
	id          string
	at, visible time.Time
	gone        time.Time // when it is deleted, zero is never
	placed      time.Time
	seq         int
}

func (e entry) place() time.Time {
	if e.placed.IsZero() {
		return e.at
	}
	return e.placed
}

func (e entry) raw() string { return fmt.Sprintf(`{"id":%q,"at":%d}`, e.id, e.at.UnixMilli()) }

// list is an export that lists newest first. It has bounds, of which either may be
// inclusive or exclusive, and pages by a cursor that stays valid.
type list struct {
	all                       []entry
	page                      int
	startOpen, endClosed      bool
	noCursor, noIDs, noHeader bool
	noStart, noEnd            bool          // the bound is ignored
	arrival                   bool          // the order is that in which items are shown, newest first
	oldest                    bool          // oldest first
	undated                   bool          // items have no time
	volatile                  bool          // each request shows other bytes
	shared                    bool          // items of one id have other bytes
	ahead                     time.Duration // the clock of the API
	empties                   int           // pages before the first one
	mostPages, pages          int           // of a listing, 0 is no limit
	longest                   time.Duration // range of a query
	numbers, offsets          bool          // in place of cursors
	beyond                    string        // repeat or reject a page behind the last one
	slow                      func()        // before each page
	fail                      func() error
	requests                  int
}

func (l *list) shown(from, to, now time.Time) []entry {
	var shown []entry
	for _, e := range l.all {
		at := e.place()
		after := !at.Before(from) && (!l.startOpen || at.After(from) || from.UnixMilli() == 0)
		before := at.Before(to) || l.endClosed && at.Equal(to)
		if (after || l.noStart) && (before || l.noEnd || to.UnixMilli() == 0) && !e.visible.After(now) && (e.gone.IsZero() || e.gone.After(now)) {
			shown = append(shown, e)
		}
	}
	slices.SortFunc(shown, func(a, b entry) int {
		if l.arrival && !a.visible.Equal(b.visible) {
			return b.visible.Compare(a.visible)
		}
		return cmp.Or(b.place().Compare(a.place()), cmp.Compare(b.seq, a.seq))
	})
	if l.oldest {
		slices.Reverse(shown)
	}
	return shown
}

func (l *list) Fetch(_ context.Context, at bridge.Position) (*bridge.Page, error) {
	l.requests++
	if l.fail != nil {
		if err := l.fail(); err != nil {
			return nil, err
		}
	}
	if l.slow != nil {
		l.slow()
	}
	now := time.Now()
	if l.longest > 0 && at.End-at.Start > l.longest.Milliseconds() {
		return nil, &bridge.Fault{Class: bridge.BadCursor, Code: "400", Err: fmt.Errorf("%d ms are too long", at.End-at.Start)}
	}
	if l.pages++; at.Cursor == "" {
		l.pages = 1
	}
	if l.mostPages > 0 && l.pages > l.mostPages {
		return nil, &bridge.Fault{Class: bridge.BadCursor, Code: "410", Err: errors.New("the cursor has expired")}
	}
	var skipped int
	if _, err := fmt.Sscanf(at.Cursor, "empty%d", &skipped); err == nil {
		at.Cursor = ""
	}
	if skipped < l.empties {
		return &bridge.Page{At: at, RequestedAt: now, ArrivedAt: now, ServerTime: now, Next: fmt.Sprintf("empty%d", skipped+1)}, nil
	}
	shown := l.shown(time.UnixMilli(at.Start), time.UnixMilli(at.End), now)
	number, _ := strconv.Atoi(at.Cursor)
	switch {
	case l.numbers:
		number = max(1, number)
		switch pages := max(1, (len(shown)+l.page-1)/l.page); {
		case number > pages && l.beyond == "reject":
			return nil, &bridge.Fault{Class: bridge.BadCursor, Code: "404", Err: errors.New("no such page")}
		case l.beyond == "repeat":
			number = min(number, pages)
		}
		shown = shown[min(len(shown), (number-1)*l.page):]
	case l.offsets:
		shown = shown[min(len(shown), number):]
	case at.Cursor != "":
		i := slices.IndexFunc(shown, func(e entry) bool { return fmt.Sprint(e.seq) == at.Cursor })
		shown = shown[i+1:]
	}
	p := &bridge.Page{At: at, RequestedAt: now, ArrivedAt: now, ServerTime: now.Add(l.ahead).Truncate(time.Second)}
	if l.noHeader {
		p.ServerTime = time.Time{}
	}
	if len(shown) > l.page {
		shown = shown[:l.page]
		if !l.noCursor && !l.numbers && !l.offsets {
			p.Next = fmt.Sprint(shown[l.page-1].seq)
		}
	}
	for i, e := range shown {
		raw := e.raw()
		if l.shared {
			raw = fmt.Sprintf(`{"id":%q,"seq":%d}`, e.id, e.seq)
		}
		if l.volatile {
			raw = fmt.Sprintf(`{"id":%q,"seq":%d,"request":%d}`, e.id, e.seq, l.requests)
		}
		event := bridge.Event{Raw: []byte(raw), Time: e.at.UnixMilli(), Index: i}
		if l.undated {
			event.Time = bridge.NoTime
		}
		if !l.noIDs {
			event.ID = []byte(e.id)
		}
		p.Events = append(p.Events, event)
	}
	p.Items = len(p.Events)
	switch {
	case l.numbers && p.Items > 0:
		asked, _ := strconv.Atoi(at.Cursor)
		p.Next = strconv.Itoa(max(1, asked) + 1)
	case l.offsets && p.Items > 0 && (p.Items > 1 || at.Cursor == ""):
		p.Next = strconv.Itoa(number + p.Items - 1)
	}
	return p, nil
}

func (l *list) Decode(*bridge.Page) error { return nil }

// topic is what is published, and the committed position.
type topic struct {
	t        *testing.T
	lookBack time.Duration
	records  []string
	cp       bridge.Checkpoint
}

func newTopic(t *testing.T, start time.Time, lookBack time.Duration) *topic {
	return &topic{t: t, lookBack: lookBack + 2*time.Second, cp: bridge.Checkpoint{Origin: bridge.Origin{Start: start.UnixMilli(), Follow: bridge.FollowWindows}}}
}

func (s *topic) ends() []bridge.TopicState {
	return []bridge.TopicState{{Name: "t", Partitions: 1, End: int64(len(s.records)), Ends: bridge.EncodeEnds([]int64{int64(len(s.records))})}}
}

// held is what the topic holds behind an offset.
type held struct{ left map[string]int }

func (h *held) Match(e *bridge.Event) bool {
	if h.left[string(e.Raw)] == 0 {
		return false
	}
	if e.ID == nil {
		h.left[string(e.Raw)]--
	}
	return true
}

// session is one process that follows the list.
type session struct {
	*topic
	lister *windows.Lister
	at     bridge.Checkpoint
	batch  []string
	ends   []bridge.TopicState
	index  *held
}

func (s *topic) begin(l *windows.Lister) *session {
	x := &session{topic: s, lister: l, at: s.cp, ends: s.topic().ends()}
	at := x.at.Position()
	w, ok := at.Watermark()
	if !ok {
		s.t.Fatalf("cursor %q is no watermark", x.at.Cursor)
	}
	if x.at.Listing == nil {
		x.at.Listing = bridge.BeginListing(w.At, s.ends())
		s.cp.Listing = x.at.Listing
	}
	since := x.at.Listing.Since(w.At, s.lookBack)
	x.index = &held{make(map[string]int)}
	for _, raw := range s.records[since.Topics[0].Ends.Offsets()[0]:] {
		x.index.left[raw]++
	}
	return x
}

func (s *topic) topic() *topic { return s }

// step takes one page; more is false at the end of the list.
func (x *session) step() (more bool, err error) {
	at := x.at.Position()
	at.Held = x.index
	p, err := x.lister.Fetch(x.t.Context(), at)
	if err != nil {
		return false, err
	}
	for i := range p.Events {
		x.batch = append(x.batch, string(p.Events[i].Raw))
	}
	if p.Tail() {
		return false, nil
	}
	from, _ := p.At.Watermark()
	to, ok := bridge.ParseWatermark(p.Next)
	if !ok {
		x.t.Fatalf("next %q is no watermark", p.Next)
	}
	x.at.Listing = x.at.Listing.Moved(from, to, newestOf(p), x.ends, x.lookBack)
	x.at.Cursor = p.Next
	return true, nil
}

// newestOf is behind the latest item of a page.
func newestOf(p *bridge.Page) (ms int64) {
	for i := range p.Events {
		ms = max(ms, p.Events[i].Time+1)
	}
	return ms
}

func (x *session) commit() {
	ends := x.topic.ends()
	x.records = append(x.records, x.batch...)
	x.cp, x.batch, x.ends = x.at, nil, ends
}

func settings(lookBack time.Duration) windows.Config {
	c := windows.DefaultConfig()
	c.Follow, c.LookBack, c.Settle = bridge.FollowWindows, lookBack, 2*time.Second
	c.PageSize, c.MaxBytes, c.Timeout = 5, 1<<20, time.Minute
	return c
}

func counts(records []string) map[string]int {
	all := make(map[string]int)
	for _, r := range records {
		all[r]++
	}
	return all
}

// TestFollow follows random lists in all forms, with crashes at any page, errors in the
// middle of a listing, and events that are shown late, and compares the topic with the
// whole list: each event once.
func TestFollow(t *testing.T) {
	for seed := range uint64(1000) {
		if wrong := follow(t, seed); wrong != "" {
			t.Fatalf("seed %d: %s", seed, wrong)
		}
	}
}

// within is a random duration below d.
func within(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d)))
}

// follow plays one schedule and returns what is wrong with the topic, or "".
func follow(t *testing.T, seed uint64) (wrong string) {
	synctest.Test(t, func(t *testing.T) { wrong = schedule(t, seed) })
	return wrong
}

func schedule(t *testing.T, seed uint64) (wrong string) {
	rng := rand.New(rand.NewPCG(seed, 1))
	began := time.Now().Truncate(time.Second)
	start := began.Add(-time.Duration(rng.IntN(7200)) * time.Second)
	lookBack := time.Duration(rng.IntN(4)*rng.IntN(20)) * time.Second
	l := &list{
		page: 2 + rng.IntN(5), startOpen: rng.IntN(2) == 0, endClosed: rng.IntN(2) == 0,
		noIDs: rng.IntN(3) == 0, noHeader: rng.IntN(3) == 0,
	}
	cfg := settings(lookBack)
	form := rng.IntN(3) // both bounds, a start, neither
	cfg.NoEnd, cfg.NoStart = form > 0, form == 2
	l.arrival = form == 2 && rng.IntN(2) == 0
	late := lookBack
	if rng.IntN(4) == 0 || l.arrival && rng.IntN(2) == 0 {
		late += time.Duration(1+rng.IntN(10)) * time.Minute
		cfg.Late = late.String() + "/1m"
	}
	future := form > 0 && rng.IntN(2) == 0
	if l.arrival && future { // nothing is more than ten pages deep
		l.page, cfg.EndExplicit = 12, true
	}
	life := time.Duration(1+rng.IntN(300)) * time.Second
	for i := range rng.IntN(120) {
		e := entry{id: fmt.Sprint("e", i), seq: i, at: start.Add(within(rng, began.Add(life).Sub(start)))}
		if rng.IntN(2) == 0 { // several at one instant
			e.at = e.at.Truncate(20 * time.Second).Add(time.Second)
		}
		if e.at.Before(start) {
			e.at = start
		}
		if e.at = e.at.Truncate(time.Millisecond); rng.IntN(20) == 0 {
			e.at = start.Add(-within(rng, 3*time.Second))
		}
		e.visible = e.at
		if e.at.After(began.Add(-late)) && rng.IntN(3) == 0 {
			e.visible = e.at.Add(within(rng, late+1900*time.Millisecond))
		}
		if future && rng.IntN(4) == 0 {
			e.visible = e.at.Add(-within(rng, time.Minute))
		}
		if l.noIDs && !l.arrival && rng.IntN(4) == 0 { // by arrival not all copies are listed
			e.id = "same"
		}
		l.all = append(l.all, e)
	}
	if kind := rng.IntN(6); form == 0 && kind < 2 { // items come and go while pages are read
		l.numbers, l.offsets = kind == 0, kind == 1
		cfg.Numbered, cfg.Overlaps = true, l.offsets
		l.slow = func() { bridge.Sleep(t.Context(), within(rng, 300*time.Millisecond)) }
		for i := range l.all {
			if e := &l.all[i]; rng.IntN(5) == 0 {
				e.gone = began.Add(within(rng, 10*time.Second)) // while the first windows are listed
				if e.gone.Before(e.visible) {
					e.gone = e.visible.Add(within(rng, time.Minute))
				}
			}
		}
	}
	for i := 0; l.arrival && !future && i < 2*3*l.page && len(l.all) > 0; { // twice, old items are imported behind a new one
		imported := l.all[rng.IntN(len(l.all))].visible.Add(time.Millisecond)
		for range 3 * l.page { // two whole pages at least
			at := start.Add(-time.Hour - within(rng, time.Hour)).Truncate(time.Millisecond)
			l.all = append(l.all, entry{id: fmt.Sprint("old", i), seq: 1000 + i, at: at, visible: imported})
			i++
		}
	}
	cfg.PageSize = 10
	cfg.MaxBytes = int64(2000 + rng.IntN(40000))
	s := newTopic(t, start, cfg.Reach()-2*time.Second)
	failures := 0
	l.fail = func() error {
		if rng.IntN(40) == 0 {
			failures++
			return &bridge.Fault{Class: bridge.Transient, Code: "500", Err: fmt.Errorf("no %d", failures)}
		}
		return nil
	}
	x := s.begin(windows.New(l, cfg))
	for end := began.Add(life + late + 130*time.Second); time.Now().Before(end); {
		more, err := x.step()
		switch {
		case err != nil && bridge.FaultOf(err).Class == bridge.Permanent:
			return err.Error()
		case err != nil, rng.IntN(12) == 0: // a crash, or a rollback
			lister := x.lister
			if rng.IntN(2) == 0 {
				lister = windows.New(l, cfg)
			}
			x = s.begin(lister)
		case rng.IntN(3) == 0 || !more:
			x.commit()
		}
		if !more {
			bridge.Sleep(t.Context(), time.Duration(1+rng.IntN(15))*time.Second)
		}
	}
	want, gone := make(map[string]int), make(map[string]int)
	for _, e := range l.all {
		if !e.at.Before(start) {
			want[e.raw()]++
			if !e.gone.IsZero() {
				gone[e.raw()]++
			}
		}
	}
	got := counts(s.records)
	for raw, n := range want {
		if got[raw] > n || got[raw] < n-gone[raw] {
			return fmt.Sprintf("%s is %d times in the topic, want %d (form %d, look-back %s, late %q)", raw, got[raw], n, form, lookBack, cfg.Late)
		}
	}
	if len(got) > len(want) || len(got) < len(want)-len(gone) {
		return fmt.Sprintf("%d different records, want %d (form %d)", len(got), len(want), form)
	}
	return ""
}

// TestLate: events that come within the range of EXPORT_LATE are published once, and say how
// late they came. At rest the range costs nothing beside the listing that it replaces.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 5}
		for i := range 10 {
			at := began.Add(time.Duration(i) * time.Minute)
			l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: at, visible: at.Add(time.Duration(i%2) * 2 * time.Hour)})
		}
		cfg := settings(time.Minute)
		cfg.Late = "3h/15m"
		x := newTopic(t, began, cfg.Reach()).begin(windows.New(l, cfg))
		late := make(map[string]time.Duration)
		polls, first := 0, 0
		for ; time.Since(began) < 4*time.Hour; polls++ {
			at := x.at.Position()
			at.Held = x.index
			p, err := x.lister.Fetch(t.Context(), at)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range p.Events {
				if late[string(e.ID)] != 0 {
					t.Errorf("event %s comes twice", e.ID)
				}
				late[string(e.ID)] = max(e.Late, 1)
			}
			if x.at.Cursor = p.Next; polls == 0 {
				first = l.requests
			}
			bridge.Sleep(t.Context(), time.Minute)
		}
		for i := range 10 {
			from, to := time.Duration(0), time.Duration(1)
			if i%2 == 1 {
				from, to = 2*time.Hour, 2*time.Hour+16*time.Minute
			}
			if by := late[fmt.Sprint(i)]; by < from || by > to {
				t.Errorf("event %d is late by %s, want %s to %s", i, by, from, to)
			}
		}
		if n := l.requests - first; n > polls+20 {
			t.Errorf("%d requests of %d polls", n, polls)
		}
	})
}

// TestPlaced: an API selects by the time of arrival and shows the time of clients. Each
// item is published, whatever its time.
func TestPlaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 500}
		cfg := settings(0)
		cfg.PageSize = 1000
		x := newTopic(t, began.Add(-2*time.Minute), 0).begin(windows.New(l, cfg))
		for range 20 {
			now := time.Now()
			for age := range 100 { // of the client's clock, in all half seconds
				at := now.Add(-time.Duration(age) * 500 * time.Millisecond)
				l.all = append(l.all, entry{id: fmt.Sprint(len(l.all)), seq: len(l.all), at: at, placed: now, visible: now})
			}
			bridge.Sleep(t.Context(), 5*time.Second)
			if _, err := x.step(); err != nil {
				t.Fatal(err)
			}
			x.commit()
		}
		bridge.Sleep(t.Context(), time.Minute)
		for range 2 {
			if _, err := x.step(); err != nil {
				t.Fatal(err)
			}
		}
		if x.commit(); len(x.records) != len(l.all) {
			t.Errorf("%d records, want %d", len(x.records), len(l.all))
		}
	})
}

// TestNumberedCopies: an item without an id that a page lists again, since another one came
// before it, is published once.
func TestNumberedCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 2, numbers: true, noIDs: true}
		add := func(id string, before time.Duration) {
			l.all = append(l.all, entry{id: id, seq: len(l.all), at: began.Add(-before), visible: began.Add(-before)})
		}
		add("a", 10*time.Minute)
		add("b", 11*time.Minute)
		add("c", 12*time.Minute)
		l.fail = func() error {
			if l.requests == 4 { // behind two for the bounds, and the first page
				add("new", 9*time.Minute)
			}
			return nil
		}
		cfg := settings(2 * time.Hour)
		cfg.Numbered = true
		x := newTopic(t, began.Add(-30*time.Minute), 2*time.Hour).begin(windows.New(l, cfg))
		for more := true; more; {
			var err error
			if more, err = x.step(); err != nil {
				t.Fatal(err)
			}
		}
		if x.commit(); len(x.records) != 4 || len(counts(x.records)) != 4 {
			t.Errorf("records %q, want each item once", x.records)
		}
	})
}

// TestNumberedEnd: an API may repeat its last page behind it, or reject the number.
func TestNumberedEnd(t *testing.T) {
	for name, beyond := range map[string]string{"repeated": "repeat", "rejected": "reject"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				l := &list{page: 3, numbers: true, beyond: beyond}
				for i := range 30 {
					at := began.Add(-time.Duration(i) * time.Minute)
					l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: at, visible: at})
				}
				bridge.Sleep(t.Context(), time.Minute)
				cfg := settings(time.Minute)
				cfg.Numbered, cfg.PageSize = true, 3
				x := newTopic(t, began.Add(-time.Hour), time.Minute).begin(windows.New(l, cfg))
				for more := true; more; {
					var err error
					if more, err = x.step(); err != nil {
						t.Fatal(err)
					}
				}
				if x.commit(); len(x.records) != 30 {
					t.Errorf("%d records, want 30", len(x.records))
				}
			})
		})
	}
}

// TestOrder: a window is published oldest first, whatever the order of its list.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 3}
		for i := range 50 {
			at := began.Add(-time.Duration(i*7%50) * time.Minute)
			l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: at, visible: at})
		}
		bridge.Sleep(t.Context(), time.Minute)
		s := newTopic(t, began.Add(-time.Hour), time.Minute)
		x := s.begin(windows.New(l, settings(time.Minute)))
		for more := true; more; {
			var err error
			if more, err = x.step(); err != nil {
				t.Fatal(err)
			}
		}
		x.commit()
		var last int64
		for _, raw := range s.records {
			var item struct {
				At int64 `json:"at"`
			}
			if err := json.Unmarshal([]byte(raw), &item); err != nil {
				t.Fatal(err)
			}
			if item.At < last {
				t.Errorf("%s comes behind %d", raw, last)
			}
			last = item.At
		}
		if len(s.records) != 50 {
			t.Errorf("%d records, want 50", len(s.records))
		}
	})
}

// TestChanged: an item whose bytes change is published once, or with each change if that
// is set. Items of one id and several times are several items.
func TestChanged(t *testing.T) {
	for onChanged, want := range map[string]int{"ignore": 3, "publish": 12} {
		synctest.Test(t, func(t *testing.T) {
			l := &list{page: 5, volatile: true}
			for i := range 3 {
				at := time.Now().Add(time.Duration(i) * time.Second)
				l.all = append(l.all, entry{id: "same", seq: i, at: at, visible: at})
			}
			bridge.Sleep(t.Context(), 10*time.Second)
			cfg := settings(time.Minute)
			cfg.OnChanged, cfg.EndExplicit = onChanged, true
			x := newTopic(t, time.Now().Add(-time.Minute), time.Minute).begin(windows.New(l, cfg))
			for range 4 {
				for more := true; more; {
					var err error
					if more, err = x.step(); err != nil {
						t.Fatal(err)
					}
				}
				bridge.Sleep(t.Context(), 5*time.Second)
			}
			if x.commit(); len(x.records) != want {
				t.Errorf("%s: %d records, want %d: %q", onChanged, len(x.records), want, x.records)
			}
		})
	}
}

// TestSharedID: items of one id and time, with other bytes, are several items.
func TestSharedID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now()
		l := &list{page: 5, shared: true}
		for i := range 20 {
			l.all = append(l.all, entry{id: fmt.Sprint(i / 2), seq: i, at: at, visible: at})
		}
		bridge.Sleep(t.Context(), 10*time.Second)
		x := newTopic(t, at.Add(-time.Minute), time.Minute).begin(windows.New(l, settings(time.Minute)))
		for range 5 {
			if _, err := x.step(); err != nil {
				t.Fatal(err)
			}
			bridge.Sleep(t.Context(), 5*time.Second)
		}
		if x.commit(); len(x.records) != 20 {
			t.Errorf("%d records, want 20: %q", len(x.records), x.records)
		}
	})
}

// TestSharedIDMoves: items of one id and time are told apart in whatever order the API lists
// them, and if it shows one of them later.
func TestSharedIDMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now()
		l := &list{page: 50, shared: true}
		for i := range 20 {
			late := time.Duration(i%2) * 30 * time.Second
			l.all = append(l.all, entry{id: fmt.Sprint(i / 2), seq: i, at: at, visible: at.Add(late)})
		}
		bridge.Sleep(t.Context(), 10*time.Second)
		cfg := settings(time.Minute)
		cfg.PageSize = 100
		x := newTopic(t, at.Add(-time.Minute), time.Minute).begin(windows.New(l, cfg))
		for i := range 30 {
			l.oldest = i%4 > 1
			if _, err := x.step(); err != nil {
				t.Fatal(err)
			}
			bridge.Sleep(t.Context(), 2*time.Second)
		}
		if x.commit(); len(x.records) != 20 {
			t.Errorf("%d records, want 20: %q", len(x.records), x.records)
		}
	})
}

// TestBoundsIgnored: an API that ignores the start or the end of a range is refused, since
// a restart would publish old events again.
func TestBoundsIgnored(t *testing.T) {
	for name, l := range map[string]*list{"EXPORT_START_PARAM": {noStart: true}, "EXPORT_END_PARAM": {noEnd: true}} {
		synctest.Test(t, func(t *testing.T) {
			at := time.Now().Add(-time.Hour)
			l.page, l.all = 5, []entry{{id: "a", at: at, visible: at}}
			_, err := newTopic(t, at.Add(-time.Hour), time.Minute).begin(windows.New(l, settings(time.Minute))).step()
			if f := bridge.FaultOf(err); err == nil || f.Class != bridge.Permanent || !strings.Contains(f.Hint, name) {
				t.Errorf("got %v, want a permanent fault that names %s", err, name)
			}
		})
	}
}

// TestCapped: an API that lists fewer items than asked for, and names no next page, is
// found out and asked for smaller ranges.
func TestCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 50, noCursor: true}
		for i := range 3000 {
			at := began.Add(-time.Duration(i) * 400 * time.Millisecond)
			l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: at, visible: at})
		}
		bridge.Sleep(t.Context(), time.Minute)
		cfg := settings(time.Minute)
		cfg.PageSize = 100
		x := newTopic(t, began.Add(-time.Hour), time.Minute).begin(windows.New(l, cfg))
		for more := true; more; {
			var err error
			if more, err = x.step(); err != nil {
				t.Fatal(err)
			}
		}
		if x.commit(); len(x.records) != 3000 {
			t.Errorf("%d records, want 3000", len(x.records))
		}
		asked := l.requests
		for range 20 {
			bridge.Sleep(t.Context(), 15*time.Second)
			if _, err := x.step(); err != nil {
				t.Fatal(err)
			}
		}
		if n := l.requests - asked; n > 60 {
			t.Errorf("%d requests of 20 polls at rest", n)
		}
	})
}

// TestCappedBurst: an API that lists fewer items than asked for is found out also if all of
// them are of one second. Without a limit the same items are published.
func TestCappedBurst(t *testing.T) {
	for _, tc := range []struct {
		page            int
		oldest, blocked bool
	}{{50, false, true}, {200, false, false}, {50, true, true}, {200, true, false}} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			l := &list{page: tc.page, noCursor: true, oldest: tc.oldest}
			for i := range 120 {
				at, apart := began, -10*time.Second
				if tc.oldest {
					at, apart = began.Add(-25*time.Minute), 10*time.Second
				}
				if i >= 60 { // listed behind the burst
					at = at.Add(time.Duration(i) * apart)
				}
				l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: at, visible: at})
			}
			bridge.Sleep(t.Context(), time.Minute)
			cfg := settings(time.Minute)
			cfg.PageSize = 1000
			x := newTopic(t, began.Add(-30*time.Minute), time.Minute).begin(windows.New(l, cfg))
			more, err := true, error(nil)
			for more && err == nil {
				more, err = x.step()
			}
			x.commit()
			switch f := bridge.FaultOf(err); {
			case tc.blocked && (err == nil || f.Class != bridge.Permanent || !strings.Contains(f.Hint, "EXPORT_PAGE_SIZE")):
				t.Errorf("%+v: got %d records and %v, want a permanent fault that names EXPORT_PAGE_SIZE", tc, len(x.records), err)
			case !tc.blocked && (err != nil || len(x.records) != len(l.all)):
				t.Errorf("%+v: %d records and %v, want %d", tc, len(x.records), err, len(l.all))
			}
		})
	}
}

// TestProofMeetsLate: an event that the API shows while a listing is proven whole does not
// make the listing one that was cut off.
func TestProofMeetsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 500, noCursor: true}
		add := func(n int, at time.Time) {
			for range n {
				l.all = append(l.all, entry{id: fmt.Sprint(len(l.all)), seq: len(l.all), at: at, visible: at})
			}
		}
		add(1, began.Add(-time.Minute))
		add(1, began.Add(-2*time.Minute))
		l.fail = func() error {
			if l.requests == 4 { // behind two for the bounds, and the listing
				add(1, began.Add(-time.Minute))
			}
			return nil
		}
		cfg := settings(time.Minute)
		cfg.PageSize = 1000
		x := newTopic(t, began.Add(-time.Hour), time.Minute).begin(windows.New(l, cfg))
		for range 10 {
			if _, err := x.step(); err != nil {
				t.Fatal(err)
			}
			bridge.Sleep(t.Context(), 5*time.Second)
			add(4, time.Now()) // of one second
		}
		bridge.Sleep(t.Context(), time.Minute)
		for range 2 {
			if _, err := x.step(); err != nil {
				t.Fatal(err)
			}
		}
		if x.commit(); len(x.records) != len(l.all) {
			t.Errorf("%d records, want %d", len(x.records), len(l.all))
		}
	})
}

// TestGrowsWhileProven: an item that is shown between two requests is no proof that the API
// cuts its lists off.
func TestGrowsWhileProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now()
		l := &list{page: 50, noCursor: true}
		for i := range 6 {
			l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: at.Add(time.Duration(i) * 100 * time.Millisecond), visible: at.Add(time.Second)})
		}
		l.all[0].visible = at.Add(3 * time.Minute)
		l.fail = func() error {
			if l.requests == 4 { // behind those that look for the bounds, and the first listing
				bridge.Sleep(t.Context(), time.Minute)
			}
			return nil
		}
		bridge.Sleep(t.Context(), 2*time.Minute+30*time.Second)
		cfg := settings(5 * time.Minute)
		cfg.PageSize = 100
		x := newTopic(t, at.Add(-time.Minute), 5*time.Minute).begin(windows.New(l, cfg))
		for more := true; more; {
			var err error
			if more, err = x.step(); err != nil {
				t.Fatal(err)
			}
		}
		if x.commit(); len(x.records) != 6 {
			t.Errorf("%d records, want 6", len(x.records))
		}
	})
}

// TestRejectedCursor: an API whose cursors are rejected after some pages is asked for
// smaller ranges.
func TestRejectedCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 5, mostPages: 3}
		for i := range 100 {
			at := began.Add(-time.Duration(i) * time.Minute)
			l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: at, visible: at})
		}
		bridge.Sleep(t.Context(), time.Minute)
		x := newTopic(t, began.Add(-2*time.Hour), time.Second).begin(windows.New(l, settings(time.Second)))
		for more := true; more; {
			var err error
			if more, err = x.step(); err != nil {
				t.Fatal(err)
			}
		}
		if x.commit(); len(x.records) != 100 {
			t.Errorf("%d records, want 100", len(x.records))
		}
	})
}

// TestClocks: windows end by the earlier of two clocks, so a clock that is ahead settles
// nothing too early.
func TestClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 5, ahead: time.Hour}
		for i := range 20 {
			at := began.Add(time.Duration(i) * 10 * time.Second)
			l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: at, visible: at})
		}
		x := newTopic(t, began.Add(-time.Minute), time.Second).begin(windows.New(l, settings(time.Second)))
		for range 60 {
			if _, err := x.step(); err != nil {
				t.Fatal(err)
			}
			bridge.Sleep(t.Context(), 5*time.Second)
		}
		if x.commit(); len(x.records) != 20 {
			t.Errorf("%d records, want 20", len(x.records))
		}
	})
}

// TestClockJumps: the clock of this machine jumps an hour ahead. The watermark does not
// pass what the API has not listed yet, by its own clock.
func TestClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &list{page: 5}
		x := newTopic(t, time.Now().Add(-time.Minute), time.Second).begin(windows.New(l, settings(time.Second)))
		follow := func() {
			for range 10 {
				now := time.Now()
				l.all = append(l.all, entry{id: fmt.Sprint(len(l.all)), seq: len(l.all), at: now.Add(l.ahead), visible: now})
				if _, err := x.step(); err != nil {
					t.Fatal(err)
				}
				bridge.Sleep(t.Context(), 5*time.Second)
			}
		}
		follow()
		bridge.Sleep(t.Context(), time.Hour) // of this clock only
		l.ahead = -time.Hour
		follow()
		for range 2 { // the last one is settled
			if _, err := x.step(); err != nil {
				t.Fatal(err)
			}
		}
		if x.commit(); len(x.records) != len(l.all) {
			t.Errorf("%d records, want %d", len(x.records), len(l.all))
		}
	})
}

// TestClockWrongOnce: one wrong Date blocks the stream until the API sends a right one.
func TestClockWrongOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &list{page: 5}
		x := newTopic(t, time.Now().Add(-time.Minute), time.Second).begin(windows.New(l, settings(time.Second)))
		for _, ahead := range []time.Duration{0, -1000 * time.Hour, -1000 * time.Hour} {
			l.ahead = ahead
			_, err := x.step()
			bridge.Sleep(t.Context(), 5*time.Second)
			if err != nil {
				if f := bridge.FaultOf(err); f.Code != "watermark" {
					t.Fatal(err)
				}
				x = x.begin(x.lister)
			}
		}
		l.ahead = 0
		if _, err := x.step(); err != nil {
			t.Errorf("still blocked: %v", err)
		}
	})
}

// TestEmptyPages: empty pages in a window end nothing while they name a next one.
func TestEmptyPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now()
		l := &list{page: 5, empties: 20, all: []entry{{id: "a", at: at, visible: at}}}
		bridge.Sleep(t.Context(), time.Minute)
		x := newTopic(t, at.Add(-time.Minute), time.Second).begin(windows.New(l, settings(time.Second)))
		if _, err := x.step(); err != nil {
			t.Fatal(err)
		}
		if x.commit(); len(x.records) != 1 {
			t.Errorf("%d records, want 1", len(x.records))
		}
		l.empties = 1 << 30
		_, err := newTopic(t, at.Add(-time.Minute), time.Second).begin(windows.New(l, settings(time.Second))).step()
		if f := bridge.FaultOf(err); err == nil || f.Class != bridge.Permanent || !strings.Contains(f.Hint, "EXPORT_MORE_FIELD") {
			t.Errorf("got %v, want a permanent fault that names EXPORT_MORE_FIELD", err)
		}
	})
}

// TestLongestRange: no request asks for more than the API lists in one query, whatever the
// look-back.
func TestLongestRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 5, longest: time.Hour}
		for i := range 50 {
			at := began.Add(-time.Duration(i) * 10 * time.Minute)
			l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: at, visible: at})
		}
		bridge.Sleep(t.Context(), time.Minute)
		cfg := settings(3 * time.Hour)
		cfg.MaxWindow = time.Hour
		x := newTopic(t, began.Add(-9*time.Hour), 3*time.Hour).begin(windows.New(l, cfg))
		for more := true; more; {
			var err error
			if more, err = x.step(); err != nil {
				t.Fatal(err)
			}
		}
		if x.commit(); len(x.records) != 50 {
			t.Errorf("%d records, want 50", len(x.records))
		}
	})
}

// TestFailing: an API that fails now and then is asked again within a listing of many ranges,
// which would never end otherwise.
func TestFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &list{page: 5}
		l.fail = func() error {
			if l.requests%10 == 0 {
				return &bridge.Fault{Class: bridge.Transient, Code: "503", Err: errors.New("away")}
			}
			return nil
		}
		var said []string
		cfg := settings(3 * time.Hour)
		cfg.MaxWindow, cfg.Observe = 10*time.Minute, func(bridge.Observation) {}
		cfg.Warn = func(text, _ string) { said = append(said, text) }
		x := newTopic(t, time.Now().Add(-9*time.Hour), 3*time.Hour).begin(windows.New(l, cfg))
		for more := true; more; {
			var err error
			if more, err = x.step(); err != nil {
				t.Fatal(err)
			}
		}
		if !strings.Contains(strings.Join(said, "\n"), "a listing waits") {
			t.Errorf("nothing says that it waits: %q", said)
		}
	})
}

// TestClock: a watermark ahead of the API's clock blocks the stream.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := newTopic(t, time.Now().Add(time.Hour), time.Minute).begin(windows.New(&list{page: 5}, settings(time.Minute))).step()
		if f := bridge.FaultOf(err); err == nil || f.Class != bridge.Permanent || f.Code != "watermark" {
			t.Errorf("got %v, want a permanent fault about the watermark", err)
		}
	})
}

// TestCutOff: an API that lists a full page and names no next one is asked for smaller
// ranges; for more than a page in one second the stream blocks.
func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &list{page: 5, noCursor: true}
		for i := range 40 {
			at := began.Add(-time.Duration(i) * 30 * time.Second)
			l.all = append(l.all, entry{id: fmt.Sprint(i), seq: i, at: at, visible: at})
		}
		bridge.Sleep(t.Context(), time.Minute)
		s := newTopic(t, began.Add(-time.Hour), time.Minute)
		x := s.begin(windows.New(l, settings(time.Minute)))
		for more := true; more; {
			var err error
			if more, err = x.step(); err != nil {
				t.Fatal(err)
			}
		}
		x.commit()
		if len(s.records) != 40 {
			t.Errorf("%d records, want 40", len(s.records))
		}
		for i := range 5 {
			at := time.Now()
			l.all = append(l.all, entry{id: fmt.Sprint("b", i), seq: 100 + i, at: at, visible: at})
		}
		bridge.Sleep(t.Context(), time.Minute)
		_, err := x.step()
		if f := bridge.FaultOf(err); err == nil || f.Class != bridge.Permanent || !strings.Contains(f.Hint, "EXPORT_PAGE_SIZE") {
			t.Errorf("got %v, want a permanent fault that names EXPORT_PAGE_SIZE", err)
		}
	})
}
