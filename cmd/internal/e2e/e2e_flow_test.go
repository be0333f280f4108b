//go:build unix

package e2e_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
)

func TestE2EMillion(t *testing.T) {
	t.Parallel()
	n := int(size(t, "E2E_EVENTS", 20_000, 200_000))
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
	s.simulate()
	began := time.Now()
	run := s.run("--once")
	memory := run.memory()
	run.wantExit(0, 10*time.Minute)
	took, peak := time.Since(began), memory()
	if n >= 200_000 && peak >= maxMemory {
		t.Errorf("run used %d MB, want less than %d", peak>>20, maxMemory>>20)
	}
	c := s.read()
	c.wantAll(n, 0)
	t.Logf("e2e: million: %d events in %.1f s (%.0f/s), %d lost, %d twice, peak memory of run %d MB",
		n, took.Seconds(), float64(n)/took.Seconds(), c.lost(n), c.twice(), peak>>20)
	s.readWithKcat(n)
}

// readWithKcat reads the topic of a real server once more, with a consumer that
// shares nothing with the bridge. It wants n events and no copies.
func (s *stage) readWithKcat(n int) {
	s.t.Helper()
	if !servers.Real(s.t) {
		return
	}
	kcat, err := exec.LookPath("kcat")
	if err != nil {
		s.t.Logf("e2e: kcat is not installed, the topic was read with one client only")
		return
	}
	cmd := exec.CommandContext(s.t.Context(), kcat, "-C", "-b", s.servers.brokers, "-t", s.topic, "-o", "beginning",
		"-e", "-q",
		"-X", "isolation.level=read_committed")
	out := must.Get(cmd.StdoutPipe())(s.t)
	must.Do(s.t, cmd.Start())
	seen, wrong, twice := make([]bool, n), 0, 0
	for lines := bufio.NewReaderSize(out, 1<<20); ; {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		i, ok := exportsim.IndexOf(line)
		switch {
		case err != nil:
			s.t.Fatalf("read from kcat: %v", err)
		case !ok || i >= n || !bytes.Equal(s.truth.Event(i), bytes.TrimSuffix(line, []byte("\n"))):
			wrong++
		case seen[i]:
			twice++
		default:
			seen[i] = true
		}
	}
	if err := cmd.Wait(); err != nil {
		s.t.Fatalf("kcat: %v", err)
	}
	lost := 0
	for _, ok := range seen {
		if !ok {
			lost++
		}
	}
	if lost+wrong+twice > 0 {
		s.t.Errorf("kcat finds %d events lost, %d wrong, %d twice", lost, wrong, twice)
	}
	s.t.Logf("e2e: kcat: %d events, %d lost, %d wrong, %d twice", n, lost, wrong, twice)
}

// delivery is a guarantee and how the export ends.
type delivery struct {
	mode bridge.Mode
	end  exportsim.EndOfResults
}

func (d delivery) String() string { return fmt.Sprintf("%s,%s", d.mode, d.end) }

// deliveries are both guarantees, each with the ends of the results.
func deliveries(ends ...exportsim.EndOfResults) (all []delivery) {
	for _, mode := range []bridge.Mode{bridge.ExactlyOnce, bridge.AtLeastOnce} {
		for _, end := range ends {
			all = append(all, delivery{mode, end})
		}
	}
	return all
}

func TestE2EContracts(t *testing.T) {
	t.Parallel()
	const rate = 20
	length := time.Duration(size(t, "E2E_MINUTES", 2.0/60, 10.0/60) * float64(time.Minute))
	v := startServers(t, owned{})
	ends := []exportsim.EndOfResults{exportsim.EmptyCursor, exportsim.NullCursor, exportsim.NoCursor, exportsim.EmptyItems}
	each(t, false, deliveries(ends...), func(t *testing.T, d delivery) {
		s := newStage(t, v, exportsim.Config{Events: 130, Rate: rate, EndOfResults: d.end})
		s.deliver(d.mode)
		s.settings["EXPORT_PAGE_SIZE"] = "25" // so that pages get full while they are polled
		s.settings["EXPORT_POLL_INTERVAL"], s.settings["EXPORT_POLL_INTERVAL_MAX"] = "100ms", "100ms"
		s.simulate()
		run := s.run()
		s.awaitPublished(130)
		began, before := time.Now(), s.metric("source_requests_total")
		passes(length)
		perSecond := (s.metric("source_requests_total") - before) / time.Since(began).Seconds()
		// Ten polls and the pages that get full. Where only a page without
		// items is the end, news costs one more request to find it.
		most := 15.0
		if d.end == exportsim.EmptyItems {
			most = 25
		}
		if perSecond >= most {
			t.Errorf("%.1f requests/s while caught up, want less than %.0f", perSecond, most)
		}
		polled := s.published()
		run.stop()
		least := s.stock(100)
		s.finish()
		c := s.read()
		n := len(c.copies)
		if n < least || n > s.stock(100) {
			t.Errorf("%d events are in the topic, the export had %d before", n, least)
		}
		if grown := polled - 130; float64(grown) < 0.8*rate*length.Seconds()-rate {
			t.Errorf("%d events came while caught up within %s, want about %.0f", grown, length, rate*length.Seconds())
		}
		c.wantAll(n, 0)
		t.Logf("e2e: contract %s: %s at a poll of 100ms, %.1f requests/s, %d events, %d lost, %d twice",
			d, length, perSecond, n, c.lost(n), c.twice())
	})
}

// TestE2ETailInterrupted: tail follows the topic until it is interrupted, which
// is no failure.
func TestE2ETailInterrupted(t *testing.T) {
	t.Parallel()
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: 10})
	s.simulate()
	s.finish()
	tail := s.start("tail", "-o", "start")
	eventually(t, stepTimeout, "the events", func() bool { return bytes.Count(tail.stdout(), []byte("\n")) == 10 })
	tail.signal(os.Interrupt)
	tail.wantExit(0, stepTimeout)
}
