package e2e_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/faultproxy"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
)

const (
	soakFault  = 5 * time.Second // from one fault to the next
	soakSample = 5 * time.Second
	soakRate   = 500 // events/s
	heapEvery  = 12  // samples
	// soakGrowth is how much the memory of the last third of a soak may be
	// above that of the first third after the warm-up.
	soakGrowth = 1.05
	// soakSlack is how many goroutines and open files more there may be: those
	// of connections that have just been made.
	soakSlack = 8
)

// vital is what a process holds at one moment.
type vital struct {
	at                time.Duration // since the start
	memory            int64         // bytes
	heap              int64         // bytes that are in use after a collection
	goroutines, files int
	published         int
	lag               time.Duration
}

// TestE2ESoak lets one bridge run for a long time while everything around it
// breaks: memory, goroutines and open files must not grow, and in the end every
// event is there once.
func TestE2ESoak(t *testing.T) {
	if os.Getenv("SOAK_MINUTES") == "" {
		t.Skip("it takes long: make soak")
	}
	if !servers.Real(t) {
		t.Fatal("a soak is for the real servers: TEST_REAL=1")
	}
	length, seed := time.Duration(size(t, "SOAK_MINUTES", 0, 30)*float64(time.Minute)), seedOf(t)
	v, p := proxied(t)
	r := servers.StartRedis(t, servers.RedisOptions{Own: true})
	v.redisURL, v.redis = r.URL(), r
	v.redisDown = outage(t, r.Kill, r.Start)
	s := newStage(t, v, exportsim.Config{Events: 10_000, Rate: soakRate, Latency: 5 * time.Millisecond})
	s.settings["HTTP_PPROF"] = "true"
	s.settings["EXPORT_RETRY_MAX_INTERVAL"], s.settings["EXPORT_POLL_INTERVAL_MAX"] = "2s", "1s"
	s.store = s.redis()
	s.simulate()
	api := faultproxy.StartTCPProxy(t, strings.TrimPrefix(s.api, "http://"))
	s.settings["EXPORT_URL"] = "http://" + api.Addr()
	w := &weather{s: s, kafka: p, api: api, random: rand.New(rand.NewPCG(seed, 6)), count: make(map[string]int)}
	run := s.run()
	s.awaitPublished(10_000)

	began := time.Now()
	over, broken := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(broken)
		tick := time.NewTicker(soakFault)
		defer tick.Stop()
		for {
			select {
			case <-over:
				w.clear()
				return
			case <-tick.C:
				w.turn()
			}
		}
	}()
	var all []vital
	tick := time.NewTicker(soakSample)
	defer tick.Stop()
	for time.Since(began) < length {
		<-tick.C
		if !run.running() {
			t.Fatalf("the bridge has ended\n%s", tail(run.stderr()))
		}
		v := run.vitals(t, time.Since(began))
		if len(all)%heapEvery == 0 { // seldom: it makes the process collect
			v.heap = run.profiled(t, "heap?gc=1&debug=1", "# HeapAlloc = ")
		} else {
			v.heap = all[len(all)-1].heap
		}
		all = append(all, v)
	}
	close(over)
	<-broken
	eventually(t, outageTimeout, "caught up", func() bool { return s.metric("caught_up") == 1 })
	run.stop()
	n, c := s.drain()
	logVitals(t, all)
	judgeVitals(t, all)
	faults := 0
	for _, times := range w.count {
		faults += times
	}
	t.Logf("e2e: soak: %s, %d faults %v, %d events: %d lost, %d twice, E2E_SEED=%d", length, faults, w.count, n,
		c.lost(n), c.twice(), seed)
}

// vitals takes a sample of a process.
func (p *program) vitals(t *testing.T, at time.Duration) vital {
	t.Helper()
	v := vital{at: at, goroutines: int(p.profiled(t, "goroutine?debug=1", "goroutine profile: total ")),
		published: p.published()}
	if position := p.metric("source_position_timestamp_seconds"); position > 0 {
		v.lag = max(0, time.Since(time.UnixMilli(int64(position*1000))))
	}
	pid := p.cmd.Process.Pid
	files := must.Get(os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)))(t)
	v.files = len(files)
	statm := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)))(t)
	pages := must.Get(strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64))(t)
	v.memory = pages * int64(os.Getpagesize())
	return v
}

// profiled returns the number that follows a text in a profile of the process.
func (p *program) profiled(t *testing.T, profile, text string) int64 {
	t.Helper()
	resp := must.Get(http.Get("http://" + p.ops + "/debug/pprof/" + profile))(t)
	defer resp.Body.Close()
	body := must.Get(io.ReadAll(resp.Body))(t)
	_, rest, _ := strings.Cut(string(body), text)
	digits, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		t.Fatalf("the profile %s has no %q: %v", profile, text, err)
	}
	return n
}

// thirds are the samples after the warm-up, a fifth of all: the first third of
// them, and the last.
func thirds(all []vital) (first, last []vital) {
	warm := all[len(all)/5:]
	return warm[:len(warm)/3], warm[len(warm)-len(warm)/3:]
}

func middle(all []vital, of func(vital) int64) int64 {
	values := make([]int64, 0, len(all))
	for _, v := range all {
		values = append(values, of(v))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func judgeVitals(t *testing.T, all []vital) {
	t.Helper()
	first, last := thirds(all)
	if len(first) == 0 {
		t.Fatalf("only %d samples", len(all))
	}
	compare := func(what string, of func(vital) int64, most func(before int64) int64) {
		before, after := middle(first, of), middle(last, of)
		t.Logf("e2e: soak: %s: %d in the first third after the warm-up, %d in the last (medians)", what, before, after)
		if after > most(before) {
			t.Errorf("%s grew from %d to %d", what, before, after)
		}
	}
	some := func(before int64) int64 { return before + soakSlack }
	compare("memory in KB", func(v vital) int64 { return v.memory >> 10 },
		func(before int64) int64 { return int64(float64(before) * soakGrowth) })
	compare("heap in KB", func(v vital) int64 { return v.heap >> 10 },
		func(before int64) int64 { return int64(float64(before) * soakGrowth) })
	compare("goroutines", func(v vital) int64 { return int64(v.goroutines) }, some)
	compare("open files", func(v vital) int64 { return int64(v.files) }, some)
}

// logVitals prints a line for each thirtieth of the time.
func logVitals(t *testing.T, all []vital) {
	t.Helper()
	text := fmt.Sprintf("%8s %10s %8s %11s %6s %10s %8s\n", "at", "memory MB", "heap MB", "goroutines", "files",
		"events/s", "lag s")
	step := max(1, len(all)/30)
	for i := step; i < len(all); i += step {
		v, before := all[i], all[i-step]
		text += fmt.Sprintf("%8s %10.1f %8.1f %11d %6d %10.0f %8.1f\n", v.at.Round(time.Second), float64(v.memory)/1e6,
			float64(v.heap)/1e6, v.goroutines, v.files,
			float64(v.published-before.published)/(v.at-before.at).Seconds(), v.lag.Seconds())
	}
	t.Logf("e2e: soak:\n%s", text)
}
