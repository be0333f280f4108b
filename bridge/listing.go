package bridge

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ListingFormat is the Checkpoint.Format of a stream that follows windows. A version that
// knows only cursors rejects this format: otherwise it would send the Watermark to the API.
const ListingFormat = 2

// FollowWindows is the Origin.Follow of a stream that follows windows of time instead of
// the API's cursor.
const FollowWindows = "windows"

// Watermark is the cursor of a stream that follows windows. All items that the API listed
// before At are published. Part counts the published pages of the window at At.
type Watermark struct {
	// At is in milliseconds since the epoch, whole seconds.
	At   int64
	Part int
}

const watermarkPrefix = "w1:"

// Cursor returns the text of the watermark.
func (w Watermark) Cursor() string {
	text := watermarkPrefix + time.UnixMilli(w.At).UTC().Format(time.RFC3339)
	if w.Part > 0 {
		text += "+" + strconv.Itoa(w.Part)
	}
	return text
}

// ParseWatermark parses the result of Cursor.
func ParseWatermark(cursor string) (w Watermark, ok bool) {
	at, part, parts := strings.Cut(strings.TrimPrefix(cursor, watermarkPrefix), "+")
	t, err := time.Parse(time.RFC3339, at)
	if err == nil && parts {
		w.Part, err = strconv.Atoi(part)
	}
	w.At = t.UnixMilli()
	return w, err == nil && w.Cursor() == cursor
}

// RangePrefix begins the cursors of ranges of a list that is followed by windows.
const RangePrefix = "r1:"

// Listed reports whether a cursor is a Watermark or the cursor of a range, not an API's.
func Listed(cursor string) bool {
	_, ok := ParseWatermark(cursor)
	return ok || strings.HasPrefix(cursor, RangePrefix)
}

// Watermark returns the watermark of p, for a stream that follows windows. ok is false if
// the cursor is not a watermark.
func (p *Position) Watermark() (w Watermark, ok bool) {
	if p.Cursor == "" {
		return Watermark{At: p.Start - p.Start%1000}, true
	}
	return ParseWatermark(p.Cursor)
}

// CheckTarget returns why a stream cannot be reset to t, or nil. A cursor belongs to one
// way to follow an API, and windows begin at a time. A stream with an end has one start:
// see Origin.Same.
func (o *Origin) CheckTarget(t Target) error {
	windows := o.Follow == FollowWindows
	_, watermark := ParseWatermark(t.Cursor)
	switch {
	case windows && t.Cursor == "" && t.Start == 0:
		return errors.New("EXPORT_FOLLOW=windows requires a time to begin at: reset to a time instead")
	case t.Cursor != "" && watermark != windows:
		return fmt.Errorf("the cursor does not fit EXPORT_FOLLOW=%s: reset to a time instead",
			cmp.Or(o.Follow, "cursor"))
	case o.End != 0 && t.Start != o.Start:
		return fmt.Errorf("with EXPORT_END the stream begins at EXPORT_START, which is %s: for %s set EXPORT_START, "+
			"then reset to that time", o.StartText(), BoundText(t.Start))
	}
	return nil
}

// Listing is the state of the topic as a stream that follows windows knows it. A reset that
// publishes everything again begins a new one.
type Listing struct {
	// Floor is the watermark at which the listing began, in milliseconds since the
	// epoch. Nothing before it is listed.
	Floor int64 `json:"floor"`
	// Reach is how far before the watermark items may be listed again, in milliseconds;
	// 0 before the first window.
	Reach int64 `json:"reach,omitempty"`
	// Marks are earlier watermarks, oldest first, at least one.
	Marks []ListingMark `json:"marks"`
	// Ahead is set while only a part of a window is published. It is a time after the
	// latest item of that part, in milliseconds since the epoch. The window may be listed
	// again as several shorter ones.
	Ahead int64 `json:"ahead,omitempty"`
	// Gap is the watermark from which events may be missing, in milliseconds since the
	// epoch, until a reset; 0 for none. See Page.Gap.
	Gap int64 `json:"gap,omitempty"`
	// Again is set after a reset within the look-back. It is a time in milliseconds since
	// the epoch. An item of this or a later time counts as published only if its record is
	// after the ends of Behind, the topics at the reset. Earlier items, which may be listed
	// late, count as before.
	Again  int64        `json:"again,omitempty"`
	Behind []TopicState `json:"behind,omitempty"`
}

// ListingMark is the extent of the topics before the window at a watermark was published. A
// mark without topics stands for the records since that time: the stream followed a cursor
// until then.
type ListingMark struct {
	// At is the watermark, in milliseconds since the epoch.
	At     int64        `json:"at"`
	Topics []TopicState `json:"topics,omitempty"`
}

// BeginListing returns the Listing of a stream that begins to list at a watermark. Only
// records after the ends of topics count as published.
func BeginListing(at int64, topics []TopicState) *Listing {
	return &Listing{Floor: at, Marks: []ListingMark{{At: at, Topics: Extents(topics)}}}
}

// Reset returns the Listing after a reset of a stream from one watermark to another.
// position is the stream's position in milliseconds since the epoch. Reset returns nil, so
// that a new Listing begins, in three cases: nothing before to is listed any more, l begins
// after to, or to is after position. In the last case, the Listing would leave out events
// that are not published yet. Behind is still unknown.
func (l *Listing) Reset(from, to Watermark, position int64, lookBack time.Duration) *Listing {
	if l == nil || to.At > max(from.At, position) {
		return nil
	}
	first := l.first(from.At, lookBack) // older marks are not needed
	next := &Listing{Floor: max(l.Floor, from.At-lookBack.Milliseconds()), Marks: l.Marks[first : first+1], Again: to.At}
	if to.At <= max(l.Lowest(), next.Lowest()) {
		return nil
	}
	return next
}

// WithGap returns the Listing with a Gap at a watermark, unless it has a Gap already; 0
// removes the Gap. l may be nil.
func (l *Listing) WithGap(at int64) *Listing {
	if l == nil {
		return nil
	}
	next := *l
	if next.Gap == 0 || at == 0 {
		next.Gap = at
	}
	return &next
}

const (
	// marksPerLookBack bounds the number of marks in a checkpoint.
	marksPerLookBack = 4
	// ListingMargin is the time by which a look-back may grow, in milliseconds, because
	// windows, their bounds and the API's clock are rounded to whole seconds.
	ListingMargin = 5000
)

// Moved returns the Listing after a page that moves the stream from one watermark to the
// next. The items of the page are before newest. topics are the topics before the page.
func (l *Listing) Moved(from, to Watermark, newest int64, topics []TopicState, lookBack time.Duration) *Listing {
	next := *l
	if to.Part > 0 {
		next.Ahead = max(next.Ahead, newest)
	}
	next.Reach = lookBack.Milliseconds()
	gap := max(1, lookBack.Milliseconds()/marksPerLookBack)
	// Without known topics the whole topic would be read. A mark also requires that no page
	// of its window is published.
	begins := from.Part == 0 && from.At >= l.Ahead
	if begins && len(topics) > 0 && from.At-next.Marks[len(next.Marks)-1].At >= gap {
		next.Marks = append(slices.Clip(next.Marks), ListingMark{At: from.At, Topics: Extents(topics)})
	}
	if to.At >= next.Ahead {
		next.Ahead = 0
	}
	next.Marks = next.Marks[next.first(to.At, lookBack):]
	if next.Marks[0].At >= next.Again { // events published before the reset no longer count
		next.Again, next.Behind = 0, nil
	}
	return &next
}

// Lowest returns the earliest time from which windows list, in milliseconds since the
// epoch: records before the first mark are not known. After the look-back was raised,
// windows have its whole length only after the watermark has moved on.
func (l *Listing) Lowest() int64 {
	if first := l.Marks[0].At; first > l.Floor {
		return first + ListingMargin
	}
	return l.Floor
}

// Since returns where to read the topic for the items that windows may list again after a
// watermark: from the newest mark that is older by a look-back. An item was published by
// the first window that ended after its place in the list.
func (l *Listing) Since(at int64, lookBack time.Duration) Since {
	mark := l.Marks[l.first(at, lookBack)]
	if len(mark.Topics) == 0 {
		return Since{Time: time.UnixMilli(mark.At)}
	}
	return Since{Topics: mark.Topics, EndsOnly: true}
}

// AsFound returns the Listing with the extents of the topics found, which have lost
// records. Later records must be read back. l may be nil.
func (l *Listing) AsFound(found []TopicState) *Listing {
	if l == nil {
		return nil
	}
	next := *l
	next.Marks, next.Behind = slices.Clone(l.Marks), AsFound(l.Behind, found)
	for i := range next.Marks {
		next.Marks[i].Topics = AsFound(next.Marks[i].Topics, found)
	}
	return &next
}

// Settled returns the time, in milliseconds since the epoch, before which the stream
// publishes no more events. It is the PositionTime, or for windows the time before which no
// window lists again.
func (c *Checkpoint) Settled() int64 {
	if c.Listing == nil {
		return c.PositionTime
	}
	w, ok := ParseWatermark(c.Cursor)
	if !ok || c.Listing.Reach == 0 {
		return c.Listing.Floor
	}
	return min(c.PositionTime, w.At-c.Listing.Reach)
}

// first returns the index of the newest mark that is old enough for a watermark.
func (l *Listing) first(at int64, lookBack time.Duration) int {
	i := len(l.Marks) - 1
	for i > 0 && l.Marks[i].At > at-lookBack.Milliseconds()-ListingMargin {
		i--
	}
	return i
}

// Extents returns the topics with only the fields that a mark needs.
func Extents(topics []TopicState) []TopicState {
	var all []TopicState
	for _, t := range topics {
		all = append(all, TopicState{Name: t.Name, ID: t.ID, DeadLetters: t.DeadLetters, Partitions: t.Partitions,
			End: t.End, Ends: t.Ends})
	}
	return all
}
