package bench

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"exportbridge/bridge"
)

// apiServer is the URL of an export API of one kind.
type apiServer string

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// run measures one cell, with topics and a prefix for this run, and checks that
// Kafka has every event.
func (b *bench) run(ctx context.Context, c cell) (m measurement, err error) {
	limit := c.limit()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it did not end within %s", limit))
	defer cancel()
	name := newName()
	if c.writes() {
		defer func() { err = errors.Join(err, b.remove(context.WithoutCancel(ctx), name, c.routes(name)...)) }()
		if err := b.backend.create(ctx, name, c.routes(name)...); err != nil {
			return measurement{}, err
		}
	}
	switch {
	case c.kills > 0:
		return b.refetch(ctx, c, name)
	case c.growing:
		return b.age(ctx, c, name)
	case c.members > 0:
		return b.lanes(ctx, c, name)
	}
	if m, err = b.drain(ctx, c, name); err == nil && c.writes() {
		err = b.holds(ctx, c.mode, c.pages*pageEvents, append(c.routes(name), name)...)
	}
	return m, err
}

// newName returns a name for the topics, keys and groups of one run.
func newName() string { return "bench-" + strings.ToLower(rand.Text()[:10]) }

// holds checks that the topics have an offset for each event, and in exactly-once mode some for
// transaction markers. Reading the records would take longer than the measured run.
func (b *bench) holds(ctx context.Context, mode bridge.Mode, events int, topics ...string) error {
	offsets, err := b.backend.offsets(ctx, topics...)
	if more := offsets - int64(events); err == nil && (more < 0 || more > 0 && mode != bridge.ExactlyOnce) {
		err = fmt.Errorf("kafka has %d records of %d events", offsets, events)
	}
	return err
}

// settings are the environment of a cell's process that follows the API.
func (b *bench) settings(c cell, name string, api apiServer) []string {
	set := []string{
		"EXPORT_URL=" + string(api), "EXPORT_API_KEY=bench", fmt.Sprintf("EXPORT_PAGE_SIZE=%d", pageEvents),
		"KAFKA_BROKERS=" + b.kafkaAddr[c.kafka], "KAFKA_TOPIC=" + name, "KAFKA_DLQ_TOPIC=" + deadLetters(name),
		"KAFKA_DELIVERY=" + string(c.mode),
		"KAFKA_CHECKPOINT_TOPIC=" + checkpoints(name), "KAFKA_CREATE_TOPICS=true", "BRIDGE_GROUP=" + name,
		"REDIS_URL=redis://" + b.redisAddr, "CURSOR_PREFIX=" + name,
		"HTTP_ADDR=off", "LOG_FORMAT=json", "LOG_LEVEL=info",
	}
	if c.redisFar {
		set = append(set, "REDIS_URL=redis://"+b.redisFar) // the last one of a variable counts
	}
	if c.codec != "" {
		set = append(set, "KAFKA_COMPRESSION="+c.codec)
	}
	if c.routed {
		set = append(set, "KAFKA_ROUTES="+strings.ReplaceAll("page*=T.pages,order*=T.orders,*Changed=T.changes", "T", name))
	}
	if c.private {
		set = append(set, "EVENT_DROP=/context/url", "EVENT_HASH=/userId", "EVENT_MASK=/sessionId:last4",
			"EVENT_HASH_KEY=k1 "+base64.StdEncoding.EncodeToString(make([]byte, 32)))
	}
	return set
}

// part returns the part that a cell's process runs.
func (b *bench) part(c cell) part {
	p := part{Kind: c.work, Without: c.without}
	if c.work == workBackfill {
		n, end := strconv.Itoa(c.windows), exportStart.Add(time.Duration(c.pages*pageEvents)*exportEvery)
		p.Backfill = []string{
			"--from", exportStart.Format(time.RFC3339), "--to", end.Format(time.RFC3339Nano),
			"--windows", n, "--parallel", n, "--execute", "--json",
		}
	}
	if b.profile != "" && c.work == workBridge && !c.warming {
		file := filepath.Join(b.profile, strings.NewReplacer(", ", "_", " ", "-").Replace(c.String()))
		p.CPUFile, p.AllocsFile = file+".cpu", file+".allocs"
	}
	return p
}

// A process is stuck after stuckTimes the time of its pages plus stuckAfter. Without latency, a
// page takes about flatPage.
const (
	stuckAfter = 2 * time.Minute
	stuckTimes = 10
	flatPage   = 5 * time.Millisecond
)

// limit returns how long a run of the cell may take.
func (c cell) limit() time.Duration {
	return stuckAfter + stuckTimes*time.Duration(c.pages)*max(c.api.Latency, flatPage)
}

// drain measures a process that ends by itself. It reads the API's clock before and
// after.
func (b *bench) drain(ctx context.Context, c cell, name string) (measurement, error) {
	api := b.apis[c.api]
	if _, err := api.restart(ctx, c.pages*pageEvents); err != nil {
		return measurement{}, err
	}
	before := b.brokerCPU()
	out, err := b.processes.run(ctx, b.settings(c, name, api), b.part(c))
	if err != nil {
		return measurement{}, err
	}
	used := max(0, b.brokerCPU()-before)
	var end partEnd
	var job jobState
	report := any(&end)
	if c.work == workBackfill {
		report = &job
	}
	if err := json.Unmarshal(out.stdout, report); err != nil {
		return measurement{}, fmt.Errorf("read its report: %w", err)
	}
	switch c.work {
	case workBridge:
		if end.Ended, err = lastCommit(out.stderr); err != nil {
			return measurement{}, err
		}
	case workBackfill: // the job changed last when all windows were done
		end.Ended = time.UnixMilli(job.Changed)
	}
	clock, err := api.restart(ctx, 0)
	if err != nil {
		return measurement{}, err
	}
	if clock.Requests != c.requests() {
		return measurement{}, fmt.Errorf("%d requests for %d pages, want %d: one for each and one for each end",
			clock.Requests, c.pages, c.requests())
	}
	m := c.measured(end, clock, out.cpuSeconds)
	m.BrokerCPUSeconds = used
	return m, nil
}

// measured returns the measurement of a process that has ended.
func (c cell) measured(end partEnd, clock apiClock, cpuSeconds float64) measurement {
	s := measurement{
		Requests: clock.Requests, Events: c.pages * pageEvents, CPUSeconds: cpuSeconds,
		PeakRSS: end.PeakRSS, Mallocs: end.Mallocs, Transactions: end.Transactions,
	}
	began := clock.First
	if !end.Began.IsZero() { // after the last request
		began, s.Events, s.CPUSeconds = end.Began, end.Events, end.CPUSeconds
	}
	s.Seconds = end.Ended.Sub(began).Seconds()
	return s
}

// restart sets the number of events of the export, and reads and resets its
// clock.
func (a apiServer) restart(ctx context.Context, events int) (apiClock, error) {
	return a.ask(ctx, http.MethodPost, fmt.Sprintf("?events=%d", events))
}

// ask reads the clock of the API. POST also resets it.
func (a apiServer) ask(ctx context.Context, method, query string) (clock apiClock, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read the clock of the API: %w", err)
		}
	}()
	req, err := http.NewRequestWithContext(ctx, method, string(a)+clockPath+query, http.NoBody)
	if err != nil {
		return clock, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return clock, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(resp.Body).Decode(&clock)
	return clock, err
}

// lastCommit finds in the log of a bridge when the last commit was acknowledged:
// the engine logs the end of the run right after it.
func lastCommit(log []byte) (time.Time, error) {
	for line := range strings.Lines(string(log)) {
		var entry struct {
			Time time.Time `json:"time"`
			Msg  string    `json:"msg"`
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "run ended" {
			return entry.Time, nil
		}
	}
	return time.Time{}, errors.New(`its log has no "run ended"`)
}
