package bridge

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// CheckpointFormat is the version of the checkpoint format that this program writes for
// a stream that follows a cursor: see Origin.Format. It reads all versions up to
// ListingFormat and rejects newer ones.
const CheckpointFormat = 1

// MaxCursor is the longest cursor, in bytes, that the engine follows.
const MaxCursor = 16 << 10

// Mode is the delivery guarantee under which a checkpoint was written.
type Mode string

// The delivery modes.
const (
	AtLeastOnce Mode = "at-least-once"
	ExactlyOnce Mode = "exactly-once"
)

// Kind is the reason for a commit.
type Kind string

// The kinds of commits. Only KindData moves the counters. KindRewind is the kind of a
// Change only: its commit is a KindReset.
const (
	KindStart     Kind = "start"
	KindData      Kind = "data"
	KindHeartbeat Kind = "heartbeat"
	KindReset     Kind = "reset"
	KindRewind    Kind = "rewind"
	KindPause     Kind = "pause"
	KindResume    Kind = "resume"
	// KindRoutes is the first commit after a change of the routes.
	KindRoutes Kind = "routes"
)

// Forever is Checkpoint.PausedUntil of a pause without an end.
const Forever int64 = -1

// Origin is the query of the export. A cursor belongs to its origin: resource, event
// filter, ids and end must not change while the stream follows the cursor.
type Origin struct {
	// Resource is the exported resource, Events the event types, all if empty.
	Resource string   `json:"resource"`
	Events   []string `json:"events,omitempty"`
	// Start is where the export begins without a cursor, in milliseconds since the
	// epoch; 0 is the earliest. It may change: it applies only once.
	Start int64 `json:"start,omitempty"`
	// End bounds a stateless window in milliseconds since the epoch, exclusive; 0 means
	// an endless stream.
	End int64 `json:"end,omitempty"`
	// ItemID names the ids of items: JSON pointers separated by commas, or "none". Older
	// versions write an empty ItemID for the resource's default. The tail depends on it.
	ItemID string `json:"item_id,omitempty"`
	// Follow is FollowWindows, or empty for a cursor.
	Follow string `json:"follow,omitempty"`
	// Request is the fingerprint of the API request that returned the cursor. Older
	// versions write none, and drop it.
	Request Fingerprint `json:"request,omitempty"`
}

// Same reports whether a cursor of o can be followed with the settings of p.
func (o Origin) Same(p Origin) bool {
	return o.Resource == p.Resource && o.ItemID == p.ItemID && o.Follow == p.Follow && o.End == p.End &&
		slices.Equal(o.Events, p.Events) &&
		(o.End == 0 || o.Start == p.Start) // another start is another window
}

// Format returns the version of the format of a stream's checkpoints.
func (o *Origin) Format() int {
	if o.Follow == FollowWindows {
		return ListingFormat
	}
	return CheckpointFormat
}

// Outside reports whether the time of an event is outside the bounds of a window. This
// happens if the API selects events by another time, or ignores a bound.
func (o *Origin) Outside(e *Event) bool {
	dated := e.Defect == DefectNone && e.Time != NoTime
	return dated && o.End != 0 && (e.Time >= o.End || o.Start != 0 && e.Time < o.Start)
}

// Version is the place of a checkpoint in the order of commits: epoch first, then seq.
type Version struct {
	// Epoch counts the rewinds, resets, pauses and resumes of the stream. Seq counts the
	// commits since the last of these.
	Epoch int64 `json:"epoch"`
	Seq   int64 `json:"seq"`
}

// Compare returns -1, 0 or 1 if v is before, at or after other.
func (v Version) Compare(other Version) int {
	return cmp.Or(cmp.Compare(v.Epoch, other.Epoch), cmp.Compare(v.Seq, other.Seq))
}

// Next returns the version of the next commit in the same epoch.
func (v Version) Next() Version { return Version{Epoch: v.Epoch, Seq: v.Seq + 1} }

func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Epoch, v.Seq) }

// Change records the command that caused a checkpoint.
type Change struct {
	// ID, Kind, Who and Reason are those of the command. The Kind of a reset to an earlier
	// entry of the history is KindRewind.
	ID     string `json:"id"`
	Kind   Kind   `json:"kind"`
	Who    string `json:"who,omitempty"`
	Reason string `json:"reason,omitempty"`
	// From is the version that the command was applied to.
	From Version `json:"from"`
	// To is the commit that the stream was moved to; nil if the target was no commit,
	// or if an older version applied the command.
	To *Version `json:"to,omitempty"`
	// At is when the command was applied, in milliseconds since the epoch.
	At int64 `json:"at"`
	// AcceptSource is that of the command.
	AcceptSource string `json:"accept_source,omitempty"`
	// After is set if the program itself caused the change. It is the id of the operator's
	// last command, whose answer the operator may still await.
	After string `json:"after,omitempty"`
	// Unread is set if the epoch continues from an Unread checkpoint, and no operator chose
	// its start. Older versions drop it.
	Unread bool `json:"unread,omitempty"`
}

// Moves reports whether the change moved the stream: a reset or a rewind begins another
// branch of the history, a pause or a resume does not.
func (c *Change) Moves() bool { return c.Kind == KindReset || c.Kind == KindRewind }

// RewindEnd is where a rewind ends: at the page whose cursor has this hash, or at the
// end of the results.
type RewindEnd struct {
	// CursorHash is the result of the function CursorHash.
	CursorHash string `json:"cursor_hash,omitempty"`
	// EventTime is 0. Older versions mark events up to this time.
	EventTime int64 `json:"event_time"`
	// Source is the source of the events published before the rewind.
	Source SourceIdentity `json:"source,omitzero"`
}

// Checkpoint is the committed position of a stream and everything needed to resume
// there. Redis and the checkpoint topic store its JSON form, which is a frozen,
// versioned format.
type Checkpoint struct {
	// Format is the version of the format, Origin.Format.
	Format int    `json:"v"`
	Stream string `json:"stream"` // the stream's name
	Version
	// Mode is the delivery mode, Kind the reason for the commit.
	Mode Mode `json:"mode"`
	Kind Kind `json:"kind"`
	// Cursor requests the next page, as the API returned it; empty requests the first
	// page.
	Cursor string `json:"cursor"`
	// Tail has the identities of the items that are already published from the page at
	// Cursor, while that page is the end of the results. In JSON it is one base64 string of
	// 12 bytes per item.
	Tail Tail `json:"tail,omitempty"`
	// Carried counts the items read after a page that did not list all of Tail. It is 0
	// while Tail belongs to the page at Cursor.
	Carried int `json:"carried,omitempty"`
	// Border describes the page before Cursor, and the first page.
	Border Border `json:"border,omitzero"`
	// Origin is the query that Cursor belongs to. Source is the identity of the export.
	Origin Origin         `json:"origin"`
	Source SourceIdentity `json:"source"`
	// Topic is the events' topic; empty if unknown.
	Topic string `json:"topic,omitempty"`
	// Topics are the sink's topics before this commit. Older versions write none.
	Topics []TopicState `json:"topics,omitempty"`
	// Routes is the Routes.Text that applies to the events after Cursor.
	Routes string `json:"routes,omitempty"`
	// RoutesChanged is the time, in milliseconds since the epoch, up to which events may have
	// been published by other routes than Routes; 0 if the routes never changed.
	RoutesChanged int64 `json:"routes_changed,omitempty"`
	// Events and Pages count the events and pages before Cursor, including dead letters and
	// events that routes dropped.
	Events int64 `json:"events"`
	Pages  int64 `json:"pages"`
	// Outside counts the events of a window that are Origin.Outside. Older versions do
	// not count them.
	Outside int64 `json:"outside_range,omitempty"`
	// Dropped counts the events that routes dropped. Older versions do not count them.
	Dropped int64 `json:"dropped_by_route,omitempty"`
	// Unreadable counts the consecutive unreadable items before Cursor.
	Unreadable int64 `json:"unreadable,omitempty"`
	// LastEventTime is the greatest published event time, in milliseconds since
	// the epoch.
	LastEventTime int64 `json:"last_event_time,omitempty"`
	// PositionTime is the time up to which the export is known to be published: Page.AsOf
	// if Drained, else LastEventTime. PositionByAPI is true if Drained and PositionTime is
	// a time of the API's clock. Older versions used their own clock.
	PositionTime  int64 `json:"position_time,omitempty"`
	PositionByAPI bool  `json:"position_by_api,omitempty"`
	// AdvanceTime is the server's time when the cursor last moved, in milliseconds since
	// the epoch. Unlike event times, it always comes from one clock. After a reset it is that of
	// the target.
	AdvanceTime int64 `json:"advance_time,omitempty"`
	// Drained is true when the API had nothing more at this point.
	Drained bool `json:"drained,omitempty"`
	// EndedEmpty is the number of consecutive empty pages that ended a window; 0 if an
	// end mark did.
	EndedEmpty int `json:"ended_empty,omitempty"`
	// MarksEnd is true once the API has marked the end of its results. An empty page
	// with a new cursor is no mark.
	MarksEnd bool `json:"marks_end,omitempty"`
	// RecentCursors are the cursors of the last pages with items, to detect a cycle
	// across restarts. A reset clears them.
	RecentCursors RecentCursors `json:"trail,omitempty"`
	// PausedUntil is the end of a pause in milliseconds since the epoch; 0 is no pause,
	// Forever a pause without an end.
	PausedUntil int64 `json:"paused_until,omitempty"`
	// Change is the last change, if any. RewindEnd is set while a rewind publishes
	// events again.
	Change    *Change    `json:"change,omitempty"`
	RewindEnd *RewindEnd `json:"news_after,omitempty"`
	// KnownFrom is ignored. Older versions write it.
	KnownFrom int64 `json:"known_from,omitempty"`
	// Overlap is set from the beginning of an overlap on, and stays set after its end.
	Overlap *Overlap `json:"overlap,omitempty"`
	// OverlapTopics are the topics at the beginning of the overlap: later events are after
	// their ends. Nil if unknown, or if the overlap is done.
	OverlapTopics []TopicState `json:"overlap_topics,omitempty"`
	// Earlier are the ranges that earlier epochs have published of the same list, in order of
	// time: Kafka may have deleted their checkpoints. Older versions write none.
	Earlier []TimeRange `json:"published_before,omitempty"`
	// Listing is set if Origin.Follow is FollowWindows, from the first commit of a new
	// listing on.
	Listing *Listing `json:"listing,omitempty"`
	// Owner and Session name the process and the session that wrote the checkpoint.
	Owner   string `json:"owner,omitempty"`
	Session string `json:"session,omitempty"`
	// WrittenAt is the writer's clock in milliseconds since the epoch.
	WrittenAt int64 `json:"written_at"`
}

// Zero reports whether c is the zero value, which stands for no checkpoint.
func (c *Checkpoint) Zero() bool { return c.Format == 0 }

// SamePosition reports whether c and other resume at the same event.
func (c *Checkpoint) SamePosition(other *Checkpoint) bool {
	return c.Cursor == other.Cursor && c.Carried == other.Carried && slices.Equal(c.Tail, other.Tail) &&
		(c.Cursor != "" || c.Origin.Start == other.Origin.Start)
}

// Continues reports whether a new epoch that begins at c continues the branch of other:
// both resume at the same event, with the same counts. While an overlap is read again,
// the count of events is ahead of the cursor.
func (c *Checkpoint) Continues(other *Checkpoint) bool {
	return c.Pages == other.Pages && (c.Events == other.Events || c.Overlap != nil) && c.SamePosition(other)
}

// KnownPosition returns PositionTime, and whether it is known. At a start, where the branch
// has published nothing, it is Origin.Start. After a reset to a cursor, an import of another
// export or an accepted change of settings, PositionTime is 0 until the next page. It is also
// 0 for events without a time.
func (c *Checkpoint) KnownPosition() (ms int64, known bool) {
	if c.PositionTime == 0 && c.Cursor == "" && c.Events == 0 {
		return c.Origin.Start, true
	}
	return c.PositionTime, c.PositionTime != 0
}

// MovedTo returns the commit where the epoch of c began, nil if it is unknown or if the
// epoch began at no commit.
func (c *Checkpoint) MovedTo() *Version {
	ch := c.Change
	switch {
	case ch == nil || ch.From.Epoch+1 != c.Epoch: // a change of an earlier epoch
		return nil
	case !ch.Moves():
		return &ch.From
	}
	return ch.To
}

// Position returns the position of the next request.
func (c *Checkpoint) Position() Position {
	p := Position{Cursor: c.Cursor, Start: c.Origin.Start, End: c.Origin.End, Window: c.Origin.End != 0}
	if c.Listing != nil {
		p.Floor = c.Listing.Lowest()
	}
	return p
}

// Diverged reports whether a stream has two histories: both checkpoints are of one epoch,
// with different changes.
func Diverged(c, other Checkpoint) bool {
	return !c.Zero() && !other.Zero() && c.Epoch == other.Epoch && c.ChangeID() != other.ChangeID()
}

// DivergedFault returns the fault of a stream at ours whose store has diverged.
func DivergedFault(ours, theirs Checkpoint) *Fault {
	return BlockHintf("checkpoint", ReasonCheckpoint, HintTwoHistories,
		"diverged histories: the store is at %s (last change: %s), this stream at %s (last change: %s)",
		theirs.Version, theirs.ChangeText(), ours.Version, ours.ChangeText())
}

// ChangeID returns the id of the last change, or "".
func (c *Checkpoint) ChangeID() string {
	if c.Change == nil {
		return ""
	}
	return c.Change.ID
}

// ChangeText quotes the id of the last change, or says that there is none.
func (c *Checkpoint) ChangeText() string {
	if id := c.ChangeID(); id != "" {
		return strconv.Quote(id)
	}
	return "none"
}

// LastCommand returns the id of the last operator's command. Without one it returns the
// id of the program's own change, or "".
func (c *Checkpoint) LastCommand() string {
	if c.Change == nil {
		return ""
	}
	return cmp.Or(c.Change.After, c.Change.ID)
}

// Applied reports whether c includes the command with this id, even if the program itself
// has changed the stream since.
func (c *Checkpoint) Applied(id string) bool {
	return c.Change != nil && (c.Change.ID == id || c.Change.After == id)
}

// Encode returns the checkpoint's JSON form.
func (c *Checkpoint) Encode() ([]byte, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint %s of %s: %w", c.Version, c.Stream, err)
	}
	return b, nil
}

// MaxNumber bounds the numbers of a checkpoint: its version, its counters, and its times
// in both directions. No stream reaches it. A larger, forged number could overflow.
const MaxNumber = 1 << 56

// Validate rejects numbers out of range.
func (c *Checkpoint) Validate() error {
	counts := []int64{
		c.Epoch, c.Seq, c.Events, c.Pages, c.Outside, c.Dropped, c.Unreadable,
		int64(c.Carried), int64(c.Border.Of), int64(c.Border.Hold), int64(c.EndedEmpty),
	}
	times := []int64{
		c.Origin.Start, c.Origin.End, c.AdvanceTime, c.PositionTime, c.PausedUntil, c.KnownFrom, c.WrittenAt,
		c.RoutesChanged,
	}
	if c.Change != nil {
		counts, times = append(counts, c.Change.From.Epoch, c.Change.From.Seq), append(times, c.Change.At)
		if to := c.Change.To; to != nil {
			counts = append(counts, to.Epoch, to.Seq)
		}
	}
	if c.Overlap != nil {
		counts = append(counts, c.Overlap.Dropped)
	}
	topics := c.Topics
	if l := c.Listing; l != nil {
		if len(l.Marks) == 0 {
			return errors.New("the listing has no mark")
		}
		times, topics = append(times, l.Floor, l.Again, l.Reach, l.Ahead, l.Gap), slices.Concat(topics, l.Behind)
		for i := range l.Marks {
			times, topics = append(times, l.Marks[i].At), append(topics, l.Marks[i].Topics...)
		}
	}
	for i := range topics {
		t := &topics[i]
		counts = append(counts, t.Start, t.End, t.Lost, int64(t.Partitions), int64(t.GrewFrom))
		times = append(times, t.GrewAt)
	}
	for _, n := range counts {
		if n < 0 || n > MaxNumber {
			return fmt.Errorf("version or counter %d is out of range", n)
		}
	}
	for _, n := range times {
		if n < -MaxNumber || n > MaxNumber {
			return fmt.Errorf("time %d ms is out of range", n)
		}
	}
	return nil
}

// clamp bounds the times of the export, because clients' clocks are unreliable.
func (c *Checkpoint) clamp() {
	bound := func(ms int64) int64 { return min(max(ms, -MaxNumber), MaxNumber) }
	c.LastEventTime, c.Border.TailFrom = bound(c.LastEventTime), bound(c.Border.TailFrom)
	if c.RewindEnd != nil {
		c.RewindEnd.EventTime = bound(c.RewindEnd.EventTime)
	}
	if c.Overlap != nil {
		c.Overlap.From, c.Overlap.Until = bound(c.Overlap.From), bound(c.Overlap.Until)
	}
	for i, r := range c.Earlier {
		c.Earlier[i] = TimeRange{bound(r.From), bound(r.To)}
	}
}

// DecodeCheckpoint decodes a checkpoint's JSON form. It returns ErrForeign for anything
// other than a checkpoint of this or an older format, and for numbers beyond MaxNumber.
func DecodeCheckpoint(b []byte) (Checkpoint, error) {
	c, err := decodeCheckpoint(b)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return c, nil
}

func decodeCheckpoint(b []byte) (c Checkpoint, err error) {
	if !utf8.Valid(b) {
		return c, errors.New("not UTF-8")
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, err
	}
	switch {
	case c.Format > ListingFormat:
		return c, fmt.Errorf("format version %d is newer than %d, upgrade exportbridge", c.Format, ListingFormat)
	case c.Format < 1:
		return c, errors.New("no format version")
	case c.Stream == "":
		return c, errors.New("no stream")
	}
	c.clamp()
	return c, c.Validate()
}

// CursorHash returns the first 12 hexadecimal digits of the cursor's SHA-256. They stand
// for the cursor in logs, headers and metrics.
func CursorHash(cursor string) string {
	if cursor == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(cursor))
	return hex.EncodeToString(sum[:6])
}

// Overlap is a part of the export that is read again after the API rejected the cursor,
// or after Kafka lost checkpoints. Events already in the topic are dropped.
type Overlap struct {
	// From is the event time from which duplicates are detected. Until is the time of the
	// newest event when the overlap began. Both are in milliseconds since the epoch.
	From  int64 `json:"from"`
	Until int64 `json:"until"`
	// Dropped counts the events that were already in the topic.
	Dropped int64 `json:"dropped,omitempty"`
	// Done is true after the end of the results was reached.
	Done bool `json:"done,omitempty"`
}

// Paused reports whether the stream is paused at now.
func (c *Checkpoint) Paused(now time.Time) bool {
	return c.PausedUntil == Forever || c.PausedUntil > now.UnixMilli()
}
