package records

import (
	"errors"
	"io"
	"testing"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/cli"
)

// TestUnseenKeys: beside a topic that may not be looked for, other errors count.
func TestUnseenKeys(t *testing.T) {
	t.Parallel()
	a := &cli.App{Stdio: cli.Stdio{Stderr: io.Discard}}
	denied := bridge.Blockf("denied", bridge.ReasonAuth, "", "denied")
	away := &bridge.Fault{Class: bridge.Transient, Err: errors.New("away")}
	for _, tc := range []struct {
		err  error
		fail bool
	}{
		{nil, false},
		{errors.Join(denied), false},
		{errors.Join(denied, denied), false},
		{away, true},
		{errors.Join(away, denied), true},
		{errors.Join(denied, away), true},
	} {
		if err := unseenKeys(a, "events", tc.err); (err != nil) != tc.fail {
			t.Errorf("%v: %v", tc.err, err)
		}
	}
}
