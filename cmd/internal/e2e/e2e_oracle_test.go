//go:build unix

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
)

// maxComplaints is how many wrong records are shown.
const maxComplaints = 5

// contents is what the topic holds, by index of event.
type contents struct {
	errorf  func(format string, args ...any) // is told what is wrong
	records int
	copies  []int             // of each event
	lanes   map[int32][]int   // the events of each partition, in its order
	rewound int               // records with eb-origin: rewind
	oldest  time.Time         // of the records' times
	wrong   int               // records that are not as they must be
	last    map[string]placed // by key: its last first copy
	jumps   bool              // first copies are in no order, as after a move forward
	// origins counts the records of jobs by their eb-origin. Only those that
	// are in it may be there; then the order is not looked at, which windows
	// that are read side by side do not keep.
	origins map[string]int
	private *redactions // nil where values are the bytes of the events
}

type placed struct {
	partition int32
	index     int
}

// lost returns how many of the first n events the topic does not hold, twice
// how many records are copies of others.
func (c *contents) lost(n int) (lost int) {
	for i := range n {
		if i >= len(c.copies) || c.copies[i] == 0 {
			lost++
		}
	}
	return lost
}

func (c *contents) twice() (twice int) {
	for _, n := range c.copies {
		twice += max(0, n-1)
	}
	return twice
}

// wantAll wants each of the first n events, no others, and at most so many
// copies.
func (c *contents) wantAll(n, copies int) {
	if lost := c.lost(n); lost > 0 {
		c.errorf("%d of %d events are lost, the first is %d", lost, n, slices.Index(append(c.copies, 0), 0))
	}
	if len(c.copies) > n {
		c.errorf("the topic holds event %d, the last is %d", len(c.copies)-1, n-1)
	}
	if twice := c.twice(); twice > copies {
		c.errorf("%d records are copies, at most %d may be; the first is of event %d", twice, copies,
			slices.IndexFunc(c.copies, func(n int) bool { return n > 1 }))
	}
	if c.wrong > 0 {
		c.errorf("%d of %d records are wrong", c.wrong, c.records)
	}
}

func newContents(errorf func(format string, args ...any)) *contents {
	return &contents{errorf: errorf, lanes: make(map[int32][]int), last: make(map[string]placed)}
}

// read reads the whole topic with a client of its own, and compares every
// record with the event that the simulator serves.
func (s *stage) read() *contents {
	s.t.Helper()
	c := newContents(s.t.Errorf)
	c.private = s.private
	s.eachRecord(s.topic, func(r *kgo.Record) { c.add(s.truth, s.config.Seed, r) })
	return c
}

// add judges one record.
func (c *contents) add(truth *exportsim.Handler, seed uint64, r *kgo.Record) {
	c.records++
	complain := func(format string, args ...any) {
		if c.wrong++; c.wrong <= maxComplaints {
			c.errorf("record %d of partition %d: %s", r.Offset, r.Partition, fmt.Sprintf(format, args...))
		}
	}
	headers := make(map[string]string, len(r.Headers))
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	i, ok := exportsim.Index(headers["ce_id"])
	if !ok || headers["ce_id"] != exportsim.EventID(seed, i) {
		complain("ce_id %q is no event's", headers["ce_id"])
		return
	}
	if want := truth.Event(i); !c.private.agree(want, r) {
		complain("event %d with the rules %q is\n%s\nserved was\n%s", i, headers["eb-redacted"], r.Value, want)
	}
	if want := truth.EventTime(i).UTC().Format("2006-01-02T15:04:05.000Z"); headers["ce_time"] != want {
		complain("ce_time of event %d is %s, want %s", i, headers["ce_time"], want)
	}
	if !bytes.Contains(r.Value, fmt.Appendf(nil, `"userId":%q`, r.Key)) {
		complain("key %q of event %d is not its user", r.Key, i)
	}
	if c.oldest.IsZero() || r.Timestamp.Before(c.oldest) {
		c.oldest = r.Timestamp
	}
	c.count(i)
	c.lanes[r.Partition] = append(c.lanes[r.Partition], i)
	switch origin := headers["eb-origin"]; {
	case origin == "rewind" && c.copies[i] > 1:
		c.rewound++
	case c.origins != nil:
		if _, ok := c.origins[origin]; !ok {
			complain("event %d has eb-origin %q", i, origin)
		}
		c.origins[origin]++
		return
	case origin != "live":
		complain("copy %d of event %d has eb-origin %q", c.copies[i], i, origin)
	}
	if c.copies[i] > 1 || c.jumps {
		return
	}
	before, known := c.last[string(r.Key)]
	if known && (before.partition != r.Partition || before.index > i) {
		complain("event %d of key %s comes after event %d in partition %d", i, r.Key, before.index, before.partition)
	}
	c.last[string(r.Key)] = placed{r.Partition, i}
}

// count counts a record of an event.
func (c *contents) count(i int) {
	for len(c.copies) <= i {
		c.copies = append(c.copies, 0)
	}
	c.copies[i]++
}

// eachRecord reads what is committed of all partitions of a topic, from their
// beginning to the end that they had when it was called. Control records are
// skipped.
func (s *stage) eachRecord(topic string, visit func(*kgo.Record)) {
	s.t.Helper()
	s.eachAt(topic, kgo.ReadCommitted(), visit)
}

// records counts the records of a topic, those of open and aborted transactions too. The
// markers that end transactions are none: Kafka writes them late, and even to a topic that
// was made again.
func (s *stage) records(topic string) (n int) {
	s.t.Helper()
	s.eachAt(topic, kgo.ReadUncommitted(), func(*kgo.Record) { n++ })
	return n
}

// eachAt is eachRecord at another isolation level.
func (s *stage) eachAt(topic string, level kgo.IsolationLevel, visit func(*kgo.Record)) {
	s.t.Helper()
	ends := s.ends(topic)
	from := make(map[int32]kgo.Offset)
	for partition, end := range ends {
		if end > 0 {
			from[partition] = kgo.NewOffset().At(0)
		} else {
			delete(ends, partition)
		}
	}
	if len(ends) == 0 {
		return
	}
	client := servers.Client(s.t, s.servers.brokers, kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	defer client.Close()
	for len(ends) > 0 {
		ctx, cancel := context.WithTimeout(s.t.Context(), stepTimeout)
		fetches := client.PollFetches(ctx)
		cancel()
		if err := fetches.Err(); err != nil {
			s.t.Fatalf("read %s, %v left: %v", topic, ends, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				visit(r)
			}
			if r.Offset+1 >= ends[r.Partition] {
				delete(ends, r.Partition)
			}
		})
	}
}

// ends returns the offsets at which the partitions of a topic end now.
func (s *stage) ends(topic string) map[int32]int64 {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), stepTimeout)
	defer cancel()
	offsets, err := s.admin().ListEndOffsets(ctx, topic)
	if err == nil {
		err = offsets.Error()
	}
	if err != nil {
		s.t.Fatalf("list the ends of %s: %v", topic, err)
	}
	ends := make(map[int32]int64)
	offsets.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
	return ends
}

// stock asks the running simulator how many events it has. after is one that
// it is known to have, so that not everything is read.
func (s *stage) stock(after int) int {
	s.t.Helper()
	newest := -1
	query := url.Values{"start": {strconv.FormatInt(s.truth.EventTime(after).UnixMilli(), 10)}}
	s.eachItem("/events", query, func(item json.RawMessage) {
		if i, ok := exportsim.IndexOf(item); ok {
			newest = max(newest, i)
		}
	})
	return newest + 1
}

// eachItem asks the running simulator for all that it has under a path.
func (s *stage) eachItem(path string, query url.Values, visit func(json.RawMessage)) {
	s.t.Helper()
	client := http.Client{Transport: &http.Transport{}, Timeout: stepTimeout}
	defer client.CloseIdleConnections()
	query.Set("pageSize", "1000")
	for {
		req := must.Get(http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.api+path+"?"+query.Encode(), nil))(s.t)
		req.Header.Set("X-Api-Key", s.config.APIKey)
		res, err := client.Do(req)
		if err != nil {
			s.t.Fatalf("ask the simulator: %v", err)
		}
		var page struct {
			Items      []json.RawMessage
			NextCursor string
		}
		err = json.NewDecoder(res.Body).Decode(&page)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK {
			s.t.Fatalf("ask the simulator: %s, %v", res.Status, err)
		}
		for _, item := range page.Items {
			visit(item)
		}
		if len(page.Items) == 0 || page.NextCursor == "" {
			return
		}
		query.Set("cursor", page.NextCursor)
		query.Del("start")
	}
}

// memory follows a process's peak memory until it has ended, and returns it.
func (p *program) memory() func() int64 {
	peak := make(chan int64, 1)
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		most := int64(0)
		for {
			if now, ok := peakMemory(p.cmd.Process.Pid); ok {
				most = max(most, now)
			}
			select {
			case <-tick.C:
			case <-p.done:
				peak <- most
				return
			}
		}
	}()
	return func() int64 { return <-peak }
}
