package windows

import (
	"context"
	"errors"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/pageread"
)

// An event that lies far outside of the range that lists it, in milliseconds, makes a
// bound doubtful. The range in the future is ahead of now.
const (
	far   = 60_000
	ahead = 3_600_000
)

// CheckBounds asks the API for ranges of a second, in the future and in 1970. They have no
// event if the API heeds the bounds. If the API rejects these ranges, CheckBounds asks for
// the present second, and for the second before the time before, in milliseconds since the
// epoch. An event far outside of those proves that a bound is ignored only if a second
// range lists it too: the API may select by another time than the event's own. A bound
// that is ignored is a Permanent Fault: every listing would list everything, and a restart
// would publish old events again. Without an end it checks the start alone, without a start
// it asks for one page. A request may take Timeout. seen, if not nil, is called with each
// page.
func (c *Config) CheckBounds(ctx context.Context, source bridge.Source, before int64, seen func(*bridge.Page)) error {
	b := bounds{source: source, cfg: c, seen: seen}
	if c.NoStart {
		_, _, err := b.lists(ctx, unit, func(*bridge.Event) bool { return false })
		return err
	}
	now := floor(time.Now().UnixMilli())
	early := func(e *bridge.Event) bool { return e.Time < now-far }
	ignored, rejected, err := b.lists(ctx, now+ahead, early)
	if rejected {
		ignored, err = b.listTwice(ctx, now, now+3*unit, early)
	}
	switch {
	case err != nil:
		return err
	case ignored != nil:
		return bridge.Blockf("bounds", bridge.ReasonConfig,
			"set EXPORT_START_PARAM and EXPORT_TIME_FORMAT as the API expects them",
			"the API ignores the start of a range: a listing from now on has old events")
	case c.NoEnd:
		return nil
	}
	late := func(e *bridge.Event) bool { return e.Time > far }
	if ignored, rejected, err = b.lists(ctx, unit, late); rejected {
		ignored, err = b.listTwice(ctx, before-unit, before-10*unit,
			func(e *bridge.Event) bool { return e.Time > before+far })
	}
	if err == nil && ignored != nil {
		return bridge.Blockf("bounds", bridge.ReasonConfig,
			"set EXPORT_END_PARAM and EXPORT_TIME_FORMAT as the API expects them",
			"the API ignores the end of a range: it lists later events")
	}
	return err
}

type bounds struct {
	source bridge.Source
	cfg    *Config
	seen   func(*bridge.Page)
}

// lists returns the events that the API lists for the second at a time, but that are
// outside that second; nil if there are none. rejected is true if the API rejects such a
// range; err is the reason.
func (b *bounds) lists(ctx context.Context, at int64,
	outside func(*bridge.Event) bool) (found map[bridge.ItemKey]struct{}, rejected bool, err error) {
	p, err := pageread.Once(ctx, b.source, b.cfg.Range(at, at+unit), b.cfg.Timeout)
	if err != nil {
		f := bridge.FaultOf(err)
		return nil, f.Class == bridge.BadCursor || f.Class == bridge.Permanent && f.Reason == bridge.ReasonConfig, err
	}
	defer p.Release()
	if b.seen != nil {
		b.seen(p)
	}
	for i := range p.Events {
		if e := &p.Events[i]; e.Defect == bridge.DefectNone && e.Time != bridge.NoTime && outside(e) {
			if found == nil {
				found = make(map[bridge.ItemKey]struct{})
			}
			found[e.ItemKey()] = struct{}{}
		}
	}
	return found, false, nil
}

// listTwice returns the events outside of two ranges that the API lists for both. It fails
// if the API rejects the first range. A rejected second range has no events.
func (b *bounds) listTwice(ctx context.Context, first, second int64,
	outside func(*bridge.Event) bool) (map[bridge.ItemKey]struct{}, error) {
	found, _, err := b.lists(ctx, max(unit, first), outside)
	if err != nil || found == nil {
		return nil, err
	}
	if second > first { // it is in the future
		bridge.Sleep(ctx, time.Until(time.UnixMilli(second)))
	}
	again, rejected, err := b.lists(ctx, max(unit, second), outside)
	if rejected {
		return nil, ctx.Err()
	}
	for k := range again {
		if _, ok := found[k]; ok {
			return again, err
		}
	}
	return nil, errors.Join(err, ctx.Err())
}
