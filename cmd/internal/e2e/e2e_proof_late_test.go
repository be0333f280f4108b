//go:build unix

package e2e_test

import (
	"context"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
)

// The ranges of a stream whose events appear much later than at their time.
const (
	lateRate     = 5 // events per second
	lateLookBack = 2 * time.Minute
	lateWithin   = 30 * time.Minute
	// lateReach is how old an event may be that is listed again: two intervals more.
	lateReach = lateWithin + 2*time.Minute + windowsSettle
)

var lateCases = []auditCase{
	{form: "audit-list", lag: lateWithin, within: lateWithin},
	// Longer than what is listed again: some events are left to a repair.
	{form: "audit-list-url", lag: 2 * lateWithin, within: lateWithin},
}

// TestE2EProofLate follows audit lists whose events appear up to half an hour late, and an
// hour late, through kills and a flushed Redis. A repair publishes what was too late.
func TestE2EProofLate(t *testing.T) {
	t.Parallel()
	if !servers.Real(t) {
		t.Skip("it takes minutes: run with TEST_REAL=1 E2E_KILLS=200")
	}
	kills, seed := int(size(t, "E2E_KILLS", 0, 4)), seedOf(t)
	each(t, false, lateCases, func(t *testing.T, c auditCase) {
		s := windowsStage(t, startServers(t, owned{redis: true}), c)
		s.store = s.redis()
		s.finish() // what appears from here on is late
		began, d := time.Now(), newDeaths(s, seed, 4*lateRate)
		d.most = 2
		for n := range kills {
			d.one()
			if n == kills/2 {
				must.Do(t, s.store.FlushAll(t.Context()).Err())
			}
		}
		took := time.Since(began)
		if c.lag > lateReach {
			s.finish()
			s.awaitTooLate(time.Now())
		}
		asOf := time.Now()
		s.finish()
		got := s.readForm()
		missed, parts := s.wantListed(got, c, asOf, t.Errorf)
		if want := c.lag > lateReach; want != (missed > 0) {
			t.Errorf("%d events appeared too late to be seen", missed)
		}
		t.Logf("e2e: proof, late: %s, listed again within %s, %d kills in %.0f s (%s), %d events: %d twice, %d too "+
			"late to be seen, "+
			"%d checkpoints within windows; E2E_SEED=%d", c, c.within, kills, took.Seconds(), ways(d.ways), got.records,
			got.twice(), missed, parts, seed)
		s.repairLate(missed)
	})
}

// awaitTooLate waits until an event has appeared since a time that no listing reaches.
func (s *stage) awaitTooLate(since time.Time) {
	s.t.Helper()
	eventually(s.t, stepTimeout, "an event that is too late", func() bool {
		now := time.Now()
		for i := 0; s.truth.EventTime(i).Before(now); i++ {
			visible := s.truth.VisibleAt(i)
			if visible.After(since) && visible.Before(now) && visible.Sub(s.truth.EventTime(i)) > lateReach {
				return true
			}
		}
		return false
	})
}

// repairLate has verify publish the events that appeared too late, while the stream runs.
func (s *stage) repairLate(missed int) {
	s.t.Helper()
	to := time.Now().Add(-lateReach - time.Minute).Truncate(time.Second)
	run := s.run()
	run.awaitMore(0)
	code := 0
	if missed > 0 {
		code = 3
	}
	asOf := time.Now()
	found := s.verify(code, s.config.Start, to)
	if found.Extra+found.Again > 0 {
		s.t.Errorf("verify finds %d extra, %d twice", found.Extra, found.Again)
	}
	repaired := s.verify(0, s.config.Start, to, "--repair", "--execute")
	if repaired.Repair == nil || repaired.Repair.Events != repaired.Missing {
		s.t.Errorf("of %d missing events the repair published %+v", repaired.Missing, repaired.Repair)
	}
	run.stop()
	s.finish()
	got, lost := s.readForm(), 0
	for i := 0; s.truth.EventTime(i).Before(to); i++ {
		if held := i < len(got.copies) && got.copies[i] > 0; !held && s.truth.VisibleAt(i).Before(asOf) {
			lost++
		}
	}
	if lost > 0 || got.twice() > 0 || got.wrong > 0 {
		s.t.Errorf("after the repair %d events are lost, %d records are copies, %d are wrong", lost, got.twice(), got.wrong)
	}
	s.t.Logf("e2e: proof, late: verify up to %s ago: %d events of the API, %d missing, %d repaired; then %d lost, "+
		"%d twice",
		time.Since(to).Round(time.Second), found.API, found.Missing, repaired.Missing, lost, got.twice())
}

// TestE2EProofPair follows an audit list whose events appear up to half an hour late with
// two processes and three brokers: the owner is suspended until the other process has the
// stream, and in each second round a broker is away meanwhile.
func TestE2EProofPair(t *testing.T) {
	t.Parallel()
	if !servers.Real(t) || os.Getenv("E2E_ZOMBIES") == "" {
		t.Skip("it takes minutes: run with TEST_REAL=1 E2E_ZOMBIES=10")
	}
	rounds, seed := int(size(t, "E2E_ZOMBIES", 0, 0)), seedOf(t)
	k := servers.StartKafka(t, servers.KafkaOptions{Own: true, Brokers: 3, Properties: quickSessions})
	r := servers.StartRedis(t, servers.RedisOptions{Own: true})
	c := lateCases[0]
	s := windowsStage(t, &backends{brokers: strings.Join(k.Addrs(), ","), redisURL: r.URL(), kafka: k, redis: r}, c)
	s.settings["KAFKA_REPLICATION"], s.settings["BRIDGE_SESSION_TIMEOUT"] = "3", shortSession.String()
	z := &zombies{s: s, random: rand.New(rand.NewPCG(seed, 2))}
	began, away := time.Now(), 0
	for round := range rounds {
		back := func() {}
		if round%2 == 1 {
			back = s.breakOne(z.random.IntN(3), round%4 == 1)
			away++
		}
		if z.random.IntN(2) == 0 {
			z.atSomeMoment()
		} else {
			z.atPoint(pick(z.random, points))
		}
		back()
	}
	took, asOf := time.Since(began), time.Now()
	s.finish()
	got := s.readForm()
	missed, parts := s.wantListed(got, c, asOf, t.Errorf)
	t.Logf("e2e: proof, pair: %s on three brokers, %d suspended (%v) until the take-over, %d with a broker away, in "+
		"%.0f s, %d events: %d twice, "+
		"%d too late to be seen, %d checkpoints within windows; taken over after %s, settled after %s; E2E_SEED=%d",
		c, rounds, z.where, away, took.Seconds(), got.records, got.twice(), missed, parts, quantiles(z.taken),
		quantiles(z.settled), seed)
}

// breakOne kills or suspends a broker, and returns what brings it back.
func (s *stage) breakOne(broker int, dead bool) (back func()) {
	s.t.Helper()
	k := s.servers.kafka
	fail, mend := k.Pause, func(context.Context, int) error { return k.Continue(broker) }
	if dead {
		fail, mend = k.Kill, k.Start
	}
	must.Do(s.t, fail(broker))
	return func() {
		ctx, cancel := context.WithTimeout(s.t.Context(), outageTimeout)
		defer cancel()
		must.Do(s.t, mend(ctx, broker))
	}
}
