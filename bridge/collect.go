package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// warnCursor is the length from which a cursor is suspicious, in bytes.
const warnCursor = 2 << 10

// usualPage is the largest page of the API. A tail is judged by it even when
// the configured page is smaller: the tail may have been read with a larger one.
const usualPage = 1000

// batch is what was taken since the last commit. Its events are on their way:
// the sink sends them while the next page is fetched.
type batch struct {
	pages, events int
	began         time.Time // when the first page was taken
}

// ship takes a link: its page joins the batch at hand, which is committed when
// it has its size, and decides what comes after the end of a chain.
func (f *follower) ship(hard context.Context, l link) error {
	Reach(PointFetched)
	if f.probing && l.err == nil { // only whether it came matters
		l.release()
		return f.acquit(hard)
	}
	if err := f.add(hard, l); err != nil {
		if _, over := errors.AsType[*sessionError](err); over {
			return err
		}
		if err := f.commit(hard); err != nil { // what came before it
			return err
		}
		return err
	}
	if !l.last && !f.full() {
		return nil
	}
	if err := f.commit(hard); err != nil {
		return err
	}
	if l.last {
		f.dropLinks()
	}
	return f.finish(l.last)
}

// dropLinks ends the chain; head stays.
func (f *follower) dropLinks() {
	if f.chain != nil {
		f.chain.stop()
		f.chain = nil
	}
}

// add trims a page, moves head over it and sends its events. A page that may
// not be published leaves the batch and head as they were.
func (f *follower) add(hard context.Context, l link) error {
	if l.err != nil {
		return l.err
	}
	before := f.mark()
	if err := f.take(hard, l.page); err != nil {
		l.release()
		f.backTo(before)
		return err
	}
	if f.batch.pages == 0 {
		f.batch.began = time.Now()
	}
	events := len(l.page.Events)
	if events == 0 {
		l.release()
		f.batch.pages++
		return nil
	}
	if f.state == StateIdle {
		f.set(StateRunning, nil) // not caught up, however long Kafka takes
	}
	f.b.waits()
	err := f.b.ports.Sink.Send(hard, l.page)
	f.b.busy()
	switch {
	case errors.Is(err, ErrRefused):
		f.backTo(before)
		return err
	case err != nil:
		f.open = false
		f.observePublish(time.Since(f.batch.began), f.batch.pages+1, err)
		return &sessionError{fmt.Errorf("send the page at cursor %s: %w", CursorHash(before.head.Cursor), err)}
	}
	f.batch.pages++
	f.batch.events += events
	return nil
}

// mark is where the stream stands between two pages.
type mark struct {
	head    Checkpoint
	pace    pace
	found   Observation
	visited int
	forms   int
	blank   int
}

func (f *follower) mark() mark {
	return mark{head: f.head, pace: f.pace, found: f.found, visited: len(f.visited.pending), blank: len(f.blank.pending), forms: len(f.trimmer.pending)}
}

func (f *follower) backTo(m mark) {
	f.head, f.pace, f.found = m.head, m.pace, m.found
	f.visited.pending = f.visited.pending[:m.visited]
	f.trimmer.pending = f.trimmer.pending[:min(m.forms, len(f.trimmer.pending))]
	f.blank.pending = f.blank.pending[:min(m.blank, len(f.blank.pending))]
}

const (
	// growMost is how long a batch grows. A crash repeats as much fetching.
	growMost = 200 * time.Millisecond
	// growTimes is how many times longer a batch grows than its commit takes
	// where pages come in quick succession, so that committing takes little of
	// the time.
	growTimes = 8
)

// full reports whether the batch at hand is to be committed although the chain
// goes on.
func (f *follower) full() bool {
	return f.enough() || f.batch.pages >= f.breadth || time.Since(f.batch.began) >= growMost
}

// ripe returns when the batch at hand, which has pages, is to be committed
// although none is ready. Where the pages are far between that is at once: the commit is over
// before the next one comes. Where they come quicker than commits it is worth
// waiting for them, since nothing is taken while a commit runs.
func (f *follower) ripe() time.Time {
	if f.gap >= f.cost {
		return f.batch.began
	}
	return f.batch.began.Add(min(growTimes*f.cost, growMost))
}

// average moves a running mean by an eighth towards d.
func average(mean, d time.Duration) time.Duration { return mean + (d-mean)/8 }

// take moves head over one page: it checks that the page belongs to the
// stream, trims it, and derives the position after it.
func (f *follower) take(ctx context.Context, p *Page) error {
	if err := f.admit(p); err != nil {
		return err
	}
	h := &f.head
	limit := tailFactor * max(f.b.cfg.PageSize, usualPage)
	t := f.trimmer.trim(p, h.Tail, h.Carried, limit)
	if len(t.tail) > limit {
		return &Fault{
			Class: Permanent, Code: "tail", Reason: ReasonTail,
			Hint: "the API lists more items under one cursor than can be remembered: move on with exportbridge cursor reset --to-datetime or --to-cursor",
			Err:  fmt.Errorf("%d items under the cursor at the end of the results, at most %d can be told apart", len(t.tail), limit),
		}
	}
	f.found.Repeated += t.repeated
	f.found.Shared += t.shared
	f.found.Vanished += t.vanished
	f.found.Changed += t.changed
	h.Tail, h.Carried = t.tail, t.carried
	if Broken(BreakTail) {
		h.Tail = nil
	}
	f.dropHeld(p)
	if err := f.judge(p); err != nil {
		return err
	}
	f.count(p)
	f.markAgain(ctx, p)
	f.noteTimes(p)
	twice := f.pace.atTail && p.Tail()
	f.pace.atTail, f.pace.circles = p.Tail(), false
	if p.Tail() {
		f.pace.spent = 0
		h.MarksEnd = h.MarksEnd || p.Next == "" || twice
		h.Drained, h.EndedEmpty = f.final(p), 0
		h.PositionTime = millis(p.RequestedAt)
		f.contract = ContractEmptyCursor
		if p.Next != "" {
			f.contract = ContractEmptyItems
			if p.Items >= f.b.cfg.PageSize && len(p.Events) == 0 {
				f.b.observe(Observation{What: ObserveStuck, Code: "full-tail"})
			}
		}
		return nil
	}
	h.Cursor, h.Drained = p.Next, false
	h.Pages++
	h.AdvanceTime = millis(p.ServerTime)
	if h.AdvanceTime == 0 {
		h.AdvanceTime = millis(p.RequestedAt)
	}
	// A client's clock may be years ahead; the export is not.
	h.PositionTime = max(h.PositionTime, min(h.LastEventTime, millis(p.RequestedAt)))
	if p.Items > 0 {
		f.visited.add(p.At.Cursor)
		f.blank.clear()
		f.pace.filled(p, h.LastEventTime)
		return nil
	}
	f.skip(p)
	return nil
}

// skip notes an empty page that leads on. One that leads back to an empty page
// is the end of the results, since nothing lies between: some APIs hand out two
// cursors in turn there. The stream follows it all the same, because what comes
// next may be listed under either.
func (f *follower) skip(p *Page) {
	h := &f.head
	f.pace.circles = f.blank.has(p.Next)
	f.blank.add(p.At.Cursor)
	f.pace.skipped(p, max(h.LastEventTime, h.Origin.Start))
	if !f.pace.leadsOn(h.MarksEnd) {
		h.NewsAfter = nil
	}
	switch {
	case f.window() && f.pace.empties >= f.b.cfg.EmptyPages && f.final(p):
		h.Drained, h.EndedEmpty = true, f.pace.empties
	case f.pace.circles && !f.window():
		h.Drained, h.PositionTime, h.MarksEnd = true, millis(p.RequestedAt), true
		f.contract = ContractEmptyItems
	}
}

// final reports whether the end of the results at p is final for what the
// stream exports. A window that lies partly in the future is not over before
// its end has passed, by the server's clock if it tells.
func (f *follower) final(p *Page) bool {
	now := p.ServerTime
	if now.IsZero() {
		now = p.RequestedAt
	}
	return !f.window() || !now.Before(time.UnixMilli(f.b.cfg.Origin.End))
}

// admit refuses pages that must not be published.
func (f *follower) admit(p *Page) error {
	switch {
	case len(p.Next) > MaxCursor:
		return &Fault{
			Class: Permanent, Code: "cursor", Reason: ReasonCursor,
			Hint: "the API hands out a cursor that is too long to be sent back; ask its operator",
			Err:  fmt.Errorf("the next cursor has %d bytes, at most %d can be followed", len(p.Next), MaxCursor),
		}
	case !p.Tail() && f.visited.has(p.Next):
		f.b.observe(Observation{What: ObserveStuck, Code: "cycle"})
		return &Fault{
			Class: Malformed, Code: "cycle", Reason: ReasonCycle,
			Hint: "the API leads back to a page that was read before; move on with exportbridge cursor reset --to-datetime or --to-cursor",
			Err:  fmt.Errorf("page at cursor %s leads back to cursor %s", CursorHash(p.At.Cursor), CursorHash(p.Next)),
		}
	}
	if len(p.Next) > warnCursor && len(f.head.Cursor) <= warnCursor {
		f.log.Warn("the API's cursor is long", "bytes", len(p.Next), "limit", MaxCursor)
	}
	return f.admitSource(p.Source)
}

// admitSource keeps two tenants from mixing in one topic.
func (f *follower) admitSource(got SourceIdentity) error {
	have := &f.head.Source
	if got == (SourceIdentity{}) || got == *have {
		return nil
	}
	if *have == (SourceIdentity{}) {
		if news := f.head.NewsAfter; news != nil && news.Source != (SourceIdentity{}) && news.Source != got {
			f.head.NewsAfter = nil
		}
		*have = got
		return nil
	}
	return &Fault{
		Class: Permanent, Code: "source", Reason: ReasonSource,
		Hint: "EXPORT_API_KEY or EXPORT_URL belongs to another application: correct it, or accept the new one with exportbridge cursor reset",
		Err: fmt.Errorf("the page is of %s/%s/%s, the stream of %s/%s/%s", got.Organization, got.Workspace, got.Application,
			have.Organization, have.Workspace, have.Application),
	}
}

// count adds the page's events to head.
func (f *follower) count(p *Page) {
	h := &f.head
	h.Events += int64(len(p.Events))
	for i := range p.Events {
		if e := &p.Events[i]; e.Defect == DefectNone && e.Time > h.LastEventTime {
			h.LastEventTime = min(e.Time, MaxNumber)
		}
	}
}

// timesOfPage is how many times of events are noted of a page, for their way to
// be measured. It is not worth more: the times of a page are close together.
const timesOfPage = 8

// noteTimes notes the times of some of the page's events. Those that a rewind
// publishes once more are no news to anybody.
func (f *follower) noteTimes(p *Page) {
	step := max(1, len(p.Events)/timesOfPage)
	for i := step - 1; i < len(p.Events); i += step {
		if e := &p.Events[i]; e.Defect == DefectNone && e.Time != NoTime && !e.Again {
			f.found.Times = append(f.found.Times, e.Time)
		}
	}
}

// enough reports whether a bounded run has what it wanted, head included.
func (f *follower) enough() bool {
	l := f.b.cfg.Limits
	return l.MaxEvents > 0 && f.head.Events-f.began >= l.MaxEvents ||
		l.Until > 0 && f.head.LastEventTime >= l.Until
}

// finish decides what follows a committed batch: the end of a bounded run,
// the next poll, or nothing while the chain goes on.
func (f *follower) finish(chainEnded bool) error {
	l := f.b.cfg.Limits
	switch {
	case l.MaxEvents > 0 && f.cp.Events-f.began >= l.MaxEvents:
		f.ended = "--max-events reached"
	case l.Until > 0 && f.cp.LastEventTime >= l.Until:
		f.ended = "--until reached"
	case !chainEnded:
		f.set(StateRunning, nil)
	case f.window() && f.head.Drained:
		f.ended = "the window ended " + howEnded(f.head.EndedEmpty)
	case l.Once && (f.pace.ended() || f.pace.empties >= f.b.cfg.EmptyPages):
		empties := 0
		if !f.pace.atTail {
			empties = f.pace.empties
		}
		f.ended = "drained " + howEnded(empties)
	case f.pace.leadsOn(f.head.MarksEnd):
		f.due = time.Now().Add(f.pace.wait(f.b.cfg.PollInterval))
		f.set(StateRunning, nil)
	default:
		if f.contract == ContractUnknown {
			f.contract = ContractEmptyItems // only empty pages end a chain without a tail
		}
		f.due = time.Now().Add(f.polls.wait(f.news))
		f.news = false
		f.set(StateIdle, nil)
	}
	return nil
}

// howEnded says what ended an export: so many empty pages, or its last one.
func howEnded(empties int) string {
	if empties == 0 {
		return "on its last page"
	}
	return fmt.Sprintf("after %d empty pages in a row", empties)
}

// acquit ends a cross-check: the API works without a cursor, so the cursor
// itself is bad.
func (f *follower) acquit(hard context.Context) error {
	f.dropChain()
	fault := *f.suspect
	f.probing = false
	if moved, err := f.detour(hard, &fault); moved || err != nil {
		return err
	}
	fault.Class, fault.Reason = Permanent, ReasonCursor
	if fault.Hint == "" {
		fault.Hint = "the API does not accept the cursor any more: exportbridge cursor rewind --shift-by -1, or cursor reset --to-datetime"
	}
	return f.wait(verdict{wait: probeInterval, blocked: true}, &fault)
}
