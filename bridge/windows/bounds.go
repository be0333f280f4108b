package windows

import (
	"context"
	"errors"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/pageread"
)

// far is how far an event lies outside of the range that lists it, in milliseconds, that
// makes a bound doubtful.
const far = 60_000

// CheckBounds asks the API for two ranges of a second: of now, and before a time in
// milliseconds since the epoch. It returns a Permanent Fault if the API ignores one of
// the bounds: a listing would be of everything then, and a restart would publish old
// events again. An event far outside of its range proves that only if a second range
// lists it too: the API may select by another time than the event's own. A request may
// take timeout, as engine.Config.FetchTimeout. seen, if not nil, is called with each page.
func CheckBounds(ctx context.Context, source bridge.Source, before int64, timeout time.Duration, seen func(*bridge.Page)) error {
	b := bounds{source: source, timeout: timeout, seen: seen}
	now := floor(time.Now().UnixMilli())
	ignored, err := b.ignored(ctx, now, 3*unit, func(e *bridge.Event) bool { return e.Time < now-far })
	switch {
	case err != nil:
		return err
	case ignored:
		return fault(bridge.Permanent, "bounds", bridge.ReasonConfig, "set EXPORT_START_PARAM and EXPORT_TIME_FORMAT as the API expects them",
			"the API ignores the start of a range: the events of now begin with old ones")
	}
	ignored, err = b.ignored(ctx, before-unit, -10*unit, func(e *bridge.Event) bool { return e.Time > before+far })
	if err == nil && ignored {
		return fault(bridge.Permanent, "bounds", bridge.ReasonConfig, "set EXPORT_END_PARAM and EXPORT_TIME_FORMAT as the API expects them",
			"the API ignores the end of a range: it lists events from behind it")
	}
	return err
}

type bounds struct {
	source  bridge.Source
	timeout time.Duration
	seen    func(*bridge.Page)
}

// ignored reports whether the second at a time, and the one that is apart from it, both
// list an event that is far outside.
func (b *bounds) ignored(ctx context.Context, at, apart int64, outside func(*bridge.Event) bool) (bool, error) {
	suspects := make(map[string]struct{})
	for _, start := range []int64{at, at + apart} {
		if len(suspects) == 0 && start != at {
			return false, nil
		}
		if apart > 0 { // now
			bridge.Sleep(ctx, time.Until(time.UnixMilli(start)))
		}
		p, err := pageread.Once(ctx, b.source, bridge.Position{Start: max(0, start), End: max(0, start) + unit, Window: true}, b.timeout)
		if f, ok := errors.AsType[*bridge.Fault](err); ok && f.Class == bridge.BadCursor {
			return false, nil // an API that refuses such a range does not ignore it
		}
		if err != nil {
			return false, err
		}
		if b.seen != nil {
			b.seen(p)
		}
		for i := range p.Events {
			e := &p.Events[i]
			if _, again := suspects[string(e.Raw)]; again {
				p.Release()
				return true, nil
			}
			if start == at && e.Defect == bridge.DefectNone && e.Time != bridge.NoTime && outside(e) {
				suspects[string(e.Raw)] = struct{}{}
			}
		}
		p.Release()
	}
	return false, ctx.Err()
}
