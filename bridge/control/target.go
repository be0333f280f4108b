package control

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"exportbridge/bridge"
)

// timeLayout is the form of times in texts.
const timeLayout = "2006-01-02 15:04:05Z"

// Target is the target of a move: one of the types below. A rewind moves to a committed
// cursor of the history, a reset to any other position.
type Target interface {
	plan(ctx context.Context, p *planner) (*Move, error)
}

// RewindToEntry goes to an entry of the history, on any branch.
type RewindToEntry struct{ Entry bridge.Version }

// RewindToTime goes to the newest commit at or before Time.
type RewindToTime struct{ Time time.Time }

// RewindPages goes to the newest commit at least this many pages back.
type RewindPages struct{ Pages int64 }

// ResetToEarliest goes to the first event of the export.
type ResetToEarliest struct{}

// ResetToTime goes to the events from Time on.
type ResetToTime struct{ Time time.Time }

// ResetToLatest skips to the events from now on.
type ResetToLatest struct{}

// ResetToCurrent keeps the position and accepts changed settings and topics.
type ResetToCurrent struct{}

// ResetToCursor goes to a cursor of the API, byte for byte.
type ResetToCursor struct{ Cursor string }

// Import goes to an exported checkpoint, see ReadExport.
type Import struct {
	// Checkpoint is the exported checkpoint.
	Checkpoint bridge.Checkpoint
	// AcceptOther accepts a cursor of another stream, export or application,
	// which is otherwise a *ForeignCursorError.
	AcceptOther bool
}

// The names of the targets that ParseTarget parses. The HTTP API uses the same names.
const (
	TargetEntry     = "entry"      // a RewindToEntry
	TargetDatetime  = "datetime"   // a RewindToTime
	TargetAgo       = "ago"        // a RewindToTime, given as a duration before now
	TargetShift     = "shift"      // a RewindPages, given as a negative number
	TargetEventTime = "event_time" // a ResetToTime
	TargetEarliest  = "earliest"
	TargetLatest    = "latest"
	TargetCurrent   = "current"
	TargetCursor    = "cursor"
)

// ParseTarget parses the text of a target. now is the current time. TargetEarliest,
// TargetLatest and TargetCurrent ignore the text. A time after now is a bridge.ErrFuture.
func ParseTarget(name, text string, now time.Time) (to Target, err error) {
	switch name {
	case TargetEntry:
		version, err := bridge.ParseVersion(text)
		return RewindToEntry{Entry: version}, err
	case TargetDatetime:
		ms, err := bridge.ParsePast(text, now)
		return RewindToTime{Time: time.UnixMilli(ms).UTC()}, err
	case TargetEventTime:
		ms, err := bridge.ParsePast(text, now)
		return ResetToTime{Time: time.UnixMilli(ms).UTC()}, err
	case TargetAgo:
		back, err := bridge.ParseDuration(text)
		if err == nil && back <= 0 {
			err = errNotBack
		}
		if err != nil {
			err = fmt.Errorf("%q %w", text, err)
		}
		return RewindToTime{Time: now.Add(-back)}, err
	case TargetShift:
		pages, err := strconv.ParseInt(text, 10, 64)
		if err == nil && pages >= 0 {
			err = fmt.Errorf("%s %w", text, errNotBack)
		}
		return RewindPages{Pages: -pages}, err
	case TargetCursor:
		return ResetToCursor{Cursor: text}, checkCursor(text)
	case TargetLatest:
		return ResetToLatest{}, nil
	case TargetCurrent:
		return ResetToCurrent{}, nil
	case TargetEarliest:
		return ResetToEarliest{}, nil
	}
	return nil, fmt.Errorf("%q is not a target", name)
}

var errNotBack = errors.New("does not go back")

func (t RewindToEntry) plan(ctx context.Context, p *planner) (*Move, error) {
	e, err := p.entry(ctx, p.entryLookup(t.Entry))
	if err != nil {
		return nil, err
	}
	return p.moveToEntry(ctx, e), nil
}

// entryLookup finds the commit of a version.
func (p *planner) entryLookup(at bridge.Version) lookup {
	return lookup{
		inStore: func(ctx context.Context) (bridge.Entry, error) { return p.ports.Entries.Entry(ctx, at) },
		inLog: func(c *bridge.Checkpoint, _ bool) (bool, bool) {
			return c.Version == at, c.Version.Compare(at) > 0
		},
	}
}

// newestLookup finds the newest commit that matches, on any branch.
func (p *planner) newestLookup(matches func(*bridge.Checkpoint) bool) lookup {
	return lookup{
		inStore: func(ctx context.Context) (bridge.Entry, error) { return p.ports.Entries.Find(ctx, matches) },
		inLog:   func(c *bridge.Checkpoint, _ bool) (bool, bool) { return matches(c), true },
	}
}

func (t RewindToTime) plan(ctx context.Context, p *planner) (*Move, error) {
	return p.moveToNearest(ctx, nearest{
		stored:  func(ctx context.Context) (neighbors, error) { return p.entryAt(ctx, t.Time) },
		matches: func(c *bridge.Checkpoint) bool { return c.WrittenAt <= t.Time.UnixMilli() },
		time:    t.Time,
		where:   "at or before " + t.Time.UTC().Format(timeLayout),
	})
}

func (t RewindPages) plan(ctx context.Context, p *planner) (*Move, error) {
	where := fmt.Sprintf("at least %d pages back", t.Pages)
	if t.Pages == 1 {
		where = "at least 1 page back"
	}
	m, err := p.moveToNearest(ctx, nearest{
		stored: func(ctx context.Context) (at neighbors, err error) {
			at.Entry, at.next, err = p.ports.Entries.Back(ctx, p.from.Pages, t.Pages)
			return at, err
		},
		matches: func(c *bridge.Checkpoint) bool { return c.Pages <= p.from.Pages-t.Pages },
		where:   where,
	})
	if missing, ok := errors.AsType[*NoEntryError](err); ok {
		missing.Left = p.leftBehind(ctx)
	}
	return m, err
}

// leftBehind returns the newest entry with another cursor that the last move of the stream
// left on another branch; nil if there is none, or if its cursor is of another list, which
// the bridge refuses. It is a data commit: only these have a cursor that the API has returned.
func (p *planner) leftBehind(ctx context.Context) *bridge.Version {
	at := p.from.Checkpoint
	for at.Change != nil && !at.Change.Moves() {
		e, err := p.entry(ctx, p.entryLookup(at.Change.From))
		if err != nil {
			return nil
		}
		at = e.Checkpoint
	}
	if at.Change == nil {
		return nil
	}
	matches := func(c *bridge.Checkpoint) bool {
		return c.Kind == bridge.KindData && c.Version.Compare(at.Change.From) <= 0 && c.Cursor != p.from.Cursor
	}
	e, err := p.entry(ctx, p.newestLookup(matches))
	if err != nil || len(p.otherList(p.requestOf(ctx, &e.Checkpoint), e.Cursor).Other) > 0 {
		return nil
	}
	return &e.Version
}

// lookup finds the entry of a rewind in Redis, or else in the checkpoint topic.
type lookup struct {
	inStore func(context.Context) (bridge.Entry, error)
	inLog   matcher
	time    time.Time // the requested time, zero if none
}

// found is an entry. sameCount is true if the entry counts events from the stream's root.
type found struct {
	bridge.Entry
	sameCount bool
}

func (p *planner) entry(ctx context.Context, l lookup) (found, error) {
	e, err := bridge.Entry{}, bridge.ErrNoEntry
	if p.from.away == nil {
		if e, err = l.inStore(ctx); err == nil {
			return found{e, p.sameCount(ctx, &e.Checkpoint)}, nil
		}
	}
	if !isNoEntry(err) {
		return found{}, err
	}
	f, err := p.older(ctx, fmt.Errorf("%w (nor in the checkpoint topic)", err), l.inLog)
	if isNoEntry(err) {
		return f, &NoEntryError{Time: l.time, Err: err}
	}
	return f, err
}

func isNoEntry(err error) bool {
	return errors.Is(err, bridge.ErrNoEntry) || errors.Is(err, bridge.ErrNoCheckpoint)
}

// moveToEntry plans a rewind.
func (p *planner) moveToEntry(ctx context.Context, e found) *Move {
	m := newMove("", e.Target(), p.repeatsAfter(ctx, e, e.Events))
	m.target.Request = p.requestOf(ctx, &e.Checkpoint)
	m.To, m.FirstPublished, m.ids = endpointOf(&e.Checkpoint), p.firstPublished(ctx, e.Entry), e.Origin.ItemID
	switch {
	case e.SamePosition(&p.from.Checkpoint):
		m.note("the stream is at this position already")
	case e.aheadOf(&p.from.Checkpoint):
		m.note(aheadNote)
	}
	return m
}

// requestOf returns the fingerprint of the request that returned an entry's cursor. That of an
// entry of an older version is the first one that a later commit has, unless an operator has
// accepted another list in between: then it is unknown.
func (p *planner) requestOf(ctx context.Context, e *bridge.Checkpoint) bridge.Fingerprint {
	request := e.Origin.Request
	if request.Known() || !p.from.Origin.Request.Known() {
		return request
	}
	_, err := p.entry(ctx, p.newestLookup(func(c *bridge.Checkpoint) bool {
		before := c.Version.Compare(e.Version) <= 0
		if !before && c.Origin.Request.Known() {
			request = c.Origin.Request
			if ch := c.Change; ch != nil && ch.AcceptSource != "" && ch.From.Compare(e.Version) >= 0 {
				request = ""
			}
		}
		return before
	}))
	if err != nil {
		return ""
	}
	return request
}

// firstPublished returns when the first event after an entry was published for the first
// time, zero if unknown. An event of a rewind was published before the rewind.
func (p *planner) firstPublished(ctx context.Context, e bridge.Entry) time.Time {
	for e.RewindEnd != nil {
		to := e.MovedTo()
		if e.Seq > 0 || to == nil {
			return time.Time{}
		}
		at, err := p.entry(ctx, p.entryLookup(*to))
		if err != nil {
			return time.Time{}
		}
		e = at.Entry
	}
	return time.UnixMilli(e.WrittenAt).UTC()
}

// aheadNote warns that a target is ahead of the stream.
const aheadNote = "the target is ahead of the stream: events in between are skipped"

// aheadOf reports whether the entry is ahead of the stream's position.
func (e *found) aheadOf(at *bridge.Checkpoint) bool {
	switch {
	case at.Zero():
		return false
	case e.sameCount:
		return e.Events > at.Events
	}
	return e.PositionTime > at.PositionTime && at.PositionTime > 0
}

// countCursor counts the events that a reset to a cursor publishes again, if the history
// has the cursor. The tails of the entry and of the target show how much of the page each
// of them has published.
func (p *planner) countCursor(ctx context.Context, m *Move) (known bool) {
	has := func(c *bridge.Checkpoint) bool {
		// While an overlap is read again, the count is ahead of the cursor.
		return c.Cursor == m.target.Cursor && (c.Cursor != "" || c.Origin.Start == m.target.Start) &&
			(c.Overlap == nil || c.Overlap.Done)
	}
	e, err := p.entry(ctx, p.newestLookup(has))
	switch {
	case isNoEntry(err):
		m.Repeats = unknown("this cursor is not in the history")
	case err != nil:
		m.Repeats = unknown(cut(err.Error(), 120))
	case e.Carried > 0 || m.target.Carried > 0:
		m.Repeats = unknown("the page at this cursor has changed")
	default:
		e.Events += int64(len(m.target.Tail) - len(e.Tail))
		m.To.Text += "   (as in entry " + e.Version.String() + ")"
		m.Repeats = p.repeatsAfter(ctx, e, e.Events)
		if e.aheadOf(&p.from.Checkpoint) {
			m.note(aheadNote)
		}
		return true
	}
	return false
}

func (ResetToEarliest) plan(ctx context.Context, p *planner) (*Move, error) {
	m := newMove("the earliest event", bridge.Target{}, p.repeatsAll(ctx))
	p.addBackfilled(ctx, m, 0)
	return m, nil
}

func (t ResetToTime) plan(ctx context.Context, p *planner) (*Move, error) {
	ms := t.Time.UnixMilli()
	again, trusts := p.repeatsFrom(ctx, t.Time)
	m := newMove("events from "+t.Time.UTC().Format(time.RFC3339Nano)+" on", bridge.Target{Start: ms}, again)
	if trusts {
		m.note("an event listed more than EXPORT_OVERLAP (%s) after its time may not come again", p.cfg.Overlap)
	}
	p.addBackfilled(ctx, m, ms)
	if at, known := p.from.KnownPosition(); !p.from.Zero() && known && ms > max(at, p.from.Origin.Start) {
		m.note(aheadNote)
	}
	return m, nil
}

func (ResetToLatest) plan(ctx context.Context, p *planner) (*Move, error) {
	t, err := p.now(ctx, p.from.away)
	if err != nil {
		return nil, err
	}
	m := newMove("events from now on, "+t.UTC().Format(time.RFC3339Nano), bridge.Target{Start: t.UnixMilli()}, Repeats{})
	m.note("events between the current position and now are skipped")
	return m, nil
}

func (ResetToCurrent) plan(ctx context.Context, p *planner) (*Move, error) {
	if p.from.Zero() {
		return nil, fmt.Errorf("stream %s has %w, so there is no position to keep", p.Stream(), ErrNoPosition)
	}
	from := &p.from
	if from.Origin.Follow != p.cfg.Origin.Follow {
		return p.followOtherwise()
	}
	m := newMove("the same position", from.CurrentTarget(), p.repeatsAfter(ctx,
		found{bridge.Entry{Checkpoint: from.Checkpoint}, true}, from.Events))
	m.ids = from.Origin.ItemID
	m.note("the topics are accepted as they are now; lost records stay missing until they are repaired")
	return m, nil
}

// followOtherwise plans the change from following a cursor to following windows, or back.
// The stream begins at the time before which all events are published. It does not publish
// the events again that the topic holds.
func (p *planner) followOtherwise() (*Move, error) {
	from, how, since := &p.from, "by windows", p.from.FollowedUntil()
	if from.Origin.Follow == bridge.FollowWindows {
		how = "by the cursor"
	}
	m := newMove(fmt.Sprintf("%s, events from %s on", how, bridge.Instant(since).UTC().Format(time.RFC3339)),
		bridge.Target{Start: since, FollowOtherwise: true}, Repeats{})
	m.note("what the topic holds of these events is not published again")
	if from.Origin.Follow != bridge.FollowWindows {
		m.note("the stream must have been caught up: events behind its cursor that are older are not read")
	}
	return m, nil
}

func (t ResetToCursor) plan(ctx context.Context, p *planner) (*Move, error) {
	if err := checkCursor(t.Cursor); err != nil {
		return nil, err
	}
	text := fmt.Sprintf("cursor %s  (sha256 %s)", ShortCursor(t.Cursor), bridge.CursorHash(t.Cursor))
	to := bridge.Target{Cursor: t.Cursor}
	if p.cfg.Origin.End != 0 { // the cursor is of the same window
		to.Start = p.cfg.Origin.Start
	}
	m := newMove(text, to, Repeats{})
	p.countCursor(ctx, m)
	return m, nil
}

// checkCursor returns why a cursor cannot have come from the API.
func checkCursor(cursor string) error {
	switch {
	case len(cursor) > bridge.MaxCursor:
		return fmt.Errorf("the cursor has %d bytes, the maximum is %d", len(cursor), bridge.MaxCursor)
	case !utf8.ValidString(cursor):
		return errors.New("the cursor is not valid UTF-8")
	case strings.ContainsAny(cursor, "\r\n"):
		return errors.New("the cursor contains a line break")
	}
	return nil
}

// ShortCursor shortens a cursor to both ends, which identify it but cannot be used. It
// hides the values of the parameters of a next URL: a filter may have private data.
func ShortCursor(cursor string) string {
	if path, query, ok := strings.Cut(cursor, "?"); ok && strings.HasPrefix(path, "/") {
		pairs := strings.Split(query, "&")
		for i, pair := range pairs {
			name, _, named := strings.Cut(pair, "=")
			if pairs[i] = name + "=..."; !named {
				pairs[i] = "..."
			}
		}
		cursor = path + "?" + strings.Join(pairs, "&")
	}
	r := []rune(cursor)
	if len(r) <= 24 {
		return cursor
	}
	return string(r[:10]) + "..." + string(r[len(r)-6:])
}

func (t Import) plan(ctx context.Context, p *planner) (*Move, error) {
	in := &t.Checkpoint
	var differs []string
	differ := func(what string, have, want any) {
		differs = append(differs, fmt.Sprintf("its %s is %v, want %v", what, have, want))
	}
	if want := p.Stream(); in.Stream != want {
		differ("stream", in.Stream, want)
	}
	if want := p.cfg.Origin; !in.Origin.Same(want) {
		differ("export", in.Origin, want)
	}
	none := bridge.SourceIdentity{}
	if want := p.from.Source; want != none && in.Source != none && in.Source != want {
		differ("application", sourceText(in.Source), sourceText(want))
	}
	if other := p.from.Origin.Request.Changed(in.Origin.Request, in.Cursor).Other; len(other) > 0 {
		differs = append(differs, "its cursor is of another request: "+strings.Join(other, ", ")+" differs")
	}
	if len(differs) > 0 && !t.AcceptOther {
		return nil, &ForeignCursorError{Differences: differs}
	}
	to := (&bridge.Entry{Checkpoint: *in}).Target()
	to.Entry = nil
	if len(differs) > 0 { // the stream accepts the cursor of another export
		to.PositionTime, to.LastEventTime, to.AdvanceTime, to.Request = 0, 0, 0, ""
	}
	m := newMove(fmt.Sprintf("the exported cursor: entry %s of stream %s", in.Version, in.Stream), to, Repeats{})
	m.Notes, m.ids = differs, in.Origin.ItemID
	known := p.countCursor(ctx, m)
	if in.PositionTime > 0 {
		m.To.Text += "   " + secondText(in.PositionTime)
	}
	if !known && in.Events > p.from.Events && !p.from.Zero() {
		m.note(aheadNote)
	}
	return m, nil
}

func sourceText(s bridge.SourceIdentity) string {
	return s.Organization + "/" + s.Workspace + "/" + s.Application
}
