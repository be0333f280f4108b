package bridge

import (
	"fmt"
	"strings"
	"time"
)

// Unread reports whether no page of the export of c was read yet, and no reset has chosen
// its start. Then the stream adopts changed settings.
func (c *Checkpoint) Unread() bool {
	unmoved := c.Epoch == 0 || c.Change != nil && c.Change.Unread
	atStart := unmoved && c.Cursor == "" && c.Events == 0 && c.Pages == 0
	return atStart && c.Kind != KindData
}

// OriginFault returns the fault of a stream at c whose settings have another origin or
// topic; nil if the stream can continue. An empty topic is unknown.
func OriginFault(c *Checkpoint, want Origin, topic string) *Fault {
	fault := &Fault{Class: Permanent, Code: "source", Reason: ReasonSource}
	switch {
	case c.Topic != topic && c.Topic != "" && topic != "":
		fault.HintCode = HintOtherTopic
		fault.Err = fmt.Errorf("the checkpoint belongs to topic %s, the configuration names %s", c.Topic, topic)
	case !c.Origin.Same(want):
		switch fault.HintCode = HintOrigin; {
		case want.End != 0 && c.Origin.Start != want.Start:
			fault.HintCode = HintOtherStart
		case c.Origin.Follow != want.Follow:
			fault.HintCode = HintFollow
		}
		fault.Err = fmt.Errorf("the checkpoint was written with %s, the configuration has %s", c.Origin, want)
	default:
		return RequestFault(c, want.Request)
	}
	return fault
}

// PendingSource returns the Digest of the request that a reset has accepted, until a page
// of that request is committed; empty if there is none.
func (c *Checkpoint) PendingSource() string {
	if c.Change == nil || c.Change.AcceptSource == c.Origin.Request.Digest() {
		return ""
	}
	return c.Change.AcceptSource
}

// Accepts reports whether want is the PendingSource.
func (c *Checkpoint) Accepts(want Fingerprint) bool {
	pending := c.PendingSource()
	return pending != "" && pending == want.Digest()
}

// RequestChange returns how the request want differs from the request that returned the
// cursor of c. A request that a reset has accepted does not differ.
func (c *Checkpoint) RequestChange(want Fingerprint) RequestChange {
	if c.Accepts(want) {
		return RequestChange{}
	}
	return c.Origin.Request.Changed(want, c.Cursor)
}

// RequestFault returns the fault of a stream at c whose settings request another list than
// that of the cursor; nil if it may be the same list.
func RequestFault(c *Checkpoint, want Fingerprint) *Fault {
	change := c.RequestChange(want)
	if len(change.Other) == 0 {
		return nil
	}
	return BlockHintf("source", ReasonSource, HintRequest,
		"the settings request another list than the stream's: %s changed "+
			"(these settings are source %s, the stream's is %s)", change, want.Digest(), c.Origin.Request.Digest())
}

// SameRoutesHint is the hint for topics and routes that RoutesConflict rejects.
const SameRoutesHint = "set KAFKA_TOPIC and KAFKA_ROUTES as for the bridge; to change the stream's routes, " +
	"restart the bridge first"

// RoutesConflict returns how a topic and routes, a Routes.Text, differ from those of the
// stream at c. It returns nil if they do not, or if the stream has not started. Whatever
// publishes for a stream must have its topic and routes.
func (c *Checkpoint) RoutesConflict(topic, routes string) error {
	switch {
	case c.Zero():
	case c.Topic != topic && c.Topic != "":
		return fmt.Errorf("KAFKA_TOPIC is %s, but stream %s publishes to %s", topic, c.Stream, c.Topic)
	case c.Routes != routes:
		return fmt.Errorf("KAFKA_ROUTES is %q, but stream %s publishes by %q", routes, c.Stream, c.Routes)
	}
	return nil
}

// SameOriginHint is the hint for settings that OriginConflict rejects.
const SameOriginHint = "set EXPORT_RESOURCE, EXPORT_EVENTS and EXPORT_ITEM_ID as for the bridge"

// OriginConflict returns how the resource, the event types or the ids of want differ from those
// of the stream at c. It returns nil if they do not, or if the stream has not started.
func (c *Checkpoint) OriginConflict(want Origin) error {
	have := c.Origin.selection()
	if c.Zero() || have == want.selection() {
		return nil
	}
	return fmt.Errorf("the stream exports %s, these settings request %s", have, want.selection())
}

// selection describes the events, and their ids, for people.
func (o Origin) selection() string {
	text := o.Resource
	if len(o.Events) > 0 {
		text += " (" + strings.Join(o.Events, ", ") + ")"
	}
	if o.ItemID != "" {
		text += ", ids at " + o.ItemID
	}
	return text
}

// BoundText describes a bound of an export for people; 0 is the earliest event.
func BoundText(ms int64) string {
	if ms == 0 {
		return "the earliest event"
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano)
}

// StartText describes the start for people.
func (o Origin) StartText() string { return BoundText(o.Start) }

// String describes the origin for people.
func (o Origin) String() string {
	end := "no end"
	if o.End != 0 {
		end = "end " + BoundText(o.End)
	}
	events := "all events"
	if len(o.Events) > 0 {
		events = "events " + strings.Join(o.Events, ",")
	}
	if o.ItemID != "" {
		events += ", ids at " + o.ItemID
	}
	if o.Follow != "" {
		events += ", by " + o.Follow
	}
	return fmt.Sprintf("resource %s, %s, start %s, %s", o.Resource, events, o.StartText(), end)
}
