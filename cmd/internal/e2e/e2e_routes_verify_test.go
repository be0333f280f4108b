//go:build unix

package e2e_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"exportbridge/bridge/exportapi/exportsim"
)

// TestE2ERoutesVerify deletes events from the topic of a route: verify reports them as
// missing, publishes them into that topic, and knows what a route drops.
func TestE2ERoutesVerify(t *testing.T) {
	t.Parallel()
	const n = 3005 // as in TestE2EVerify
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
	s.settings["EXPORT_PAGE_SIZE"], s.settings["KAFKA_ROUTES"] = "200", s.testRoutes()
	s.simulate()
	s.finish()
	orders, gone := s.topic+".orders", kadm.Offsets{}
	from, to := s.times()
	if got := s.verify(0, from, to); got.API != n || got.Missing+got.Extra+got.Again > 0 || got.Held >= n || got.Held == 0 {
		t.Errorf("verify finds %+v", got)
	}
	for partition := range s.ends(orders) {
		gone.AddOffset(orders, partition, 7, -1)
	}
	if _, err := s.admin().DeleteRecords(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	before := s.verify(3, from, to)
	if before.Missing == 0 || before.Extra+before.Again > 0 {
		t.Errorf("verify after the deletion finds %+v", before)
	}
	p := s.run()
	s.awaitPublished(0)
	had := s.held(orders)
	if got := s.verify(0, from, to, "--repair", "--execute"); got.Repair == nil || got.Repair.Events != before.Missing {
		t.Errorf("the repair of %d events finds %+v", before.Missing, got)
	}
	p.stop()
	if now := s.held(orders); now != had+before.Missing {
		t.Errorf("%d records are in %s after the repair, want %d more than %d", now, orders, before.Missing, had)
	}
	if got := s.verify(0, from, to); got.Missing+got.Again > 0 {
		t.Errorf("verify after the repair finds %+v", got)
	}
}
