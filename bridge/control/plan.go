package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/engine"
)

// Endpoint is the origin or the target of a move.
type Endpoint struct {
	// Version is nil if no commit has this position, as after a reset.
	*bridge.Version
	// Text describes the position for people.
	Text string `json:"text"`
	// At is the time of the commit. Position, Events, Pages and CursorHash are those of the
	// checkpoint. Unknown values are zero.
	At         time.Time `json:"at,omitzero"`
	Position   time.Time `json:"position,omitzero"`
	Events     int64     `json:"events,omitempty"`
	Pages      int64     `json:"pages,omitempty"`
	CursorHash string    `json:"cursor_hash,omitempty"`
}

// Plan is the effect of a move.
type Plan struct {
	// From and To are the positions of Stream before and after the move.
	Stream string   `json:"stream"`
	From   Endpoint `json:"from"`
	To     Endpoint `json:"to"`
	// Repeats counts the events that are published again.
	Repeats
	// OtherIDs is true if these events may have other ids (ce_id) than before.
	OtherIDs bool `json:"other_ids,omitempty"`
	// FirstPublished is when the first of these events was first published; zero if
	// unknown.
	FirstPublished time.Time `json:"first_published,omitzero"`
	// Guarantee is the delivery mode. Notes are warnings for the operator.
	Guarantee string `json:"guarantee"`
	// BaseEpoch is the epoch of the plan. The move is rejected in any other epoch.
	BaseEpoch int64    `json:"base_epoch"`
	Notes     []string `json:"notes,omitempty"`
}

// Move is a planned move, for Controller.Move.
type Move struct {
	Plan
	target bridge.Target
	ids    string // Origin.ItemID of the target's tail
	from   base
}

// note adds a warning.
func (m *Move) note(format string, args ...any) {
	m.Notes = append(m.Notes, fmt.Sprintf(format, args...))
}

// noteSettings notes how the settings differ from those of the stream, which a rewind keeps
// if no bridge applies it.
func (m *Move) noteSettings(cfg *engine.Config) {
	switch from := &m.from; {
	case from.Zero() || from.Origin.Same(cfg.Origin):
	case m.target.Entry != nil && !m.target.Stay:
		m.note("these settings have %s; the stream has %s, which a rewind keeps unless a bridge has other settings",
			cfg.Origin, from.Origin)
	default:
		m.note("the settings change, from %s to %s", from.Origin, cfg.Origin)
		m.Repeats = m.atMost()
	}
	if note := otherTopic(&m.from.Checkpoint, cfg); note != "" {
		m.note("%s", note)
	}
}

// otherTopic says that the settings name another topic than that of a stream at c, or
// returns "".
func otherTopic(c *bridge.Checkpoint, cfg *engine.Config) string {
	if c.Topic == "" || cfg.Topic == "" || c.Topic == cfg.Topic {
		return ""
	}
	return "the stream publishes to topic " + c.Topic + ", these settings name " + cfg.Topic
}

// largeTopic says that windows publish nothing again to a topic, or returns "". After a move, what is after the present
// ends of the topics counts as published: all of a topic whose ends do not fit into a checkpoint.
func largeTopic(c *bridge.Checkpoint, cfg *engine.Config) string {
	for i := range c.Topics {
		t := &c.Topics[i]
		if cfg.Origin.Follow == bridge.FollowWindows && !t.Former && t.End > 0 && t.Partitions > bridge.MaxEnds {
			return fmt.Sprintf("windows publish no event again that topic %s holds: it has %d partitions, the maximum is %d",
				t.Name, t.Partitions, bridge.MaxEnds)
		}
	}
	return ""
}

// noteWindow says that a move into a window also publishes again what the commits before the target have
// published of that window.
func (m *Move) noteWindow() {
	w, ok := bridge.ParseWatermark(m.target.Cursor)
	if !ok || w.Part == 0 || m.target.Cursor == m.from.Cursor {
		return
	}
	m.note("the target is within a window, which is published again from its beginning, %s", bridge.InstantText(w.At))
	m.FirstPublished = time.Time{}
	m.noUpperBound("the window begins before the target")
}

// noUpperBound says that more events than counted come again, and why it is unknown how many.
func (m *Move) noUpperBound(why string) {
	switch {
	case m.Min > 0:
		m.Max, m.Pages = Unknown, Unknown
	case m.Why == "":
		m.Repeats = unknown(why)
	}
}

// newMove returns the move to a target. text describes the target.
func newMove(text string, to bridge.Target, again Repeats) *Move {
	return &Move{
		Plan:   Plan{To: Endpoint{Text: text, CursorHash: bridge.CursorHash(to.Cursor)}, Repeats: again},
		target: to,
	}
}

// planner plans one move of a stream from its position. It reads each commit once.
type planner struct {
	*Controller
	from base
	// known has the first commits of epochs, and the commits from which changes moved the
	// stream.
	known map[bridge.Version]*bridge.Entry
	// read is the time up to which the checkpoint topic was read; zero if it was not read.
	read time.Time
}

// Plan plans a move. It changes nothing.
func (c *Controller) Plan(ctx context.Context, to Target) (*Move, error) {
	from, err := c.base(ctx)
	if err != nil {
		return nil, err
	}
	p := &planner{Controller: c, from: from, known: make(map[bridge.Version]*bridge.Entry)}
	m, err := to.plan(ctx, p)
	if err != nil {
		return nil, err
	}
	if err := c.cfg.Origin.CheckTarget(m.target); err != nil {
		return nil, &RefusedError{Detail: err.Error()}
	}
	if err := c.refuse(&m.target); err != nil {
		return nil, err
	}
	m.Stream, m.From, m.BaseEpoch, m.from = c.Stream(), endpointOf(&from.Checkpoint), from.Epoch, from
	m.noteSettings(&c.cfg)
	if from.Dropped > 0 && m.Max != 0 {
		m.note("routes have dropped %d of the stream's events: those of them that come again are not published",
			from.Dropped)
	}
	switch note := largeTopic(&from.Checkpoint, &c.cfg); {
	case note == "":
		m.noteWindow()
	case m.Max != 0:
		m.note("%s", note)
		m.Repeats = m.atMost()
	}
	if change := from.RequestChange(c.cfg.Origin.Request); len(change.Other) > 0 {
		m.note("these settings request another list than the stream's (%s), which stays unless the move accepts it: "+
			"--accept-source %s", change, c.cfg.Origin.Request.Digest())
	}
	if change := p.otherList(m.target.Request, m.target.Cursor); len(change.Other) > 0 {
		m.note("the target is of another list than the stream's (%s): it is refused, unless the bridge's settings request "+
			"that list and the move accepts it: --accept-source %s", change, m.target.Request.Digest())
	}
	p.noteChanges(ctx, m)
	if from.away != nil {
		behind := ""
		if c.cfg.Mode != bridge.ExactlyOnce {
			behind = ", which may be some seconds behind"
		}
		m.note("Redis does not answer, the position is from the checkpoint topic%s: %s", behind, cut(from.away.Error(), 120))
	}
	m.Guarantee = string(c.cfg.Mode)
	return m, nil
}

// otherList returns how the stream's request differs from the one that returned a cursor.
func (p *planner) otherList(was bridge.Fingerprint, cursor string) bridge.RequestChange {
	return was.Changed(p.from.Origin.Request, cursor)
}

// noteChanges notes how the settings differ from those under which the events after the target
// were published.
func (p *planner) noteChanges(ctx context.Context, m *Move) {
	switch {
	case len(m.target.Tail) > 0 && m.ids != p.cfg.Origin.ItemID:
		m.Repeats = unknown(fmt.Sprintf("the ids change, so up to %d items at the new position are published again, "+
			"under other ids (ce_id)", len(m.target.Tail)))
		m.OtherIDs = true
	case m.Max != 0 && p.idsChanged(ctx, m):
		m.note("EXPORT_ITEM_ID has changed since: events get another ce_id")
		m.OtherIDs = true
	}
	if m.Max != 0 && p.filterChanged(ctx, m) {
		m.note("EXPORT_EVENTS has changed since: of what was published, the events that it selects come again")
		m.Repeats = m.atMost()
	}
	if m.Max != 0 && p.rulesChanged(ctx, m) {
		m.note("the rules for private data have changed since: with EVENT_HASH of an id, events get another ce_id")
		m.OtherIDs = true
	}
}

// idsChanged reports whether the events after a target were published by another
// EXPORT_ITEM_ID than that of the settings, as far as Redis knows.
func (p *planner) idsChanged(ctx context.Context, m *Move) bool {
	differs := func(c *bridge.Checkpoint) bool { return c.Origin.ItemID != p.cfg.Origin.ItemID }
	// Only a move changes the ids of a stream.
	return !p.from.Zero() && (differs(&p.from.Checkpoint) || p.from.Change != nil && p.publishedAs(ctx, m, differs))
}

// filterChanged reports whether the events after a target were published under another filter
// than that of the settings and the stream, as far as Redis knows.
func (p *planner) filterChanged(ctx context.Context, m *Move) bool {
	want := &p.cfg.Origin
	return p.from.Change != nil && p.from.Origin.Same(*want) && p.publishedAs(ctx, m, func(c *bridge.Checkpoint) bool {
		return !slices.Equal(c.Origin.Events, want.Events)
	})
}

// rulesChanged reports whether the events after a target were published under other rules for
// private data than those of the settings, as far as Redis knows.
func (p *planner) rulesChanged(ctx context.Context, m *Move) bool {
	want, now := p.cfg.Origin.Request, p.from.Origin.Request
	differs := func(c *bridge.Checkpoint) bool { return c.Origin.Request.Changed(want, "").Rules }
	return differs(&p.from.Checkpoint) || (want.Private() || now.Private()) && p.publishedAs(ctx, m, differs)
}

// publishedAs reports whether a commit after a target matches, as far as Redis knows.
func (p *planner) publishedAs(ctx context.Context, m *Move, matches func(*bridge.Checkpoint) bool) bool {
	if p.from.away != nil {
		return false
	}
	// What an unfinished rewind has yet to publish again was published before its entries.
	all := m.To.Version == nil || p.from.RewindEnd != nil
	after := func(c *bridge.Checkpoint) bool { return all || c.Version.Compare(*m.To.Version) > 0 }
	e, err := p.ports.Entries.Find(ctx, func(c *bridge.Checkpoint) bool { return !after(c) || matches(c) })
	return err == nil && after(&e.Checkpoint) && (m.target.Cursor != "" || e.PositionTime >= m.target.Start)
}

// refuse returns a RefusedError if no request can ask for the position of a target.
func (c *Controller) refuse(to *bridge.Target) error {
	if c.cfg.Refuse == nil {
		return nil
	}
	end := c.cfg.Origin.End
	err := c.cfg.Refuse(bridge.Position{Cursor: to.Cursor, Start: to.Start, End: end, Window: end != 0})
	if err == nil {
		return nil
	}
	return &RefusedError{Detail: err.Error(), NoStart: to.Start != 0, NeedsStart: to.Start == 0}
}

// now returns Redis's time, or this machine's while Redis is unreachable.
func (c *Controller) now(ctx context.Context, away error) (time.Time, error) {
	if away != nil {
		return time.Now(), nil
	}
	t, err := c.ports.Live.Now(ctx)
	if isAway(err) {
		return time.Now(), nil
	}
	return t, err
}

// endpointOf returns the Endpoint at a checkpoint.
func endpointOf(c *bridge.Checkpoint) Endpoint {
	e := Endpoint{
		Version: &c.Version, Text: "no checkpoint", Events: c.Events, Pages: c.Pages, CursorHash: bridge.CursorHash(c.Cursor),
	}
	if c.Zero() {
		return e
	}
	e.Text, e.At = "entry "+c.Version.String(), time.UnixMilli(c.WrittenAt).UTC()
	if c.PositionTime > 0 {
		e.Position = time.UnixMilli(c.PositionTime).UTC()
		e.Text += "   " + secondText(c.PositionTime)
	}
	return e
}
