package windows

import (
	"context"
	"errors"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/pageread"
)

// far is how far an event lies outside of the range that lists it, in milliseconds, that
// makes a bound doubtful, and ahead how far the future is.
const (
	far   = 60_000
	ahead = 3_600_000
)

// CheckBounds asks the API for ranges of a second: in the future and in 1970, which have
// no event if the API heeds the bounds. If it rejects such a range, it asks for now, and
// for the second before a time in milliseconds since the epoch; an event far outside of
// those proves that a bound is ignored only if a second range lists it too: the API may
// select by another time than the event's own. It returns a Permanent Fault for a bound
// that is ignored: a listing would be of everything then, and a restart would publish old
// events again. Without an end it checks the start alone, without a start it asks for one
// page. A request may take Timeout. seen, if not nil, is called with each page.
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
		return fault(bridge.Permanent, "bounds", bridge.ReasonConfig,
			"set EXPORT_START_PARAM and EXPORT_TIME_FORMAT as the API expects them",
			"the API ignores the start of a range: the events of now begin with old ones")
	case c.NoEnd:
		return nil
	}
	late := func(e *bridge.Event) bool { return e.Time > far }
	if ignored, rejected, err = b.lists(ctx, unit, late); rejected {
		ignored, err = b.listTwice(ctx, before-unit, before-10*unit,
			func(e *bridge.Event) bool { return e.Time > before+far })
	}
	if err == nil && ignored != nil {
		return fault(bridge.Permanent, "bounds", bridge.ReasonConfig,
			"set EXPORT_END_PARAM and EXPORT_TIME_FORMAT as the API expects them",
			"the API ignores the end of a range: it lists events from behind it")
	}
	return err
}

type bounds struct {
	source bridge.Source
	cfg    *Config
	seen   func(*bridge.Page)
}

// lists returns the events that the second at a time lists although they are outside, nil
// if there are none. rejected is true if the API rejects such a range, as err says.
func (b *bounds) lists(ctx context.Context, at int64,
	outside func(*bridge.Event) bool) (found map[bridge.ItemKey]struct{}, rejected bool, err error) {
	p, err := pageread.Once(ctx, b.source, b.cfg.Range(at, at+unit), b.cfg.Timeout)
	if err != nil {
		f, ok := errors.AsType[*bridge.Fault](err)
		return nil, ok && (f.Class == bridge.BadCursor || f.Class == bridge.Permanent && f.Reason == bridge.ReasonConfig), err
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

// listTwice returns the events that two ranges list although they are outside of both. An
// API that rejects the first one takes no range; a second one that it rejects lists none.
func (b *bounds) listTwice(ctx context.Context, first, second int64,
	outside func(*bridge.Event) bool) (map[bridge.ItemKey]struct{}, error) {
	found, _, err := b.lists(ctx, max(unit, first), outside)
	if err != nil || found == nil {
		return nil, err
	}
	if second > first { // of now
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
