package bridge

import "fmt"

// Unread reports whether nothing was read yet from the export that c belongs to: a
// bridge then takes changed settings over.
func (c *Checkpoint) Unread() bool {
	return (c.Kind == KindStart || c.Kind == KindHeartbeat) && c.Epoch == 0 && c.Cursor == "" && c.Events == 0 && c.Pages == 0
}

// OriginFault is the fault of a stream at c whose settings have another origin or
// topic; nil if c can be continued. An empty topic is unknown.
func OriginFault(c *Checkpoint, want Origin, topic string) *Fault {
	fault := &Fault{Class: Permanent, Code: "source", Reason: ReasonSource}
	switch {
	case c.Topic != topic && c.Topic != "" && topic != "":
		fault.Advice, fault.Err = HintOtherTopic, fmt.Errorf("the checkpoint belongs to topic %s, the configuration names %s", c.Topic, topic)
	case !c.Origin.Same(want):
		fault.Advice, fault.Err = HintOrigin, fmt.Errorf("the checkpoint was written with %s, the configuration has %s", c.Origin, want)
	default:
		return RequestFault(c, want.Request)
	}
	return fault
}

// PendingSource returns the Digest of the request that a reset has accepted, until c is of
// it; empty if there is none.
func (c *Checkpoint) PendingSource() string {
	if c.Change == nil || c.Change.AcceptSource == c.Origin.Request.Digest() {
		return ""
	}
	return c.Change.AcceptSource
}

// Accepts reports whether a reset has accepted the request want, which c is not of yet.
func (c *Checkpoint) Accepts(want Fingerprint) bool {
	pending := c.PendingSource()
	return pending != "" && pending == want.Digest()
}

// RequestChange returns how the request want differs from the one that the cursor
// of c came from; not at all if a reset has accepted it.
func (c *Checkpoint) RequestChange(want Fingerprint) RequestChange {
	if c.Accepts(want) {
		return RequestChange{}
	}
	return c.Origin.Request.Changed(want, c.Cursor)
}

// RequestFault is the fault of a stream at c whose settings request another list
// than the one that its cursor belongs to; nil if it may be the same.
func RequestFault(c *Checkpoint, want Fingerprint) *Fault {
	change := c.RequestChange(want)
	if len(change.Other) == 0 {
		return nil
	}
	return &Fault{
		Class: Permanent, Code: "source", Reason: ReasonSource, Advice: HintRequest,
		Err: fmt.Errorf("the settings request another list than the stream's: %s changed (these settings are source %s, the stream's is %s)",
			change, want.Digest(), c.Origin.Request.Digest()),
	}
}
