package setup

import (
	"cmp"
	"context"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/cmd/internal/cli"
)

// form reports a list whose cursor does not lead to new items, by pages of any size: the
// bridge waits for more items before it blocks the stream.
func (s *sampler) form(ctx context.Context, pages ...exportapi.Sample) []finding {
	if s.st.Windows.Windows() {
		return nil
	}
	n, falls := descending(pages)
	if !falls {
		return nil
	}
	text := "the first " + cli.Counted(n, "item") + " are listed newest first: if all are, the cursor leads away from new events"
	return []finding{warn(text, exportapi.HintWindows), s.ranges(ctx, pages[0].Items)}
}

// descending reports whether the times of the pages fall, and never rise, at least three times: fewer items may fall by chance.
func descending(pages []exportapi.Sample) (dated int, falls bool) {
	fell, last := 0, bridge.NoTime
	for i := range pages {
		for j := range pages[i].Items {
			item := &pages[i].Items[j]
			switch {
			case item.Time == bridge.NoTime || item.Defect != bridge.DefectNone:
				continue
			case last == bridge.NoTime:
			case item.Time > last:
				return 0, false
			case item.Time < last:
				fell++
			}
			last = item.Time
			dated++
		}
	}
	return dated, fell >= 3
}

// ranges checks whether a list that the cursor does not follow can be followed by windows.
func (s *sampler) ranges(ctx context.Context, items []exportapi.SampledItem) finding {
	export := s.st.Export
	if err := cmp.Or(export.Starts(), export.Bounded()); err != nil {
		return info("ranges of time are not checked: "+err.Error(),
			"if the API has parameters for a start and an end, set EXPORT_START_PARAM, EXPORT_END_PARAM and EXPORT_TIME_FORMAT")
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
		f.Hint = "set EXPORT_FOLLOW=windows and EXPORT_START, for example -90d"
	}
	return f
}
