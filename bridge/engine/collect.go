package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/engine/position"
	"exportbridge/bridge/internal/failpoint"
)

// warnCursor is the length from which a cursor causes a warning, in bytes.
const warnCursor = 2 << 10

// handleFetched adds a fetched page to the batch, commits a full batch, and
// schedules what follows the last page.
func (f *follower) handleFetched(hard context.Context, r fetchResult) error {
	failpoint.Reach(failpoint.Fetched)
	if f.schedule.probing() && r.err == nil { // this page only shows that the API works
		trusted := f.schedule.suspect.Code == position.CodeOlder && f.trustOlder(f.e, r.page)
		r.release()
		if trusted {
			f.discard()
			f.schedule.suspect, f.schedule.due = nil, time.Now()
			return nil
		}
		return f.confirmBadCursor(hard)
	}
	if err := f.add(hard, r); err != nil {
		if _, over := errors.AsType[*sessionError](err); over {
			return err
		}
		return cmp.Or(f.commit(hard, true), err) // commit the pages before the error: an API may accept a cursor only once
	}
	r.last = r.last || f.repeatsEnd(f.e)
	if !r.last && f.run.limitReached(f.e.cfg.Limits, f.at.Checkpoint) == "" && !f.sizer.full(f.batch) {
		return nil
	}
	if err := f.commit(hard, false); err != nil {
		return err
	}
	if r.last {
		f.stopFetching()
	}
	f.finish(r.last)
	return nil
}

// stopFetching ends the prefetcher. It does not change the position.
func (f *follower) stopFetching() {
	if f.fetching != nil {
		f.fetching.stop()
		f.fetching = nil
	}
}

// add takes a page and sends its events. A page that must not be published leaves batch
// and position unchanged.
func (f *follower) add(hard context.Context, r fetchResult) error {
	if r.err != nil {
		return r.err
	}
	before, foundBefore := f.at, f.found
	if err := f.session.identify(r.page, &f.committed); err != nil {
		r.release()
		return err
	}
	if err := f.take(hard, r.page); err != nil {
		r.release()
		return err
	}
	if w := f.e.cfg.doubtfulEnd(&f.last); w != nil && time.Since(f.run.fullLogged) >= 24*time.Hour {
		f.run.fullLogged = time.Now()
		f.log.Warn("the last page may not be the end of the results", "warning", w.Text, "items", r.page.Items,
			"page_size", f.e.cfg.PageSize, "hint", w.Hint)
	}
	f.run.contract = cmp.Or(f.last.Mark, f.run.contract)
	if f.batch.pages == 0 {
		f.batch.began = time.Now()
	}
	f.batch.short = f.sizer.short(r.page.Items) && (r.page.Items > 0 || !f.at.Continues(&f.e.rules))
	events := len(r.page.Events)
	if events == 0 {
		r.release()
		f.batch.pages++
		return nil
	}
	if f.state == bridge.StateIdle {
		f.setState(bridge.StateRunning, nil) // not caught up until the sink has the page
	}
	f.e.watchdog.wait()
	err := f.e.ports.Sink.Send(hard, r.page)
	f.e.watchdog.work()
	switch {
	case errors.Is(err, bridge.ErrRejected):
		f.at, f.found, f.known.Published = before, foundBefore, nil
		return err
	case err != nil:
		f.session.open = false
		took := time.Since(f.batch.began)
		f.sizer.committed(f.batch.pages+1, took, err)
		f.e.observePublish(took, err)
		return &sessionError{fmt.Errorf("send the page at cursor %s: %w", bridge.CursorHash(before.Cursor), err)}
	}
	f.batch.pages++
	f.batch.events += events
	return nil
}

// finish decides what follows a committed batch: the end of a bounded run, the
// next poll, or nothing while fetching continues.
func (f *follower) finish(last bool) {
	limits := f.e.cfg.Limits
	switch enough := f.run.limitReached(limits, f.committed.Checkpoint); {
	case enough != "":
		f.run.ended = f.e.cfg.words(enough)
	case !last:
		f.setState(bridge.StateRunning, nil)
	case f.e.cfg.window() && f.at.Drained:
		f.run.end(f.e, "the window ended", f.at.EndedEmpty)
	case limits.Once && f.at.Empty.Ended():
		f.run.end(f.e, "drained", 0)
	case limits.Once && !f.at.KnowsEnd(&f.e.rules) && f.at.Empty.Empties >= f.e.cfg.EmptyPages:
		f.run.end(f.e, "drained", f.at.Empty.Empties)
	case f.at.Continues(&f.e.rules):
		f.run.doubtEmpties(f.e, f.at.Empty.Empties)
		f.schedule.due = time.Now().Add(f.at.Empty.Wait(f.e.cfg.PollInterval))
		f.setState(bridge.StateRunning, nil)
	default:
		if f.run.contract == bridge.ContractUnknown {
			f.run.contract = bridge.ContractEmptyItems // empty pages ended the run, not a mark of the API
		}
		f.schedule.due = time.Now().Add(f.schedule.polls.wait(f.schedule.newEvents))
		f.schedule.newEvents = false
		f.setState(bridge.StateIdle, nil)
	}
}

// end ends the run at the end of the results. empties is how many consecutive empty
// pages were taken for the end, 0 if the API marked it.
func (r *run) end(e *Engine, what string, empties int) {
	how := "on its last page"
	if empties > 0 {
		how = fmt.Sprintf("after %d empty pages in a row", empties)
		e.log.Warn("the results ended with empty pages only: more may follow", "empty_pages", empties,
			"hint", e.cfg.words(bridge.HintEmptyEnd))
	}
	r.ended, r.endedEmpty = what+" "+how, empties
}

// confirmBadCursor ends a cross-check: the API works without a cursor, so the cursor
// itself is bad.
func (f *follower) confirmBadCursor(hard context.Context) error {
	f.discard()
	fault := *f.schedule.suspect
	f.schedule.suspect, f.schedule.outage = nil, nil
	if f.incidents.mayRecover(&f.e.cfg, &fault) {
		was := f.committed.Checkpoint
		next, bound, err := f.session.recoverInvalidCursor(hard, was, &fault)
		if err != nil {
			return err
		}
		if !next.Zero() {
			if err := f.move(hard, next); err != nil {
				return err
			}
			f.incidents.cursorRecoveries = append(f.incidents.cursorRecoveries, time.Now())
			f.log.Warn("cursor rejected by the API; resuming at another position and dropping events already published",
				"error", fault.Error(),
				"how", f.e.cfg.OnInvalidCursor, "from", was.Version.String(), "to", next.Version.String(),
				"cursor", bridge.CursorHash(next.Cursor),
				"overlap_from", bridge.InstantText(next.Overlap.From), "overlap_until", bridge.InstantText(next.Overlap.Until),
				"bound", bound)
			f.e.observe(bridge.Observation{What: bridge.ObserveReset, Code: observeRefused})
			return nil
		}
	}
	fault.Class, fault.Reason = bridge.Permanent, bridge.ReasonCursor
	if fault.Hint == "" && fault.HintCode == "" {
		fault.HintCode = bridge.HintCursorRejected
	}
	return f.wait(hard, verdict{wait: probeInterval, blocked: true}, &fault)
}
