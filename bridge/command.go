package bridge

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// CommandState is the progress of a Command in an Inbox.
type CommandState string

// The states of a command.
const (
	CommandPending   CommandState = "pending"   // not claimed
	CommandClaimed   CommandState = "claimed"   // an owner is about to apply or reject it
	CommandAnswered  CommandState = "answered"  // applied, rejected or expired; see the Answer
	CommandWithdrawn CommandState = "withdrawn" // by the operator, before a claim
	CommandUnknown   CommandState = "unknown"   // never made, made too long ago, or lost
)

// CommandOutcome is the state of a command, and its answer.
type CommandOutcome struct {
	State CommandState
	// Owner is the claimer, for CommandClaimed.
	Owner string
	// Answer is set for CommandAnswered.
	Answer Answer
}

// expiredPrefix starts the detail of an ExpiredAnswer.
const expiredPrefix = "expired: "

// ExpiredAnswer returns the answer to a command that was not applied before its deadline.
func ExpiredAnswer(why string) Answer { return Answer{Detail: expiredPrefix + why} }

// Expired reports whether a is an ExpiredAnswer.
func (a *Answer) Expired() bool { return !a.Applied && strings.HasPrefix(a.Detail, expiredPrefix) }

// PendingError rejects a command while another command is pending.
type PendingError struct {
	// Command is the pending command.
	Command Command
	// Since is when the pending command was made, by the store's clock.
	Since time.Time
	// Owner is the claimer, or empty.
	Owner string
	// Overdue is true past the deadline: the stream's next session answers the command.
	Overdue bool
}

func (e *PendingError) Error() string {
	by, since := cmp.Or(e.Command.Who, "somebody"), e.Since.UTC().Format(time.RFC3339)
	text := fmt.Sprintf("another %s, %s by %s, is pending since %s", e.Command.Kind, e.Command.ID, by, since)
	if e.Owner != "" {
		text += ", claimed by " + e.Owner
	}
	return text
}

// The limits of a command's texts in bytes. Every checkpoint of the command's epoch
// contains these texts.
const (
	maxName   = 300 // of ID, Kind, Who and AcceptSource
	maxReason = 1000
)

// NotPaused is the Detail of the Answer to a resume of a stream that is not paused.
const NotPaused = "the stream is not paused"

// Validate returns why a command must not be applied at any position of the stream: it has
// no id, its cursor is longer than MaxCursor, or a text is too long, has several lines or
// has control characters. Checkpoints store the texts and terminals show them. The error is
// short.
func (c *Command) Validate() error {
	switch {
	case c.ID == "":
		return errors.New("the request has no id")
	case len(c.Target.Cursor) > MaxCursor:
		return fmt.Errorf("the cursor has %d bytes, the limit is %d", len(c.Target.Cursor), MaxCursor)
	}
	return cmp.Or(
		checkText("id", c.ID, maxName),
		checkText("kind", string(c.Kind), maxName),
		checkText("who", c.Who, maxName),
		checkText("accepted source", c.AcceptSource, maxName),
		CheckReason(c.Reason),
	)
}

// CheckReason returns why a text is not valid as the Reason of a Command: see
// Command.Validate. The limit is 1000 bytes. An empty text is valid.
func CheckReason(reason string) error { return checkText("reason", reason, maxReason) }

func checkText(name, text string, limit int) error {
	switch {
	case len(text) > limit:
		return fmt.Errorf("the %s has %d bytes, the limit is %d", name, len(text), limit)
	case !utf8.ValidString(text):
		return fmt.Errorf("the %s is not UTF-8", name)
	case strings.ContainsFunc(text, Misleads):
		return fmt.Errorf("the %s contains a control character", name)
	}
	return nil
}

// Misleads reports whether a character can disguise a line on a terminal: a
// control character, a line or paragraph separator, or a bidirectional control.
func Misleads(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// changeOf returns the Change of a command that is applied at from.
func changeOf(cmd Command, from Checkpoint) *Change {
	kind, to := cmd.Kind, cmd.Target.Entry
	if kind == KindReset && to != nil && to.Compare(from.Version) < 0 && !keepsPosition(&cmd.Target, from) {
		kind = KindRewind
	}
	return &Change{
		ID: cmd.ID, Kind: kind, Who: cmd.Who, Reason: cmd.Reason, From: from.Version, To: to,
		At: time.Now().UnixMilli(), AcceptSource: cmp.Or(cmd.AcceptSource, from.PendingSource()),
	}
}

// Reset returns the checkpoint of a reset at from: a new epoch at the command's target,
// with the given origin. The caller sets the writer's fields (owner, session, time, mode).
func Reset(from Checkpoint, origin Origin, cmd Command) Checkpoint {
	cmd.Target = cmd.Target.at(&from)
	origin.Start, origin.Request = cmd.Target.Start, requestAfter(from, origin.Request, cmd)
	same := from.SameList(&origin)
	c := Checkpoint{
		Format: origin.Format(), Stream: from.Stream, Mode: from.Mode, Kind: KindReset,
		Version: Version{Epoch: from.Epoch + 1},
		Cursor:  cmd.Target.Cursor, Tail: cmd.Target.Tail, Carried: cmd.Target.Carried, Border: cmd.Target.Border,
		Origin: origin, Events: cmd.Target.Events, Pages: cmd.Target.Pages,
		Outside: cmd.Target.Outside, Dropped: cmd.Target.Dropped,
		Routes: from.Routes, RoutesChanged: from.RoutesChanged,
		PausedUntil: from.PausedUntil,
		RewindEnd:   from.RewindEnd,
		MarksEnd:    from.MarksEnd && same,
		Change:      changeOf(cmd, from),
	}
	if c.RewindEnd == nil { // otherwise the first rewind has not ended
		c.RewindEnd = &RewindEnd{CursorHash: CursorHash(from.Cursor), Source: from.Source}
	}
	if same || cmd.Target.FollowOtherwise {
		c.Earlier = from.published()
	}
	switch {
	case !same: // the times are of another export
	case keepsPosition(&cmd.Target, from):
		c.LastEventTime, c.PositionTime, c.AdvanceTime = from.LastEventTime, from.PositionTime, from.AdvanceTime
		c.Overlap, c.OverlapTopics = from.Overlap, from.OverlapTopics
	default:
		c.LastEventTime, c.PositionTime = cmd.Target.LastEventTime, cmd.Target.PositionTime
		c.AdvanceTime = cmd.Target.AdvanceTime
	}
	return c
}

// SameList reports whether an origin lists the same events as that of c, as far as is
// known.
func (c *Checkpoint) SameList(origin *Origin) bool {
	return origin.Same(c.Origin) && len(c.Origin.Request.Changed(origin.Request, c.Cursor).Other) == 0
}

// GoBack returns the checkpoint of a reset to a target in the same list. The checkpoint
// begins an overlap: events that the topic already has, from a time on or after the ends of
// topics, are dropped and not counted again. The caller sets the Change.
func GoBack(from Checkpoint, to Target, since int64, topics []TopicState) Checkpoint {
	c := Reset(from, from.Origin, Command{Kind: KindReset, Target: to})
	c.keepPublished(&from)
	c.BeginOverlap(&from, since, topics)
	return c
}

// keepPublished copies from from which events are published, so that they are not published
// again.
func (c *Checkpoint) keepPublished(from *Checkpoint) {
	c.Source, c.Topic, c.Topics = from.Source, from.Topic, from.Topics
	c.Events, c.Outside, c.Dropped, c.Unreadable = from.Events, from.Outside, from.Dropped, from.Unreadable
	c.LastEventTime, c.AdvanceTime = from.LastEventTime, from.AdvanceTime
}

// FollowedUntil returns the time, in milliseconds since the epoch, from which a stream at c
// can be followed in the other way, by windows or by its cursor. If the stream has caught
// up, all older events are published.
func (c *Checkpoint) FollowedUntil() int64 {
	since := min(c.LastEventTime, c.AdvanceTime)
	switch {
	case c.Origin.Follow == FollowWindows:
		return max(c.Settled(), c.Origin.Start)
	case since == 0:
		since = c.Origin.Start
	}
	if o := c.Overlap; o != nil && !o.Done {
		since = min(since, o.From)
	}
	return max(since, c.Origin.Start)
}

// FollowOtherwise completes c, the checkpoint of a reset that changes the stream from its
// cursor to windows, or back. Events since c.Origin.Start that the topic holds are
// dropped. Windows begin to list at lookBack before c.Origin.Start.
func (c *Checkpoint) FollowOtherwise(from *Checkpoint, lookBack time.Duration) {
	c.keepPublished(from)
	if c.Origin.Follow != FollowWindows {
		c.BeginOverlap(from, c.Origin.Start, nil)
		return
	}
	at := max(c.Origin.Start-lookBack.Milliseconds(), from.Origin.Start, 0)
	c.Listing = BeginListing(at, nil)
}

// BeginOverlap begins an overlap of a stream at from. The overlap includes an unfinished
// overlap of from.
func (c *Checkpoint) BeginOverlap(from *Checkpoint, since int64, topics []TopicState) {
	o := Overlap{From: since, Until: from.LastEventTime}
	if was := from.Overlap; was != nil && !was.Done {
		o.From, o.Dropped = min(was.From, o.From), was.Dropped
		topics = earlierTopics(topics, from.OverlapTopics)
	}
	c.Overlap, c.OverlapTopics = &o, topics
}

// requestAfter returns the fingerprint after a reset. It is that of the settings only if
// the command names it, because the settings may be those of another process.
func requestAfter(from Checkpoint, settings Fingerprint, cmd Command) Fingerprint {
	switch {
	case cmd.AcceptSource != "" && cmd.AcceptSource == settings.Digest():
		return settings
	case from.Origin.Request.Known():
		return from.Origin.Request
	}
	return cmd.Target.Request
}

// keepsPosition reports whether a reset to t keeps the position of a stream at from.
func keepsPosition(t *Target, from Checkpoint) bool {
	return t.Entry != nil && t.Entry.Epoch == from.Epoch &&
		t.Cursor == from.Cursor && t.Events == from.Events && slices.Equal(t.Tail, from.Tail)
}

// Pause returns the checkpoint of a pause of the stream at from, or of a resume: a new
// epoch at the same position. All checkpoints of an epoch have the same Change. So a
// process that finds another Change knows that another process moved the stream.
func Pause(from Checkpoint, cmd Command) Checkpoint {
	c := from
	c.Version, c.Kind = Version{Epoch: from.Epoch + 1}, cmd.Kind
	c.PausedUntil = 0
	if cmd.Kind == KindPause {
		c.PausedUntil = cmd.PausedUntil
	}
	c.Change = changeOf(cmd, from)
	c.Change.Unread = from.Unread()
	return c
}
