//go:build unix

package e2e_test

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
)

// The ranges of a stream that follows windows, for tests.
const (
	windowsLookBack = 5 * time.Second
	windowsSettle   = time.Second
	windowsRate     = 200 // events per second
)

// auditCase is an audit list and how late its events appear.
type auditCase struct {
	form string
	lag  time.Duration
	// offset is how far the API's clock is ahead of the machine's.
	offset time.Duration
	// within is the range of EXPORT_LATE, listed each minute; the look-back has its default
	// then. 0 stands for the short ranges of tests.
	within time.Duration
	// rules hide private data, from the start on.
	rules privacy
}

func (c auditCase) String() string { return fmt.Sprint(c.form, " lag ", c.lag) }

var auditCases = []auditCase{
	{form: "audit-list", lag: 3 * time.Second, offset: 10 * time.Second,
		rules: privacy{drop: "/event/context", hash: "/actor/id,/event/userId,/event/payload/session/userId",
			mask: "/event/sessionId:last4", keys: 1}},
	{form: "audit-list-url", lag: 3 * time.Second},
	{form: "audit-list-offset", lag: 3 * time.Second, offset: -time.Hour},
	{form: "audit-list-skip", lag: 3 * time.Second},
	// Longer than what is listed again: some events are never seen.
	{form: "audit-list", lag: 10 * time.Second},
}

// TestE2EProofWindows follows audit lists, which come newest first, through kills, a
// flushed Redis and errors of the API.
func TestE2EProofWindows(t *testing.T) {
	t.Parallel()
	kills, seed := int(size(t, "E2E_KILLS", 8, 8)), seedOf(t)
	each(t, servers.Real(t), auditCases, func(t *testing.T, c auditCase) {
		kills := (kills + len(auditCases) - 1) / len(auditCases)
		s := windowsStage(t, startServers(t, owned{redis: true}), c)
		s.store = s.redis()
		began, d := time.Now(), newDeaths(s, seed+uint64(slices.Index(auditCases, c)), 300)
		d.atPoint(pointEnded)
		d.most = 2
		for n := range kills - 1 {
			d.one()
			if n == (kills-1)/2 {
				must.Do(t, s.store.FlushAll(t.Context()).Err())
			}
		}
		took := time.Since(began)
		run := s.run()
		eventually(t, stepTimeout, "the end of the list", func() bool { return run.metric("caught_up") == 1 })
		run.awaitMore(run.published() + 4*windowsRate) // where events appear late
		run.stop()
		s.finish()
		got := s.readForm()
		missed, parts := s.wantListed(got, c, time.Time{}, t.Errorf)
		if s.private != nil {
			s.private.wantAll()
			s.wantHidden(len(got.copies))
		}
		t.Logf("e2e: proof, windows: %s, %d kills in %.1f s (%s), %d events: %d twice, %d too late to be seen, "+
			"%d checkpoints within windows; E2E_SEED=%d", c, kills, took.Seconds(), ways(d.ways), got.records, got.twice(),
			missed, parts, seed)
	})
}

// windowsStage is a stage that follows an audit list whose requests fail at times.
func windowsStage(t *testing.T, v *backends, c auditCase) *stage {
	t.Helper()
	for _, build := range []func() (string, error){buildProof, buildDev} { // before the export begins to grow
		must.Get(build())(t)
	}
	events, rate := 10_000, windowsRate // the first window takes several transactions
	if c.within > 0 {
		events, rate = int((2*c.lag).Seconds())*lateRate, lateRate
	}
	form, _ := exportsim.FormNamed(c.form)
	config := exportsim.Config{Form: form, Rate: float64(rate), Events: events, Lag: c.lag}
	config.Start = time.Now().Add(c.offset - time.Duration(events)*time.Second/time.Duration(rate)).Truncate(time.Second)
	s := proofStage(t, v, config)
	s.simulateForm(c.form, "--lag", c.lag.String(), "--clock-offset", c.offset.String(), "--fail",
		"500=2%,truncate=1%,429=0.5%")
	if c.rules.keys > 0 {
		s.only(c.rules)
	}
	s.settings["EXPORT_PREFETCH_PAGES"] = "2"
	s.settings["EXPORT_PAGE_SIZE"] = "100"
	s.settings["EXPORT_START"] = config.Start.UTC().Format(time.RFC3339)
	s.settings["EXPORT_LOOK_BACK"], s.settings["EXPORT_SETTLE"] = windowsLookBack.String(), windowsSettle.String()
	if c.within > 0 {
		s.settings["EXPORT_PAGE_SIZE"] = "1000"
		s.settings["EXPORT_LOOK_BACK"], s.settings["EXPORT_LATE"] = lateLookBack.String(), c.within.String()+"/1m"
	}
	return s
}

// wantListed wants in the topic, once, each event that a window up to the watermark has
// listed, and events in the order of time unless one appeared after the other. If asOf is
// not zero, those that appeared after it may still be missing. It returns how many events are not in the topic because
// they appeared too late, and how many checkpoints are within windows.
func (s *stage) wantListed(
	c *contents, of auditCase, asOf time.Time, errorf func(format string, args ...any),
) (missed, parts int) {
	s.t.Helper()
	checkpoint := s.checkpoint()
	position := checkpoint.Position()
	mark, ok := position.Watermark()
	if !ok {
		errorf("the cursor %q is no watermark", checkpoint.Cursor)
		return 0, 0
	}
	upTo, lost, within := time.UnixMilli(mark.At), 0, cmp.Or(of.within, windowsLookBack)
	for i := 0; s.truth.EventTime(i).Before(upTo); i++ {
		if i < len(c.copies) && c.copies[i] > 0 {
			continue
		}
		lastListed := s.truth.EventTime(i).Add(within)
		if lastListed.After(upTo) {
			lastListed = upTo
		}
		visible := s.truth.VisibleAt(i)
		if !asOf.IsZero() && visible.After(asOf) {
			continue
		}
		if visible.After(lastListed.Add(windowsSettle)) {
			missed++
		} else if lost++; lost <= maxComplaints {
			errorf("event %d of %s is lost, it appeared %s after its time; the watermark is %s",
				i, s.truth.EventTime(i), visible.Sub(s.truth.EventTime(i)), upTo)
		}
	}
	if lost > 0 || c.twice() > 0 || c.wrong > 0 {
		errorf("%d events are lost, %d records are copies, the first of event %d, %d records are wrong",
			lost, c.twice(), slices.IndexFunc(c.copies, func(n int) bool { return n > 1 }), c.wrong)
	}
	for partition, lane := range c.lanes {
		s.wantByTime(partition, lane, of, errorf)
	}
	l := newLedger("events", errorf)
	l.anyOrder = true
	s.eachRecord(s.topic, l.addEvent)
	s.eachRecord(s.settings["KAFKA_CHECKPOINT_TOPIC"], l.addCheckpoint)
	l.judge()
	for _, e := range l.entries {
		if at, _ := bridge.ParseWatermark(e.Cursor); at.Part > 0 {
			parts++
		}
	}
	return missed, parts
}

// wantByTime judges the order of a partition. An event may come after a later one that
// appeared before it. One that appears after the look-back waits for a longer listing.
func (s *stage) wantByTime(partition int32, lane []int, of auditCase, errorf func(format string, args ...any)) {
	s.t.Helper()
	var before []int // by time, as the index is
	complaints := 0
	for _, i := range lane {
		at := sort.SearchInts(before, i)
		waits := of.within > 0 && s.truth.VisibleAt(i).Sub(s.truth.EventTime(i)) > lateLookBack
		for _, later := range before[at:] {
			if !waits && later > i && !s.truth.VisibleAt(i).After(s.truth.VisibleAt(later)) {
				if complaints++; complaints <= maxComplaints {
					errorf("partition %d has event %d after event %d, which is later and appeared later", partition, i, later)
				}
				break
			}
		}
		before = slices.Insert(before, at, i)
	}
}
