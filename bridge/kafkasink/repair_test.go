package kafkasink_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
)

func openRepair(t *testing.T, cfg kafkastream.Config) *kafkasink.Repair {
	t.Helper()
	r := must.Get(kafkasink.OpenRepair(t.Context(), cfg.Wired(), kafkasink.JobDLQ))(t)
	t.Cleanup(r.Close)
	return r
}

func republish(t *testing.T, r *kafkasink.Repair, id string) error {
	t.Helper()
	receipt, err := r.Publish(t.Context(), page(event(id, "u")), id, []byte("mark of "+id))
	if err == nil && receipt.Published != 1 {
		t.Errorf("%d events are published, want 1", receipt.Published)
	}
	return err
}

// wantRepaired checks that the topic holds the repaired events, once each and
// nothing else of a repair, and that each has its mark.
func wantRepaired(t *testing.T, cfg kafkastream.Config, ids ...string) {
	t.Helper()
	got := map[string]int{}
	for _, r := range consume(t, cfg, cfg.Topic) {
		if h := headersOf(r); h["eb-origin"] == "repair" {
			got[h["ce_id"]]++
		}
	}
	marks := openRepair(t, cfg).Marks()
	for _, id := range ids {
		if got[id] != 1 || string(marks[id]) != "mark of "+id {
			t.Errorf("event %s is there %d times, its mark is %q", id, got[id], marks[id])
		}
	}
	if len(got) != len(ids) || len(marks) != len(ids) {
		t.Errorf("repaired are %v with marks %q, want %v", got, marks, ids)
	}
}

// TestRepair: the live stream goes on as if nothing had happened, and a record
// is as the stream would have published it, but for its origin.
func TestRepair(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*kafkastream.Config){exactly, func(*kafkastream.Config) {}} {
		cfg := config(t, kafkatest.Brokers(t), change)
		t.Run(string(cfg.Mode), func(t *testing.T) {
			t.Parallel()
			live := recovered(t, cfg)
			publish(t, live, page(event("e", "u")))
			r := openRepair(t, cfg)
			must.Do(t, republish(t, r, "e"))
			must.Do(t, republish(t, r, "f"))
			must.Get(tryPublish(t, live, page(event("g", "u"))))(t)
			wantRepaired(t, cfg, "e", "f")
			var twins []*kgo.Record
			for _, rec := range consume(t, cfg, cfg.Topic) {
				if headersOf(rec)["ce_id"] == "e" {
					twins = append(twins, rec)
				}
			}
			if len(twins) != 2 {
				t.Fatalf("%d records of event e", len(twins))
			}
			mine, its := headersOf(twins[1]), headersOf(twins[0])
			delete(its, "ce_time") // the events were made one after the other
			its["eb-origin"] = "repair"
			for name, want := range its {
				if mine[name] != want {
					t.Errorf("header %s is %q, want %q", name, mine[name], want)
				}
			}
			if string(twins[0].Key) != string(twins[1].Key) || twins[0].Partition != twins[1].Partition {
				t.Errorf("key %s in partition %d, want %s in %d", twins[1].Key, twins[1].Partition, twins[0].Key,
					twins[0].Partition)
			}
			if marks, err := kafkasink.Marks(t.Context(), cfg.Wired(), kafkasink.JobVerify); err != nil || len(marks) > 0 {
				t.Errorf("another job has the marks %v, %v", marks, err)
			}
		})
	}
}

// TestAttestHeaders: the record of an attestation has no rules for private data, which it was not made by.
func TestAttestHeaders(t *testing.T) {
	t.Parallel()
	cfg, _ := ready(t, exactly, func(c *kafkastream.Config) { c.Redacted = "rules" })
	own := cfg.OfAttest()
	kafkatest.CreateTopic(t, cfg.Brokers, own.Topic, 1, nil)
	r := must.Get(kafkasink.OpenRepair(t.Context(), own.Wired(), kafkasink.JobAttest))(t)
	defer r.Close()
	must.Do(t, republish(t, r, "e"))
	if got := headersOf(consume(t, own, own.Topic)[0]); got["eb-origin"] != "attest" || got["eb-redacted"] != "" {
		t.Errorf("headers %v", got)
	}
}

// TestRepairFenced: of two at once only the newer one publishes.
func TestRepairFenced(t *testing.T) {
	t.Parallel()
	cfg, _ := ready(t, exactly)
	older := openRepair(t, cfg)
	must.Do(t, republish(t, older, "a"))
	newer := openRepair(t, cfg)
	if string(newer.Marks()["a"]) != "mark of a" {
		t.Errorf("the newer one sees the marks %q", newer.Marks())
	}
	must.Be(t, republish(t, older, "b"), bridge.ErrFenced)
	must.Do(t, republish(t, newer, "b"))
	wantRepaired(t, cfg, "a", "b")
}

// TestRepairInDoubt: the end of the transaction is not answered, once because
// it failed and once although it succeeded.
func TestRepairInDoubt(t *testing.T) {
	eachVersion(t, func(t *testing.T, c *kfake.Cluster, cfg kafkastream.Config) {
		recoverTo(t, open(t, cfg), cfg, -1)
		r := openRepair(t, cfg)
		c.Fault(refuseEnd(cfg.CheckpointTopic+".jobs.events.dlq", kerr.UnknownServerError, 1))
		must.Do(t, republish(t, r, "failed"))
		loseEnd(t, c)
		must.Do(t, republish(t, r, "persisted"))
		wantRepaired(t, cfg, "failed", "persisted")
	})
}

// TestRepairBehindBarrier: a committed mark that another producer's open transaction hides is
// seen.
func TestRepairBehindBarrier(t *testing.T) {
	t.Parallel()
	cfg, _ := ready(t, exactly)
	first := openRepair(t, cfg)
	jobs := cfg
	jobs.CheckpointTopic += ".jobs"
	end := foreignTransaction(t, jobs, "somebody "+cfg.Topic)
	must.Do(t, republish(t, first, "hidden"))
	if marks, err := kafkasink.Marks(t.Context(), cfg.Wired(), kafkasink.JobDLQ); err != nil || len(marks) > 0 {
		t.Fatalf("the mark is not hidden: %q, %v", marks, err)
	}
	said := make(chan error, 100)
	waiting := cfg
	waiting.Report = func(err error) { said <- err }
	opened := make(chan *kafkasink.Repair, 1)
	go func() { // waited for below
		r, err := kafkasink.OpenRepair(t.Context(), waiting.Wired(), kafkasink.JobDLQ)
		if err != nil {
			t.Error(err)
		}
		opened <- r
	}()
	if err := <-said; err == nil || !strings.Contains(err.Error(), "transaction") {
		t.Errorf("while it waits it says: %v", err)
	}
	end()
	r := <-opened
	if r == nil {
		return
	}
	defer r.Close()
	if string(r.Marks()["hidden"]) != "mark of hidden" {
		t.Errorf("the marks are %q", r.Marks())
	}
}

// TestRepairRefuses: an event that the topic cannot take is reported, and changes nothing.
func TestRepairRefuses(t *testing.T) {
	t.Parallel()
	cfg, _ := ready(t, exactly, func(cfg *kafkastream.Config) { cfg.TimePointer = "/at" })
	large := event("large", "u")
	large.Raw = []byte(`{"eventId":"large","x":"` + strings.Repeat("x", 2<<20) + `"}`)
	dry := must.Get(kafkasink.Rehearse(t.Context(), cfg.Wired(), kafkasink.JobDLQ))(t)
	defer dry.Close()
	must.Do(t, republish(t, dry, "small"))
	r := openRepair(t, cfg)
	for _, r := range []*kafkasink.Repair{dry, r} {
		_, err := r.Publish(t.Context(), page(event("with it", "u"), large), "large", []byte("mark"))
		if !errors.Is(err, bridge.ErrRejected) || !strings.Contains(err.Error(), "takes") {
			t.Errorf("a large event: %v, want ErrRejected", err)
		}
		undated := event("undated", "u")
		undated.Defect = bridge.DefectTime
		_, err = r.Publish(t.Context(), page(undated), "undated", []byte("mark"))
		if !errors.Is(err, bridge.ErrRejected) || !strings.Contains(err.Error(), "no readable time at /at") {
			t.Errorf("an event without a time: %v, want ErrRejected", err)
		}
	}
	wantRepaired(t, cfg)
	must.Do(t, republish(t, openRepair(t, cfg), "small"))
	wantRepaired(t, cfg, "small")
}

// TestReadLetter reads back what the sink writes.
func TestReadLetter(t *testing.T) {
	t.Parallel()
	cfg, s := ready(t, exactly)
	decoy := `{"id":"x","size":1,"sha256":"` + strings.Repeat("0", 64) + `","index":7}`
	large := event("large", "u")
	large.Raw = []byte(`{"eventId":"large","x":"` + strings.Repeat("x", 2<<20) + `"}`)
	sent := page(
		bridge.Event{Raw: []byte(`17`), Defect: bridge.DefectNotObject},
		bridge.Event{Raw: []byte(decoy), ID: []byte("x"), Defect: bridge.DefectTime},
		large,
	)
	sent.Source = bridge.SourceIdentity{Organization: "a/b", Application: "web shop"}
	long := page(large)
	long.At.Cursor = strings.Repeat("c", 2<<20)
	publish(t, s, sent, long)
	got := map[string]deadletter.DeadLetter{}
	for _, r := range consume(t, cfg, "dlq."+cfg.Topic) {
		l := deadletter.Read(r)
		if l.Stream != cfg.Stream || l.Message == "" || time.Since(l.Time).Abs() > time.Hour {
			t.Errorf("letter %+v", l)
		}
		switch {
		case l.CursorLost:
			got["lost"] = l
		default:
			got[string(l.Reason)] = l
		}
	}
	if l := got["not-an-object"]; string(l.Item) != "17" || l.Source != sent.Source {
		t.Errorf("not an object: %+v", l)
	}
	if l := got["bad-timestamp"]; string(l.Item) != decoy || l.ID != "x" {
		t.Errorf("an item that looks like a substitute: %+v", l)
	}
	l := got["too-large"]
	if same, unchanged := l.Names(&large); !same || !unchanged || l.Item != nil || l.Cursor != "c+1/=" || l.Index != 2 ||
		l.Size != len(large.Raw) {
		t.Errorf("too large: %+v", l)
	}
	changed := large
	changed.Raw = []byte(`{}`)
	if same, unchanged := l.Names(&changed); !same || unchanged {
		t.Errorf("the same with other bytes: %t, %t", same, unchanged)
	}
	if l := got["lost"]; l.Item != nil || l.Cursor != "" || l.ID != "large" {
		t.Errorf("without its cursor: %+v", l)
	}
}

// TestRepairHeldBack: another job of the stream, or a window of a backfill, was
// killed and left a transaction open. It is ended, not waited for.
func TestRepairHeldBack(t *testing.T) {
	t.Parallel()
	// Another test's group that ends alike would count as running the job.
	window := fmt.Sprintf(".%06d.w0.1000-2000", time.Now().UnixNano()%1_000_000)
	for name, id := range map[string]string{"a repair": ".repair", "a window": window} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, _ := ready(t, exactly, func(c *kafkastream.Config) { c.Group = c.Topic })
			openRepair(t, cfg).Close()
			jobs := cfg
			jobs.CheckpointTopic = kafkasink.JobsTopic(cfg.CheckpointTopic)
			foreignTransaction(t, jobs, jobs.CheckpointTopic+"."+cfg.Stream+id)
			ctx := kafkatest.Context(t)
			began := time.Now()
			r, err := kafkasink.OpenRepair(ctx, cfg.Wired(), kafkasink.JobDLQ)
			if err != nil {
				t.Fatalf("after %s: %v", time.Since(began), err)
			}
			defer r.Close()
			must.Do(t, republish(t, r, "e"))
		})
	}
}

// TestRepairOvertaken: while a publication is in doubt, another process publishes. What
// the first one knows is out of date then, whether or not its publication persisted.
func TestRepairOvertaken(t *testing.T) {
	for persisted, ids := range map[bool][]string{false: {"b"}, true: {"a", "b"}} {
		t.Run(fmt.Sprint(persisted), func(t *testing.T) {
			eachVersion(t, func(t *testing.T, c *kfake.Cluster, cfg kafkastream.Config) {
				recoverTo(t, open(t, cfg), cfg, -1)
				told, overtaken := cfg, false
				told.Report = func(err error) {
					if err == nil || overtaken {
						return
					}
					overtaken = true
					if err := republish(t, openRepair(t, cfg), "b"); err != nil {
						t.Error(err)
					}
				}
				r := openRepair(t, told)
				if persisted {
					loseEnd(t, c)
				} else {
					c.Fault(refuseEnd(cfg.CheckpointTopic+".jobs.events.dlq", kerr.UnknownServerError, 1))
				}
				must.Be(t, republish(t, r, "a"), bridge.ErrFenced)
				must.Be(t, republish(t, r, "c"), bridge.ErrFenced)
				wantRepaired(t, cfg, ids...)
			})
		})
	}
}

// TestRepairOtherTopic: nothing is published into a topic that was recreated since the repair
// began: its marks name the deleted topic.
func TestRepairOtherTopic(t *testing.T) {
	t.Parallel()
	cfg, _ := ready(t, exactly)
	r := openRepair(t, cfg)
	must.Do(t, republish(t, r, "a"))
	recreate(t, cfg.Brokers, cfg.Topic, cfg.Partitions)
	for range 2 {
		must.Be(t, republish(t, r, "b"), nil, "was recreated meanwhile")
	}
	if n := len(consume(t, cfg, cfg.Topic)); n > 0 {
		t.Errorf("the topic has %d records", n)
	}
}

// Repairs publish to a topic with unlimited retention whose first records were deleted.
func TestRepairOfTrimmedTopic(t *testing.T) {
	t.Parallel()
	cfg, live := ready(t, exactly)
	publish(t, live, page(event("e", "u"), event("f", "v")))
	truncate(t, cfg)
	live.Close()
	if err := republish(t, openRepair(t, cfg), "g"); err != nil {
		t.Error(err)
	}
}
