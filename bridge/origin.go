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
		return nil
	}
	return fault
}
