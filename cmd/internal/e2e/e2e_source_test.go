//go:build unix

package e2e_test

import (
	"regexp"
	"testing"

	"exportbridge/bridge/exportapi/exportsim"
)

// TestE2EAcceptWithStandby: two bridges with settings of another list, each of which lets
// the other have the stream, take the reset that accepts these settings at once.
func TestE2EAcceptWithStandby(t *testing.T) {
	t.Parallel()
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: 100})
	s.simulate()
	s.finish()
	s.settings["EXPORT_PARAMS"] = "team=b"
	a, b := s.bridgeNamed("a"), s.bridgeNamed("b")
	blocked := func() bool { return a.inState("blocked") && b.inState("blocked") }
	eventually(t, outageTimeout, "both bridges to be blocked", blocked)
	found := regexp.MustCompile(`these settings are source ([0-9a-f]{8})`).FindSubmatch(append(a.stderr(), b.stderr()...))
	if found == nil {
		t.Fatal("neither bridge names its source")
	}
	_, took := s.command(0, "cursor", "reset", "--to-current", "--accept-source", string(found[1]), "--execute")
	t.Logf("e2e: applied after %s", took)
	eventually(t, outageTimeout, "a bridge to go on", func() bool { return a.inState("idle") || b.inState("idle") })
}
