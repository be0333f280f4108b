package bridge_test

import (
	"strings"
	"testing"

	"exportbridge/bridge"
)

// The tail of a checkpoint has the items' identities: other ids would publish it
// again. A checkpoint that names none has the resource's.
func TestOriginOfOtherIDs(t *testing.T) {
	t.Parallel()
	old := bridge.Origin{Resource: "events"}
	mapped := bridge.Origin{Resource: "events", ItemID: "/id"}
	for _, c := range []struct {
		have, want bridge.Origin
		blocked    string
	}{
		{old, old, ""}, {mapped, mapped, ""},
		{old, mapped, "the configuration has resource events, all events, ids at /id, start"},
		{mapped, old, "written with resource events, all events, ids at /id, start"},
		{mapped, bridge.Origin{Resource: "events", ItemID: "none"}, "ids at none"},
	} {
		fault := bridge.OriginFault(&bridge.Checkpoint{Origin: c.have}, c.want, "")
		switch {
		case c.blocked == "":
			if fault != nil {
				t.Errorf("%s with %s: %v", c.have, c.want, fault)
			}
		case fault == nil || fault.Reason != bridge.ReasonSource || !strings.Contains(fault.Error(), c.blocked):
			t.Errorf("%s with %s: fault %v, want %q", c.have, c.want, fault, c.blocked)
		}
	}
}
