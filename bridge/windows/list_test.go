package windows_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
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

func (l *list) raw(e entry) string {
	if l.shared {
		return fmt.Sprintf(`{"id":%q,"seq":%d}`, e.id, e.seq)
	}
	return e.raw()
}

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
	ignored                   bool          // the number: each page is the first one
	zero                      bool          // the number of the first page, also without one
	most                      int           // items of a listing, the others are cut off, 0 is no limit
	highest                   int           // offset behind which nothing is listed, 0 is no limit
	slow                      func()        // before each page
	fail                      func() error
	requests                  int
}

// add adds n entries, the first one at a time and each so far from the one before.
func (l *list) add(n int, at time.Time, apart time.Duration) {
	for i := range n {
		l.put(fmt.Sprint(len(l.all)), at.Add(time.Duration(i)*apart))
	}
}

// put adds an entry that is shown at its time.
func (l *list) put(id string, at time.Time) {
	l.all = append(l.all, entry{id: id, seq: len(l.all), at: at, visible: at})
}

func (l *list) shown(from, to, now time.Time) []entry {
	var shown []entry
	for _, e := range l.all {
		at := e.place()
		after := !at.Before(from) && (!l.startOpen || at.After(from) || from.UnixMilli() == 0)
		before := at.Before(to) || l.endClosed && at.Equal(to)
		if (after || l.noStart) && (before || l.noEnd || to.UnixMilli() == 0) && !e.visible.After(now) &&
			(e.gone.IsZero() || e.gone.After(now)) {
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
		return nil, &bridge.Fault{
			Class: bridge.Permanent, Code: "400", Reason: bridge.ReasonConfig,
			Err: fmt.Errorf("%d ms are too long", at.End-at.Start),
		}
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
		return &bridge.Page{At: at, RequestedAt: now, ArrivedAt: now, ServerTime: now,
			Next: fmt.Sprintf("empty%d", skipped+1)}, nil
	}
	shown := l.shown(time.UnixMilli(at.Start), time.UnixMilli(at.End), now)
	if l.most > 0 {
		shown = shown[:min(len(shown), l.most)]
	}
	number, _ := strconv.Atoi(at.Cursor)
	if l.ignored {
		number = 0
	}
	if l.zero {
		number++
	}
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
		if shown = shown[min(len(shown), number):]; l.highest > 0 && number > l.highest {
			shown = nil
		}
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
		raw := l.raw(e)
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
		asked, _ := strconv.Atoi(at.Cursor)
		p.Next = strconv.Itoa(asked + p.Items - 1)
	}
	return p, nil
}

func (l *list) Decode(*bridge.Page) error { return nil }

// topic is what is published, and the committed position.
type topic struct {
	t        *testing.T
	lookBack time.Duration
	byBytes  bool // a changed item is new
	records  []string
	keys     map[string]bridge.ItemKey // of the items with an id, by their bytes
	cp       bridge.Checkpoint
}

func newTopic(t *testing.T, start time.Time, cfg windows.Config) *topic {
	origin := bridge.Origin{Start: start.UnixMilli(), Follow: bridge.FollowWindows}
	return &topic{t: t, lookBack: cfg.Reach(), byBytes: cfg.ChangedIsNew(), keys: make(map[string]bridge.ItemKey), cp: bridge.Checkpoint{Origin: origin}}
}

func (s *topic) ends() []bridge.TopicState {
	return []bridge.TopicState{{Name: "t", Partitions: 1, End: int64(len(s.records)),
		Ends: bridge.EncodeEnds([]int64{int64(len(s.records))})}}
}

// held is what the topic holds behind an offset: by bytes, and by keys if it has some.
type held struct {
	left map[string]int
	keys map[bridge.ItemKey]bool
}

func (h *held) Match(e *bridge.Event) bool {
	if e.ID != nil && !e.Shared && h.keys[e.ItemKey()] {
		return true
	}
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
	x.index = &held{make(map[string]int), make(map[bridge.ItemKey]bool)}
	for _, raw := range s.records[since.Topics[0].Ends.Offsets()[0]:] {
		x.index.left[raw]++
		if k, ok := s.keys[raw]; ok {
			x.index.keys[k] = true
		}
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
		e := &p.Events[i]
		if x.batch = append(x.batch, string(e.Raw)); e.ID != nil && !x.byBytes {
			x.keys[string(e.Raw)] = e.ItemKey()
		}
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

// begin is the first session of a topic that follows the list from start on.
func begin(t *testing.T, start time.Time, l *list, cfg windows.Config) *session {
	t.Helper()
	return newTopic(t, start, cfg).begin(windows.New(l, cfg))
}

// poll takes n pages, and waits after each.
func (x *session) poll(n int, wait time.Duration) {
	x.t.Helper()
	for range n {
		must.Get(x.step())(x.t)
		bridge.Sleep(x.t.Context(), wait)
	}
}

// drain takes pages to the end of the list, and commits them.
func (x *session) drain() {
	x.t.Helper()
	for must.Get(x.step())(x.t) {
	}
	x.commit()
}

// block takes pages until an error.
func (x *session) block() (err error) {
	for more := true; more && err == nil; {
		more, err = x.step()
	}
	return err
}

// want commits, and wants so many records, all different.
func (x *session) want(n int) {
	x.t.Helper()
	if x.commit(); len(x.records) != n || len(counts(x.records)) != n {
		x.t.Errorf("%d records, %d different ones, want %d", len(x.records), len(counts(x.records)), n)
	}
}

// wantFault wants a fault of a class whose hint has a word.
func wantFault(t *testing.T, err error, class bridge.Class, word string) {
	t.Helper()
	if f := bridge.FaultOf(err); err == nil || f.Class != class || !strings.Contains(f.Hint+string(f.HintCode), word) {
		t.Errorf("got %v, want a fault of class %v that names %s", err, class, word)
	}
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
