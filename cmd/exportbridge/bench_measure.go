package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// stretch is one measured run of a process, from the first request that
// reached the API to its end.
type stretch struct {
	Seconds  float64    `json:"seconds"`
	Requests int        `json:"requests"`
	Use      processUse `json:"process"`
}

// measurement is one round at one latency.
type measurement struct {
	Round     int     `json:"round"`
	LatencyMS float64 `json:"latency_ms"`
	Fetch     stretch `json:"fetch_only"`
	Pipeline  stretch `json:"pipeline"`
}

// fetchOnly is the latency's share of the loop's time.
func (m *measurement) fetchOnly() float64 {
	return float64(m.Fetch.Requests) * m.LatencyMS / 1000 / m.Fetch.Seconds
}

// serialFraction is the loop's share of the bridge's time.
func (m *measurement) serialFraction() float64 { return m.Fetch.Seconds / m.Pipeline.Seconds }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// task is a process to measure.
type task struct {
	name string
	api  *benchAPI
	env  []string
	args []string
	// end finds in the output when the process was done with its work.
	end func(output) (time.Time, error)
}

// fetchOnly measures the loop that only fetches.
func (b *bench) fetchOnly(ctx context.Context, api *benchAPI) (stretch, error) {
	return b.timed(ctx, task{
		name: "fetch only", api: api, env: exportSettings(api), args: []string{"bench", "fetch"},
		end: func(out output) (time.Time, error) {
			var end fetchEnd
			if err := json.Unmarshal(out.stdout, &end); err != nil {
				return time.Time{}, fmt.Errorf("read its report: %w", err)
			}
			return end.Ended, nil
		},
	})
}

// pipeline measures the bridge on a topic and a prefix of its own, and checks
// that Kafka has every event.
func (b *bench) pipeline(ctx context.Context, api *benchAPI) (s stretch, err error) {
	name := "bench-" + strings.ToLower(rand.Text()[:10])
	defer func() { err = errors.Join(err, b.traces.remove(context.WithoutCancel(ctx), name)) }()
	if err := b.traces.create(ctx, name); err != nil {
		return stretch{}, err
	}
	s, err = b.timed(ctx, task{
		name: "pipeline", api: api, args: []string{"run", "--once"},
		env: append(exportSettings(api),
			"KAFKA_BROKERS="+b.kafkaAddr, "KAFKA_TOPIC="+name, "KAFKA_DLQ_TOPIC="+deadLetters(name), "KAFKA_DELIVERY="+b.delivery,
			"KAFKA_CHECKPOINT_TOPIC="+checkpoints(name), "KAFKA_CREATE_TOPICS=true", "BRIDGE_GROUP="+name,
			"REDIS_URL="+b.redisURL, "CURSOR_PREFIX="+name,
			"HTTP_ADDR=off", "LOG_FORMAT=json", "LOG_LEVEL=info"),
		end: func(out output) (time.Time, error) { return lastCommit(out.stderr) },
	})
	if err != nil {
		return stretch{}, err
	}
	records, err := b.traces.records(ctx, name)
	if want := int64(b.pages * pageEvents); err == nil && records != want {
		err = fmt.Errorf("pipeline: Kafka has %d records of %d events", records, want)
	}
	return s, err
}

func exportSettings(api *benchAPI) []string {
	return []string{"EXPORT_URL=" + api.url, "EXPORT_API_KEY=bench", fmt.Sprintf("EXPORT_PAGE_SIZE=%d", pageEvents)}
}

// A process that takes this much longer than its requests alone, and this many
// times as long, is given up on.
const (
	stuckAfter = 2 * time.Minute
	stuckTimes = 10
)

// timed runs a process between two readings of the API's clock.
func (b *bench) timed(ctx context.Context, t task) (stretch, error) {
	if _, err := t.api.readClock(ctx); err != nil {
		return stretch{}, err
	}
	limit := stuckAfter + stuckTimes*time.Duration(b.pages)*t.api.latency
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it did not end within %s", limit))
	defer cancel()
	out, err := b.parts.run(ctx, t.name, t.env, t.args...)
	if err != nil {
		return stretch{}, err
	}
	ended, err := t.end(out)
	if err != nil {
		return stretch{}, fmt.Errorf("%s: %w", t.name, err)
	}
	clock, err := t.api.readClock(ctx)
	if err != nil {
		return stretch{}, err
	}
	// One more than the pages: only an empty page says that there are no more.
	if clock.Requests != b.pages+1 {
		return stretch{}, fmt.Errorf("%s: %d requests for %d pages, want one for each and one for the end", t.name, clock.Requests, b.pages)
	}
	return stretch{Seconds: ended.Sub(clock.First).Seconds(), Requests: clock.Requests, Use: out.use}, nil
}

// benchAPI is an export API of one latency.
type benchAPI struct {
	url     string
	latency time.Duration
}

// readClock asks the API for its clock, which starts anew.
func (a *benchAPI) readClock(ctx context.Context) (clock apiClock, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+clockPath, http.NoBody)
	if err != nil {
		return apiClock{}, fmt.Errorf("read the clock of the API: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return apiClock{}, fmt.Errorf("read the clock of the API: %w", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if err := json.NewDecoder(resp.Body).Decode(&clock); err != nil {
		return apiClock{}, fmt.Errorf("read the clock of the API: %w", err)
	}
	return clock, nil
}

// lastCommit finds in the log of a bridge when its last commit was acknowledged:
// the engine says that the run ended right after.
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

// traces is what a bridge leaves on Kafka and Redis.
type traces struct {
	addr  string // of Kafka
	kafka *kgo.Client
	redis *redis.Client
}

func newTraces(kafkaAddr, redisURL string) (*traces, error) {
	opts, err := redis.ParseURL(redisURL)
	if err != nil {
		return nil, errors.New("the URL of Redis is not one") // what it says may hold a password
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(kafkaAddr), kgo.DisableClientMetrics())
	if err != nil {
		return nil, fmt.Errorf("make Kafka client: %w", err)
	}
	return &traces{addr: kafkaAddr, kafka: client, redis: redis.NewClient(opts)}, nil
}

// benchPartitions is what the bridge would create a topic with by default.
const benchPartitions = 6

func deadLetters(topic string) string { return topic + ".dlq" }
func checkpoints(topic string) string { return topic + ".checkpoints" }

// create creates the topics of one run: a bridge that has to create them itself
// starts a second later.
func (t *traces) create(ctx context.Context, name string) error {
	forever := "-1"
	made, err := kadm.NewClient(t.kafka).CreateTopics(ctx, benchPartitions, -1, map[string]*string{"retention.ms": &forever}, name, deadLetters(name))
	if err = errors.Join(err, made.Error()); err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return nil
}

// records counts the committed records of the topic. Offsets will not do: the
// ends of transactions take some.
func (t *traces) records(ctx context.Context, topic string) (int64, error) {
	ends, err := kadm.NewClient(t.kafka).ListEndOffsets(ctx, topic)
	if err = errors.Join(err, ends.Error()); err != nil {
		return 0, fmt.Errorf("count the records of topic %s: %w", topic, err)
	}
	left := make(map[int32]int64)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	reader, err := kgo.NewClient(
		kgo.SeedBrokers(t.addr), kgo.DisableClientMetrics(),
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
	)
	if err != nil {
		return 0, fmt.Errorf("count the records of topic %s: %w", topic, err)
	}
	defer reader.Close()
	var n int64
	for len(left) > 0 {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return 0, fmt.Errorf("count the records of topic %s: %w", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				n++
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return n, nil
}

// removeTimeout bounds the cleaning up where servers do not answer any more.
const removeTimeout = 10 * time.Second

// remove deletes the topics and keys of one run. Those that are not there need
// no deleting.
func (t *traces) remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	admin := kadm.NewClient(t.kafka)
	var errs []error
	if _, err := admin.DeleteGroups(ctx, name+".events"); err != nil {
		errs = append(errs, err)
	}
	deleted, err := admin.DeleteTopics(ctx, name, deadLetters(name), checkpoints(name))
	errs = append(errs, err)
	for _, topic := range deleted.Sorted() {
		if !errors.Is(topic.Err, kerr.UnknownTopicOrPartition) {
			errs = append(errs, topic.Err)
		}
	}
	keys := t.redis.Scan(ctx, 0, name+":*", 1000).Iterator()
	for keys.Next(ctx) {
		errs = append(errs, t.redis.Unlink(ctx, keys.Val()).Err())
	}
	errs = append(errs, keys.Err())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delete what the bench wrote under the name %s: %w", name, err)
	}
	return nil
}

func (t *traces) close() error {
	t.kafka.Close()
	return t.redis.Close()
}
