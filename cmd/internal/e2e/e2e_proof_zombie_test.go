//go:build unix

package e2e_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
)

// shortSession is the session time-out of tests that wait for it.
const shortSession = time.Second

// bridgeNamed starts a bridge with an instance id of its own, empty for none,
// and an address of its own.
func (s *stage) bridgeNamed(id string) *program {
	s.t.Helper()
	was := maps.Clone(s.settings)
	defer func() { s.settings = was }()
	s.settings["HTTP_ADDR"], s.settings["BRIDGE_INSTANCE_ID"] = servers.FreeAddress(s.t), id
	return s.run()
}

// end ends a bridge by SIGKILL or SIGTERM, and wants exit code 0 after the latter. A deadly
// bridge is to die at a point of the protocol, and may do so first. SIGTERM waits for the
// first line of the log: it kills a bridge that does not handle signals yet.
func (p *program) end(by syscall.Signal, deadly bool) {
	p.t.Helper()
	if by == syscall.SIGTERM {
		eventually(p.t, outageTimeout, p.name+" to log", func() bool { return len(p.stderr()) > 0 || !p.running() })
	}
	p.signal(by)
	code := p.wait(outageTimeout)
	if died := code == -1 && (deadly || by == syscall.SIGKILL); !died && (code != 0 || by == syscall.SIGKILL) {
		p.t.Fatalf("%s ended with exit code %d\n%s", p.name, code, tail(p.stderr()))
	}
}

// inState reports whether a bridge is in the state.
func (p *program) inState(state string) bool {
	return p.metric("state", fmt.Sprintf("state=%q", state)) >= 1
}

// awaitMore waits until a bridge has published more events than it had.
func (p *program) awaitMore(than int) {
	p.t.Helper()
	eventually(p.t, outageTimeout, p.name+" to publish", func() bool { return p.published() > than })
}

// settledFor is how long the same one of two bridges must have had the stream.
const settledFor = time.Second

// settle waits until both bridges are in the group and one of them has run the
// stream for a moment, and returns since when. Before a bridge has joined, it
// stands by too, and its joining may take the stream from the other.
func (s *stage) settle(a, b *program) (holder, other *program, since time.Time) {
	s.t.Helper()
	client := servers.Client(s.t, s.settings["KAFKA_BROKERS"], kgo.DisableClientMetrics())
	defer client.Close()
	eventually(s.t, outageTimeout, "one of two bridges to stand by", func() bool {
		has := holder
		switch first, second := a.inState("standby"), b.inState("standby"); {
		case first == second:
			holder = nil
			return false
		case first:
			holder, other = b, a
		default:
			holder, other = a, b
		}
		if holder != has || !holder.inState("running") && !holder.inState("idle") {
			since = time.Now()
		}
		return time.Since(since) > settledFor && s.members(client) == 2
	})
	return holder, other, since
}

// members counts the processes in the groups of the stream.
func (s *stage) members(client *kgo.Client) int {
	s.t.Helper()
	groups, err := kadm.NewClient(client).DescribeGroups(s.t.Context(),
		s.settings["BRIDGE_GROUP"]+".events", s.settings["BRIDGE_GROUP"]+".FLEET")
	if err != nil {
		return 0 // asked again
	}
	n := 0
	for _, g := range groups {
		if g.State == "Stable" {
			n += len(g.Members)
		}
	}
	return n
}

func TestE2EProofZombies(t *testing.T) {
	t.Parallel()
	rounds, seed := int(size(t, "E2E_ZOMBIES", 2, 3)), seedOf(t)
	s := proofStage(t, startServers(t, owned{quick: true}), exportsim.Config{Events: rounds * 10_000, Rate: 200,
		Latency: 5 * time.Millisecond})
	s.settings["BRIDGE_SESSION_TIMEOUT"] = shortSession.String()
	s.simulate()
	z := &zombies{s: s, random: rand.New(rand.NewPCG(seed, 2))}
	began := time.Now()
	for round := range rounds {
		// Embedded Kafka lets who joins wait half a minute for who is paused.
		if round%2 == 0 || !servers.Real(t) {
			z.atSomeMoment()
		} else {
			z.atPoint(pick(z.random, points))
		}
	}
	took := time.Since(began)
	n, c := s.drain()
	t.Logf("e2e: proof, zombies: %d paused (%v) and continued after the take-over in %.1f s, %d events: %d lost, %d "+
		"twice; taken over after %s, settled after %s, E2E_SEED=%d",
		rounds, z.where, took.Seconds(), n, c.lost(n), c.twice(), quantiles(z.taken), quantiles(z.settled), seed)
}

// zombies pauses the owner of a stream for so long that another process takes
// the stream over, and lets it go on then.
type zombies struct {
	s              *stage
	random         *rand.Rand
	where          []string
	taken, settled []time.Duration
}

func (z *zombies) atSomeMoment() {
	z.s.t.Helper()
	z.where = append(z.where, "some moment")
	first := z.s.bridgeNamed("a")
	first.awaitMore(0)
	holder, other, _ := z.s.settle(first, z.s.bridgeNamed("b"))
	z.pass(300 * time.Millisecond)
	holder.signal(syscall.SIGSTOP)
	z.wake(holder, other)
}

// atPoint has the owner pause itself.
func (z *zombies) atPoint(p string) {
	z.s.t.Helper()
	at := nthOf(z.random, p, 20)
	z.where = append(z.where, at)
	z.s.settings["PROOF_CRASH"] = at + ":stop"
	holder := z.s.bridgeNamed("a")
	delete(z.s.settings, "PROOF_CRASH")
	eventually(z.s.t, outageTimeout, holder.name+" to stop at "+at, holder.paused)
	z.wake(holder, z.s.bridgeNamed("b"))
}

// wake lets a paused owner go on when the other one has the stream, and wants
// one of them to go on with it.
func (z *zombies) wake(paused, other *program) {
	z.s.t.Helper()
	stopped := time.Now()
	other.awaitMore(other.published())
	z.taken = append(z.taken, time.Since(stopped))
	z.pass(300 * time.Millisecond)
	paused.signal(syscall.SIGCONT)
	woken := time.Now()
	// Which of the two goes on is up to the group.
	holder, standby, since := z.s.settle(other, paused)
	z.settled = append(z.settled, max(0, since.Sub(woken)))
	holder.awaitMore(holder.published())
	holder.stop()
	standby.stop()
}

func (z *zombies) pass(most time.Duration) { passes(time.Duration(z.random.Int64N(int64(most)))) }

// paused reports whether the system says that the process is stopped.
func (p *program) paused() bool {
	out, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(p.cmd.Process.Pid)).Output()
	return err == nil && strings.HasPrefix(strings.TrimSpace(string(out)), "T")
}
