package setup

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
)

// late reports by how much items were ingested after their time, and warns if a listing does
// not look back as far.
func late(items []exportapi.SampledItem, st *config.Stream) []finding {
	var most time.Duration
	known := 0
	for i := range items {
		if item := &items[i]; item.Ingested != 0 && item.Time != bridge.NoTime && item.Defect == bridge.DefectNone {
			known++
			most = max(most, time.Duration(item.Ingested-item.Time)*time.Millisecond)
		}
	}
	if !st.Windows.Windows() || known == 0 {
		return nil
	}
	text := fmt.Sprintf("%s of the first %d say when the API took them in: at most %s after their time",
		cli.Counted(known, "item"), len(items), most.Round(time.Second))
	if reach := st.Windows.Reach(); most > reach {
		text += fmt.Sprintf("; a listing reaches back %s", reach)
		return []finding{warn(text, "raise EXPORT_LOOK_BACK, or set EXPORT_LATE")}
	}
	return []finding{info(text)}
}

// rangeLimit matches the longest range of an API in the text of its error.
var rangeLimit = regexp.MustCompile(`(?i)\b(\d{1,4})[ -]?(d|days?|h|hours?|hrs?|m|min|minutes?)\b`)

// limitIn returns the longest range that a text names, 0 for none.
func limitIn(text string) time.Duration {
	m := rangeLimit.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	unit := map[byte]time.Duration{'d': 24 * time.Hour, 'h': time.Hour, 'm': time.Minute}[strings.ToLower(m[2])[0]]
	return time.Duration(n) * unit
}

// longest requests shorter ranges after the API has rejected the longest one with f: the
// range in the text of the error, or else a week, then a day. It adds the first range that
// the API accepts to f.
func (s *sampler) longest(ctx context.Context, at bridge.Position, f *finding) finding {
	tried := []time.Duration{7 * 24 * time.Hour, 24 * time.Hour}
	if said := limitIn(f.Text); said >= time.Minute {
		tried = []time.Duration{said}
	}
	asked := time.Duration(at.End-at.Start) * time.Millisecond
	for _, span := range tried {
		if at.Start == 0 || at.End == 0 || span >= asked {
			continue
		}
		shorter := at
		shorter.Start = at.End - span.Milliseconds()
		if _, other := s.read(ctx, shorter, exportapi.SampleSize, "items"); other == nil {
			f.Text += fmt.Sprintf("; a range of %s is listed, one of %s is not", plain(span), plain(asked))
			f.Hint = "set EXPORT_MAX_WINDOW=" + plain(span) + ", or more if the API lists that"
			break
		}
	}
	return *f
}

// plain formats a duration in hours if these are whole, else in minutes.
func plain(d time.Duration) string {
	if d = d.Round(time.Minute); d%time.Hour == 0 {
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dm", d/time.Minute)
}

// timeFormat returns the format of bounds, other than the setting's, with which the API lists
// a range of one second correctly; "" if there is none. The range is that of an item in the
// middle. Without items far before and far after it, timeFormat returns "": it could not
// tell an API that ignores the bounds.
func (s *sampler) timeFormat(ctx context.Context, items []exportapi.SampledItem) string {
	const far = 5000
	times := slices.Sorted(slices.Values(timesOf(items)))
	if len(times) == 0 {
		return ""
	}
	middle := times[len(times)/2]
	if times[0] > middle-far || times[len(times)-1] < middle+far {
		return ""
	}
	at := s.st.Windows.Range(middle/1000*1000, middle/1000*1000+1000)
	return s.otherFormat(ctx, at, func(i exportapi.SampledItem) bool {
		return i.Time != bridge.NoTime && i.Time > middle-far && i.Time < middle+far
	})
}

// otherFormat returns the format of bounds, other than the setting's, with which the API
// lists items of a range and no other items; "" if there is none.
func (s *sampler) otherFormat(ctx context.Context, at bridge.Position, in func(exportapi.SampledItem) bool) string {
	for _, format := range []string{"ms", "s", "rfc3339", "rfc3339-seconds", "us"} {
		export := s.st.Export
		if format == export.TimeFormat {
			continue
		}
		export.TimeFormat, export.AnyOrder = format, true
		client, err := exportapi.New(export)
		if err != nil {
			continue
		}
		page, f := (&sampler{client: exportapi.Inspector{Client: client}, st: s.st}).read(ctx, at,
			exportapi.SampleSize, "items")
		client.Close()
		out := func(i exportapi.SampledItem) bool { return !in(i) }
		if f == nil && len(page.Items) > 0 && !slices.ContainsFunc(page.Items, out) {
			return format
		}
	}
	return ""
}

// listing returns the format of bounds, other than the setting's, with which the API lists
// items from the start of a position on; "" if there is none, or no start.
func (s *sampler) listing(ctx context.Context, at bridge.Position) string {
	if at.Start == 0 {
		return ""
	}
	return s.otherFormat(ctx, at, func(i exportapi.SampledItem) bool {
		return i.Time == bridge.NoTime || i.Time >= at.Start-1000
	})
}
