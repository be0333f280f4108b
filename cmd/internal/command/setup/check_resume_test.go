package setup

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"exportbridge/bridge"
)

// TestCheckLost: only a finished search that finds events, without a checkpoint that was hidden, says that
// the checkpoint is lost.
func TestCheckLost(t *testing.T) {
	t.Parallel()
	unfinished := bridge.BlockHintf("checkpoint-lost", bridge.ReasonCheckpointLost, bridge.HintCheckpointUnknown,
		"the search is not finished")
	away := errors.New("away")
	for name, tc := range map[string]struct {
		held              bool
		heldErr, sinceErr error
		first             bridge.Checkpoint
		level             level
		text              string
	}{
		"no events":            {},
		"no topic":             {heldErr: kerr.UnknownTopicOrPartition},
		"events":               {held: true, level: levelFail, text: "the checkpoint is lost"},
		"events, and it began": {held: true, first: bridge.Checkpoint{Format: 1, Version: bridge.Version{Seq: 1}}},
		"events, still hidden": {held: true, sinceErr: away, level: levelInfo, text: "unknown"},
		"a shared topic":       {heldErr: unfinished, level: levelInfo, text: "unknown"},
		"brokers away":         {heldErr: away, level: levelFail, text: "away"},
	} {
		holds := func(context.Context) (bool, error) { return tc.held, tc.heldErr }
		since := func(_ context.Context, v bridge.Version) (bridge.Checkpoint, error) {
			if v.Compare(tc.first.Version) <= 0 {
				t.Errorf("%s: a checkpoint at %s ends the wait", name, v)
			}
			return tc.first, tc.sinceErr
		}
		found := checkLost(t.Context(), holds, since)
		switch {
		case tc.text == "" && len(found) == 0:
		case len(found) != 1 || found[0].Level != tc.level || !strings.Contains(found[0].Text, tc.text):
			t.Errorf("%s: found %+v", name, found)
		}
	}
}
