package kafkasink_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkasink"
)

// trailOf returns the versions that Walk shows, at most so many.
func trailOf(t *testing.T, s *kafkasink.Sink, most int) []string {
	t.Helper()
	var versions []string
	must.Do(t, s.History().Walk(t.Context(), func(c bridge.Checkpoint) bool {
		versions = append(versions, c.Version.String())
		return len(versions) < most
	}))
	return versions
}

// Walk shows every checkpoint of one stream, while that runs.
func TestTrail(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t), exactly)
	s := open(t, cfg)
	if got := trailOf(t, s, 10); len(got) > 0 {
		t.Errorf("before there is a topic: %v", got)
	}
	recoverTo(t, s, cfg, -1)
	if got := trailOf(t, s, 10); len(got) > 0 {
		t.Errorf("before there is a checkpoint: %v", got)
	}
	neighbour := cfg
	neighbour.Stream = otherStream(cfg.Stream)
	other := recovered(t, neighbour)

	began := time.Now().Truncate(time.Second).Add(-time.Hour)
	var want []string
	put := func(seq int, kind bridge.Kind, epoch int64, after time.Duration) {
		t.Helper()
		b := batch(cfg, seq)
		c := &b.Checkpoint
		c.Kind, c.Epoch, c.WrittenAt = kind, epoch, began.Add(after).UnixMilli()
		if kind != bridge.KindData {
			b.Pages = nil
		}
		mustCommit(t, s, b)
		want = append(want, c.Version.String())
		mustCommit(t, other, batch(neighbour, seq))
	}
	put(1, bridge.KindStart, 1, 0)
	put(2, bridge.KindData, 1, 100*time.Millisecond)
	put(3, bridge.KindData, 1, 900*time.Millisecond)
	put(4, bridge.KindHeartbeat, 1, 2*time.Second)
	put(5, bridge.KindData, 1, 3*time.Second)
	put(0, bridge.KindReset, 2, 3*time.Second)
	put(1, bridge.KindData, 2, 3*time.Second)
	for i := range 200 {
		put(2+i, bridge.KindData, 2, time.Duration(4+i)*time.Second)
	}
	put(300, bridge.KindHeartbeat, 2, 300*time.Second)
	slices.Reverse(want)
	if got := trailOf(t, s, 1000); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if got := trailOf(t, open(t, cfg), 3); !slices.Equal(got, want[:3]) {
		t.Errorf("the first three: %v, want %v", got, want[:3])
	}
	// The records have the present time, not the checkpoints'.
	for at, most := range map[time.Time]int{time.Now(): len(want), time.Now().Add(-time.Hour): 0} {
		n := 0
		count := func(bridge.Checkpoint) bool { n++; return true }
		if err := s.History().WalkBefore(t.Context(), at, count); err != nil || n != most {
			t.Errorf("before %s: %d checkpoints, %v, want %d", at, n, err, most)
		}
	}
}

// TestTrailBesideAnotherPartition: no other partition of the checkpoint topic hides a stream's
// checkpoints, as one without a leader.
func TestTrailBesideAnotherPartition(t *testing.T) {
	t.Parallel()
	k := kafkatest.Fake(t)
	cfg := config(t, k.ListenAddrs(), exactly)
	s := recovered(t, cfg)
	mustCommit(t, s, batch(cfg, 0))
	other := (kafkasink.CheckpointPartition(cfg.Stream) + 1) % 16
	away := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: cfg.CheckpointTopic, Partitions: []int32{other},
		Err: kerr.LeaderNotAvailable, Count: -1})
	if got := trailOf(t, s, 10); len(got) != 1 {
		t.Errorf("the checkpoints are %v, want one", got)
	}
	must.Do(t, s.History().WalkBefore(t.Context(), time.Now(), func(bridge.Checkpoint) bool { return true }))
	if away.Hits() > 0 {
		t.Error("the other partition was asked for: its broker may not answer")
	}
}

// TestSinceWaits: Since does not take a checkpoint that an open transaction hides for lost.
func TestSinceWaits(t *testing.T) {
	t.Parallel()
	cfg, s := ready(t, exactly)
	since := func(ctx context.Context, seq int64) (int64, error) {
		v := batch(cfg, 0).Checkpoint.Version
		v.Seq += seq
		c, err := s.History().Since(ctx, v)
		return c.Seq, err
	}
	mustCommit(t, s, batch(cfg, 0))
	end := foreignTransaction(t, cfg, "somebody."+cfg.Topic)
	mustCommit(t, s, batch(cfg, 1))
	if seq, err := since(t.Context(), 0); err != nil || seq != 0 {
		t.Errorf("before the hidden checkpoint: %d, %v", seq, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if seq, err := since(ctx, 1); err == nil {
		t.Errorf("Since did not wait: %d", seq)
	}
	end()
	for _, v := range []int64{1, 9} {
		if seq, err := since(t.Context(), v); err != nil || seq != 1 {
			t.Errorf("after the transaction: %d, %v", seq, err)
		}
	}
}

// The copy of an at-least-once stream's checkpoint is part of the trail.
func TestTrailShowsTheMirror(t *testing.T) {
	t.Parallel()
	cfg, s := ready(t)
	b := batch(cfg, 3)
	mustCommit(t, s, b)
	kafkatest.Eventually(t, "have the copy", func() (bool, error) { return len(trailOf(t, s, 1)) == 1, nil })
}

func TestTrailOfBrokersThatAreAway(t *testing.T) {
	t.Parallel()
	cfg := config(t, []string{"127.0.0.1:1"}, exactly)
	began := time.Now()
	err := open(t, cfg).History().Walk(t.Context(), func(bridge.Checkpoint) bool { return true })
	if took := time.Since(began); err == nil || took > kafkatest.Patience {
		t.Errorf("%v after %v", err, took)
	}
}

// Index knows what is committed, by id or by bytes, and nothing else.
func TestHeld(t *testing.T) {
	t.Parallel()
	for _, headers := range []string{"cloudevents", "minimal", "none"} {
		t.Run(headers, func(t *testing.T) {
			t.Parallel()
			cfg, s := ready(t, exactly, withHeaders(headers))
			nameless := event("x", "u")
			nameless.ID, nameless.Raw = nil, []byte(`{"no":"id"}`)
			b := batch(cfg, 0)
			known := b.Pages[0].Events[3]
			b.Pages = append(b.Pages, page(nameless, nameless))
			mustCommit(t, s, b)
			open := batch(cfg, 1) // sent, not committed
			for _, p := range open.Pages {
				must.Do(t, s.Send(t.Context(), p))
			}
			reader := must.Get(cfg.Sink())(t)
			defer reader.Close()
			if err := tryRecover(t, reader); err != nil { // ends that
				t.Fatal(err)
			}
			held := must.Get(reader.Index(t.Context(), anHour(), bridge.SourceIdentity{}))(t)
			take := func(want bool, e bridge.Event) {
				t.Helper()
				if got := held.Match(&e); got != want {
					t.Errorf("event %s %s: held %v, want %v", e.ID, e.Raw, got, want)
				}
			}
			take(true, known)
			take(true, known) // an id names one event
			take(false, event("b1-3", "user3"))
			take(false, event("never", "u"))
			take(true, nameless)
			take(true, nameless)
			take(false, nameless) // there were two
		})
	}
}

// Index, PartialIndex and Holds know what was published under other headers than
// today's.
func TestHeldUnderOtherHeaders(t *testing.T) {
	t.Parallel()
	for _, was := range []string{"cloudevents", "minimal", "none"} {
		for _, is := range []string{"cloudevents", "minimal", "none"} {
			t.Run(was+" then "+is, func(t *testing.T) {
				t.Parallel()
				cfg := config(t, kafkatest.Brokers(t), exactly, withHeaders(was))
				b := batch(cfg, 0)
				known, update := b.Pages[0].Events[3], b.Pages[0].Events[3]
				update.Raw = append([]byte(" "), known.Raw...)
				before := recovered(t, cfg)
				mustCommit(t, before, b)
				before.Close()
				cfg.Headers = is
				s := open(t, cfg)
				if got, err := s.Holds(t.Context()); err != nil || !got {
					t.Errorf("holds %t, %v: the stream would start from the beginning", got, err)
				}
				index := func(ctx context.Context, from time.Time, source bridge.SourceIdentity) (bridge.PublishedIndex, error) {
					return s.Index(ctx, bridge.Since{Time: from}, source)
				}
				type reader func(context.Context, time.Time, bridge.SourceIdentity) (bridge.PublishedIndex, error)
				for name, read := range map[string]reader{"index": index, "partial index": s.PartialIndex} {
					held := must.Get(read(t.Context(), anHour().Time, bridge.SourceIdentity{}))(t)
					if held == nil && is == "none" {
						continue // nothing can be marked
					}
					if !held.Match(&known) || held.Match(&update) {
						t.Errorf("%s: known %t, an update of it %t; want the first only", name, held.Match(&known), held.Match(&update))
					}
				}
			})
		}
	}
}

// Index knows dead letters too, those that hold only where the item was as well.
func TestHeldKnowsDeadLetters(t *testing.T) {
	t.Parallel()
	for _, headers := range []string{"cloudevents", "minimal", "none"} {
		t.Run(headers, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, kafkatest.Brokers(t), exactly, withHeaders(headers))
			kafkatest.CreateTopic(t, cfg.Brokers, cfg.Topic, cfg.Partitions,
				map[string]*string{"max.message.bytes": new("16384")})
			s := recovered(t, cfg)
			broken, nameless := event("broken", "u"), event("x", "u")
			broken.Defect = bridge.DefectTime
			nameless.ID, nameless.Raw, nameless.Defect = nil, []byte(`[]`), bridge.DefectNotObject
			fine, large, long := event("fine", "u"), event("large", "u"), event(strings.Repeat("i", 400), "u")
			large.Raw = fmt.Appendf(nil, `{"eventId":"large","pad":%q}`, strings.Repeat("x", 20_000))
			long.Raw = fmt.Appendf(nil, `{"pad":%q}`, strings.Repeat("y", 20_000))
			if got := publish(t, s, page(broken, nameless, nameless, large, long, fine)); got.Published != 1 {
				t.Fatalf("published %+v, want 1", got)
			}
			r := openRepair(t, cfg) // one of them was retried
			nameless.Defect = bridge.DefectNone
			must.Get(r.Publish(t.Context(), page(nameless), "0/1", []byte("mark")))(t)
			held := must.Get(s.Index(t.Context(), anHour(), bridge.SourceIdentity{}))(t)
			for _, e := range []bridge.Event{broken, large, long, fine, nameless, nameless} {
				if !held.Match(&e) {
					t.Errorf("event %.20s %.40s is not held", e.ID, e.Raw)
				}
			}
			if held.Match(&nameless) {
				t.Error("an event without an id is held once more than it was listed")
			}
			if e := event("never", "u"); held.Match(&e) {
				t.Error("an event that never was is held")
			}
		})
	}
}

// Records of another program in the topic are not the stream's.
func TestHeldKnowsOurs(t *testing.T) {
	t.Parallel()
	cfg, s := ready(t, exactly)
	client := connect(t, cfg)
	foreign := &kgo.Record{Topic: cfg.Topic, Value: []byte("x"),
		Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte("theirs")}}}
	must.Do(t, client.ProduceSync(t.Context(), foreign).FirstErr())
	held := must.Get(s.Index(t.Context(), anHour(), bridge.SourceIdentity{}))(t)
	if e := event("theirs", "u"); held.Match(&e) {
		t.Error("somebody else's record counts as the stream's")
	}
}

// An accepted change of the application puts the events of two into one topic,
// and both may have given the same id.
func TestHeldOfOneSource(t *testing.T) {
	t.Parallel()
	theirs := bridge.SourceIdentity{Organization: "globex", Application: "web"}
	for _, headers := range []string{"cloudevents", "minimal"} {
		t.Run(headers, func(t *testing.T) {
			t.Parallel()
			cfg, s := ready(t, exactly, withHeaders(headers))
			b := batch(cfg, 0)
			ours, said := bridge.SourceIdentity{Organization: "acme", Application: "shop"}, b.Pages[0].Events[3]
			b.Pages[0].Source = ours
			nobodys, broken := page(event("nobodys", "u")), page(event("broken", "u"))
			broken.Source, broken.Events[0].Defect = ours, bridge.DefectTime
			unsaid, letter := nobodys.Events[0], broken.Events[0]
			b.Pages = append(b.Pages, nobodys, broken)
			mustCommit(t, s, b)
			tells := headers == "cloudevents"
			for source, want := range map[bridge.SourceIdentity]struct{ said, unsaid bool }{
				ours: {true, true}, theirs: {!tells, true}, {}: {true, true},
			} {
				held := must.Get(s.Index(t.Context(), anHour(), source))(t)
				if got := held.Match(&said); got != want.said {
					t.Errorf("source %+v: an event of %+v is held: %t", source, ours, got)
				}
				if got := held.Match(&letter); got != want.said {
					t.Errorf("source %+v: a dead letter of %+v is held: %t", source, ours, got)
				}
				if got := held.Match(&unsaid); got != want.unsaid {
					t.Errorf("source %+v: an event that does not say whose it is is held: %t", source, got)
				}
			}
		})
	}
}

// anHour is all that these tests publish.
func anHour() bridge.Since { return bridge.Since{Time: time.Now().Add(-time.Hour)} }

// TestHeldSinceTheEnds: an event with a time hours ago, in a partition without newer ones, is
// after the end in an earlier checkpoint. The ends of another topic of the same name do not
// count.
func TestHeldSinceTheEnds(t *testing.T) {
	t.Parallel()
	cfg, s := ready(t, exactly)
	mustCommit(t, s, batch(cfg, 0))
	was := must.Get(s.Topics(t.Context()))(t)
	late := event("late", "elsewhere")
	late.Time = time.Now().Add(-9 * time.Hour).UnixMilli()
	publish(t, s, page(late))
	replaced := slices.Clone(was)
	replaced[0].ID = "another"
	for name, tc := range map[string]struct {
		topics []bridge.TopicState
		want   bool
	}{"known": {was, true}, "unknown": {nil, false}, "replaced": {replaced, false}} {
		held := must.Get(s.Index(t.Context(), bridge.Since{Time: time.Now().Add(2 * time.Hour), Topics: tc.topics},
			bridge.SourceIdentity{}))(t)
		if got := held.Match(&late); got != tc.want {
			t.Errorf("ends %s: held %t, want %t", name, got, tc.want)
		}
	}
}

// TestHeldBehindEnds: with EndsOnly, records after the ends count, with any time; with ByKey a
// changed item counts as well. If the ends are unknown, or of another topic, all records
// count.
func TestHeldBehindEnds(t *testing.T) {
	t.Parallel()
	_, s := ready(t, exactly)
	before, behind := event("before", "u"), event("behind", "u")
	publish(t, s, page(before))
	was := must.Get(s.Topics(t.Context()))(t)
	behind.Time = time.Now().Add(-9 * time.Hour).UnixMilli()
	publish(t, s, page(behind))
	update := behind
	update.Raw = append(slices.Clone(behind.Raw), ' ')
	replaced := slices.Clone(was)
	replaced[0].ID = "another"
	for name, tc := range map[string]struct {
		since                  bridge.Since
		before, behind, update bool
	}{
		"known":    {bridge.Since{Topics: was, EndsOnly: true}, false, true, false},
		"by key":   {bridge.Since{Topics: was, EndsOnly: true, ByKey: true}, false, true, true},
		"unknown":  {bridge.Since{EndsOnly: true}, true, true, false},
		"replaced": {bridge.Since{Topics: replaced, EndsOnly: true}, true, true, false},
	} {
		held := must.Get(s.Index(t.Context(), tc.since, bridge.SourceIdentity{}))(t)
		got := [...]bool{held.Match(&before), held.Match(&behind), held.Match(&update)}
		if got != [...]bool{tc.before, tc.behind, tc.update} {
			t.Errorf("%s: before, behind, update are held: %v, want %v", name, got, tc)
		}
	}
}

// TestHeldByKeyWithoutTime: records of BRIDGE_HEADERS=minimal and none have no key of id and
// time. With ByKey they are known by their bytes.
func TestHeldByKeyWithoutTime(t *testing.T) {
	t.Parallel()
	for _, headers := range []string{"cloudevents", "minimal", "none"} {
		_, s := ready(t, exactly, withHeaders(headers))
		e := event("before", "u")
		publish(t, s, page(e))
		held := must.Get(s.Index(t.Context(), bridge.Since{EndsOnly: true, ByKey: true}, bridge.SourceIdentity{}))(t)
		if !held.Match(&e) {
			t.Errorf("%s: not recognized", headers)
		}
	}
}

// TestHeldDeleted: records that were published after the ends and are deleted are a fault.
func TestHeldDeleted(t *testing.T) {
	t.Parallel()
	cfg, s := ready(t, exactly)
	was, err := s.Topics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e := event("deleted", "u")
	publish(t, s, page(e))
	truncate(t, cfg)
	_, err = s.Index(t.Context(), bridge.Since{Topics: was, EndsOnly: true}, bridge.SourceIdentity{})
	if f := bridge.FaultOf(err); f.Class != bridge.Permanent || f.Reason != bridge.ReasonRetention ||
		f.HintCode != bridge.HintLookBack {
		t.Errorf("got %v, want a permanent fault with the reason retention and a hint", err)
	}
}

// TestHeldQuiet: retention deletes all earlier records of a quiet stream. The stream's ends
// lie at the end of the log, not before the marker of its last transaction, so that no record
// after them is unknown.
func TestHeldQuiet(t *testing.T) {
	t.Parallel()
	cfg, s := ready(t, exactly)
	e := event("old", "u")
	publish(t, s, page(e))
	settled(t.Context(), t, connect(t, cfg), cfg.Topic)
	s.AgeSettings()
	receipt := publish(t, s)
	truncate(t, cfg)
	since := bridge.Since{Topics: receipt.Topics, EndsOnly: true}
	must.Get(s.Index(t.Context(), since, bridge.SourceIdentity{}))(t)
}
