package setup

import (
	"cmp"
	"context"
	"slices"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/cmd/internal/cli"
)

// form reports a list that is newest first, whose cursor does not lead to new items. It
// judges by a few items; the bridge reads more of them before it blocks the stream.
func (s *sampler) form(ctx context.Context, pages ...exportapi.Sample) []finding {
	if s.st.Windows.Windows() {
		return nil
	}
	n, falls := descending(pages)
	if !falls {
		return nil
	}
	f := warn("the first "+cli.Counted(n, "item")+" are listed newest first: "+
		"if all are, the cursor leads to older events, not to new ones", exportapi.HintWindows)
	return []finding{f, s.ranges(ctx, pages[0].Items)}
}

// descending reports whether the times of the pages never rise, and fall at least three
// times: the times of fewer items may fall by chance.
func descending(pages []exportapi.Sample) (dated int, falls bool) {
	var times []int64
	for i := range pages {
		times = append(times, timesOf(pages[i].Items)...)
	}
	newestFirst := slices.IsSortedFunc(times, func(a, b int64) int { return cmp.Compare(b, a) })
	return len(times), newestFirst && len(slices.Compact(slices.Clone(times))) > 3
}

// timesOf returns the times of the items that have one and are readable.
func timesOf(items []exportapi.SampledItem) (times []int64) {
	for i := range items {
		if items[i].Time != bridge.NoTime && items[i].Defect == bridge.DefectNone {
			times = append(times, items[i].Time)
		}
	}
	return times
}

// hintFollow is the remedy of a list that a cursor does not follow.
const hintFollow = "set EXPORT_FOLLOW=windows and EXPORT_START, for example -90d"

// ranges checks whether windows can follow a list that its cursor does not follow.
func (s *sampler) ranges(ctx context.Context, items []exportapi.SampledItem) finding {
	export := s.st.Export
	if err := cmp.Or(export.Starts(), export.Bounded()); err != nil {
		return info("ranges of time are not checked: "+err.Error(), "if the API has parameters for a start and an end, "+
			"set EXPORT_START_PARAM, EXPORT_END_PARAM and EXPORT_TIME_FORMAT")
	}
	export.AnyOrder = true
	client, err := exportapi.New(export)
	if err != nil {
		return failure(err)
	}
	defer client.Close()
	f := (&sampler{client: exportapi.Inspector{Client: client}, st: s.st}).bounds(ctx, items)
	switch f.Level {
	case levelFail: // the settings follow the cursor
		f.Level = levelInfo
	case levelOK:
		f.Hint = hintFollow
	}
	return f
}
