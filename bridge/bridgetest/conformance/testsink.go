package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
)

// SinkFixture is an empty topic, and opens Sinks for it.
type SinkFixture struct {
	// Mode is the delivery guarantee of the Sinks.
	Mode bridge.Mode
	// Open returns a Sink of the named stream on the fixture's topic, like that of a new
	// process. Items that the topic cannot hold go to the dead letters. The fixture closes
	// the Sink.
	Open func(stream string) bridge.Sink
	// Records returns the records that a read_committed consumer gets from the topic, then
	// from the dead-letter topic. Records of one key are in topic order.
	Records func() []bridgetest.Record
	// Break makes the server unreachable, and heal makes it answer again. Calls in progress
	// keep waiting.
	Break func() (heal func())
	// FailNext makes the next Publish fail in the given form. It is nil if the server
	// cannot do that; then the suite skips the tests that need it.
	FailNext func(f bridgetest.Failure)
	// Recreate deletes the topic of the events and creates an empty one. It is nil if the
	// fixture cannot do that; then the suite skips the tests that need it. ByName is set if
	// requests name topics without their ids, so that records in at-least-once mode can get
	// into the new topic.
	Recreate func()
	ByName   bool
}

// TestSink checks a Sink against each sentence of its contract.
func TestSink(t *testing.T, newFixture func(t *testing.T) SinkFixture) {
	for _, c := range []struct {
		sentence string
		test     func(*testing.T, SinkFixture)
	}{
		{"recover returns the newest checkpoint committed, or none", sinkRecovers},
		{"recover begins a new session each time", sinkSessions},
		{"recover ends what an earlier session left", sinkFences},
		{"recover waits for the server as long as ctx allows", sinkWaits},
		{"publish makes every event durable, byte for byte, in order", sinkPublishes},
		{"a batch may be empty", sinkEmptyBatch},
		{"the receipt counts what became of the events", sinkReceipt},
		{"an error leaves nothing half done that a recovery cannot repair", sinkUnknownOutcome},
		{"after an error the session is over", sinkSessionOver},
		{"a batch may be sent page by page", sinkGrows},
		{"the pages are released before publish returns, and not used any more", sinkLetsGo},
		{"close ends the session, and a recovery begins another", sinkCloses},
		{"a recovery forgets what was sent and not published", sinkForgets},
		{"holds says whether the topic has a record of this stream", sinkHolds},
		{"topics says which the topics are and how far they reach", sinkTopics},
		{"a session publishes nothing to a topic that was made again", sinkRecreated},
	} {
		t.Run(c.sentence, func(t *testing.T) { c.test(t, newFixture(t)) })
	}
}

const stream = "events"

func sinkRecovers(t *testing.T, f SinkFixture) {
	s := f.Open(stream)
	if c, err := recoverSink(t, s); !errors.Is(err, bridge.ErrNoCheckpoint) {
		t.Fatalf("recover of an empty topic returned %v, %v; want ErrNoCheckpoint", c.Version, err)
	}
	for seq := range 3 {
		mustPublish(t, s, batchOf(seq, 2))
	}
	for name, s := range map[string]bridge.Sink{"the same sink": s, "a new sink": f.Open(stream)} {
		c, err := recoverSink(t, s)
		if f.Mode == bridge.AtLeastOnce {
			if !errors.Is(err, bridge.ErrNoCheckpoint) {
				t.Errorf("%s recovered %v, %v; want ErrNoCheckpoint: this mode keeps none", name, c.Version, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: recover: %v", name, err)
		} else if diff := cmp.Diff(batchOf(2, 2).Checkpoint, c); diff != "" {
			t.Errorf("%s recovered another checkpoint (-want +got):\n%s", name, diff)
		}
	}
}

func sinkSessions(t *testing.T, f SinkFixture) {
	s := f.Open(stream)
	for seq := range 3 {
		mustRecover(t, s)
		mustPublish(t, s, batchOf(seq, 2))
	}
	wantRecords(t, f, 3, 2)
}

func sinkFences(t *testing.T, f SinkFixture) {
	older, newer := f.Open(stream), f.Open(stream)
	mustRecover(t, older)
	mustPublish(t, older, batchOf(0, 2))
	mustRecover(t, newer)
	if f.Mode == bridge.ExactlyOnce {
		if _, err := publish(t, older, batchOf(1, 2)); err == nil {
			t.Error("the older session published after the newer one had recovered")
		}
	}
	mustPublish(t, newer, batchOf(1, 2))
	wantRecords(t, f, 2, 2)
}

func sinkWaits(t *testing.T, f SinkFixture) {
	s := f.Open(stream)
	mustRecover(t, s)
	heal := f.Break()
	ctx, cancel := context.WithTimeout(t.Context(), 2*moment)
	defer cancel()
	began := time.Now()
	if _, err := s.Recover(ctx, nil); err == nil || errors.Is(err, bridge.ErrNoCheckpoint) {
		t.Errorf("recover without a server returned %v, want an error", err)
	}
	if took := time.Since(began); took < moment || took > patience {
		t.Errorf("recover without a server came back after %s, want about %s", took, 2*moment)
	}

	// The context has no deadline, because a server can take long to start on a loaded
	// machine. receive limits the wait, once the server answers again.
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() {
		_, err := s.Recover(ctx, nil)
		result <- err
	}()
	select {
	case err := <-result:
		t.Errorf("recover did not wait for the server: %v", err)
		heal()
	case <-time.After(moment):
		heal()
		if err := receive(t, result, "recover after the server was back"); err != nil &&
			!errors.Is(err, bridge.ErrNoCheckpoint) {
			t.Errorf("recover after the server was back: %v", err)
		}
	}
	mustPublish(t, s, batchOf(0, 2))
	wantRecords(t, f, 1, 2)
}

func sinkPublishes(t *testing.T, f SinkFixture) {
	s := f.Open(stream)
	mustRecover(t, s)
	const batches, events = 5, 40
	for seq := range batches {
		mustPublish(t, s, batchOf(seq, events))
		wantRecords(t, f, seq+1, events) // readable as soon as Publish returned
	}
}

func sinkEmptyBatch(t *testing.T, f SinkFixture) {
	s := f.Open(stream)
	mustRecover(t, s)
	b := batchOf(0, 0)
	for name, pages := range map[string][]*bridge.Page{"no pages": nil, "a page without events": b.Pages} {
		b.Pages = pages
		got := mustPublish(t, s, b)
		if got.Published != 0 || got.Bytes != 0 || len(got.DeadLettered) != 0 {
			t.Errorf("%s: receipt is %+v, want nothing", name, got)
		}
		b.Checkpoint.Seq++
	}
	wantRecords(t, f, 0, 0)
}

func sinkReceipt(t *testing.T, f SinkFixture) {
	s := f.Open(stream)
	mustRecover(t, s)
	b := batchOf(0, 4)
	events := b.Pages[0].Events
	events[1].Defect, events[3].Defect = bridge.DefectTime, bridge.DefectNotObject
	events[0].Mismatch, events[1].Mismatch = new(bridge.Mismatch), new(bridge.Mismatch)
	want := bridge.Receipt{
		Published:    2,
		Mismatched:   2,
		DeadLettered: map[bridge.Defect]int{bridge.DefectTime: 1, bridge.DefectNotObject: 1},
		Bytes:        int64(len(events[0].Raw) + len(events[2].Raw)),
	}
	letters := map[string]bridge.Defect{
		string(events[1].Raw): bridge.DefectTime,
		string(events[3].Raw): bridge.DefectNotObject,
	}
	if diff := cmp.Diff(want, mustPublish(t, s, b), cmpopts.IgnoreFields(bridge.Receipt{}, "Topics")); diff != "" {
		t.Errorf("receipt differs (-want +got):\n%s", diff)
	}
	var published int
	for _, r := range f.Records() {
		switch want, dead := letters[string(r.Value)]; {
		case r.Defect == "" && !dead:
			published++
		case r.Defect != want:
			t.Errorf("record %s has defect %q, want %q", r.Value, r.Defect, want)
		default:
			delete(letters, string(r.Value))
		}
	}
	if published != 2 || len(letters) != 0 {
		t.Errorf("%d events published and these dead letters missing: %v", published, letters)
	}
}

// sinkUnknownOutcome acts like the engine: after an error it recovers, and continues from
// the newest checkpoint.
func sinkUnknownOutcome(t *testing.T, f SinkFixture) {
	if f.FailNext == nil {
		t.Skip("this fixture cannot make Publish fail (FailNext is nil)")
	}
	forms := []bridgetest.Failure{bridgetest.Failed, bridgetest.Persisted}
	if f.Mode == bridge.AtLeastOnce {
		forms = append(forms, bridgetest.Partly)
	}
	s := f.Open(stream)
	mustRecover(t, s)
	const events = 10
	for seq, form := range forms {
		f.FailNext(form)
		if _, err := publish(t, s, batchOf(seq, events)); err == nil {
			t.Fatalf("publish told to have %s returned nil", form)
		}
		c, err := recoverSink(t, s)
		if err == nil && c.Seq == int64(seq) && f.Mode == bridge.ExactlyOnce {
			continue // the batch was committed
		}
		if err != nil && !errors.Is(err, bridge.ErrNoCheckpoint) {
			t.Fatalf("recover after a publish that %s: %v", form, err)
		}
		mustPublish(t, s, batchOf(seq, events))
	}
	if f.Mode == bridge.ExactlyOnce {
		wantRecords(t, f, len(forms), events)
		return
	}
	seen := map[string]int{}
	for _, r := range f.Records() {
		seen[r.ID]++
	}
	for seq := range forms {
		for _, e := range batchOf(seq, events).Pages[0].Events {
			if n := seen[string(e.ID)]; n < 1 || n > 2 {
				t.Errorf("event %s is %d times in the topic, want once or twice", e.ID, n)
			}
		}
	}
}

func sinkSessionOver(t *testing.T, f SinkFixture) {
	s := f.Open(stream)
	mustRecover(t, s)
	heal := f.Break()
	ctx, cancel := context.WithTimeout(t.Context(), 2*moment)
	defer cancel()
	if _, err := batchOf(0, 2).Publish(ctx, s); err == nil {
		t.Error("publish without a server returned nil")
	}
	heal()
	if _, err := publish(t, s, batchOf(0, 2)); err == nil {
		t.Error("publish after an error and without a recovery returned nil")
	}
	mustRecover(t, s)
	mustPublish(t, s, batchOf(1, 2))
}

func sinkLetsGo(t *testing.T, f SinkFixture) {
	s := f.Open(stream)
	mustRecover(t, s)
	for seq := range 3 {
		b := batchOf(seq, 20) // the release poisons its memory
		mustPublish(t, s, b)
		if b.Pages[0].Recycle != nil {
			t.Error("publish returned with a page that is not released")
		}
	}
	wantRecords(t, f, 3, 20)

	heal := f.Break()
	b := batchOf(3, 20)
	ctx, cancel := context.WithTimeout(t.Context(), 2*moment)
	defer cancel()
	if _, err := b.Publish(ctx, s); err == nil {
		t.Error("publish without a server returned nil")
	}
	if b.Pages[0].Recycle != nil {
		t.Error("publish failed with a page that is not released")
	}
	heal()
	mustRecover(t, s)
	mustPublish(t, s, batchOf(4, 20))
	for _, r := range f.Records() {
		if poisoned(r.Value) || poisoned(r.Key) || poisoned([]byte(r.ID)) {
			t.Fatalf("record %q was taken from a page after its release", r.Value)
		}
	}
}

// sinkGrows sends the pages of a batch with pauses between them.
func sinkGrows(t *testing.T, f SinkFixture) {
	s := f.Open(stream)
	mustRecover(t, s)
	const pages, events = 4, 20
	for seq := range 2 * pages {
		b := batchOf(seq, events)
		if err := s.Send(t.Context(), b.Pages[0]); err != nil {
			t.Fatalf("send page %d: %v", seq, err)
		}
		if b.Pages = nil; (seq+1)%pages != 0 {
			continue
		}
		if got := mustPublish(t, s, b); got.Published != pages*events {
			t.Errorf("the receipt counts %d events, want %d", got.Published, pages*events)
		}
		wantRecords(t, f, seq+1, events)
	}
}

func sinkCloses(t *testing.T, f SinkFixture) {
	s := f.Open(stream)
	s.Close() // no session yet
	for seq := range 2 {
		mustRecover(t, s)
		mustPublish(t, s, batchOf(seq, 3))
		s.Close()
		s.Close()
	}
	wantRecords(t, f, 2, 3)
}

// sinkForgets sends a batch and never publishes it.
func sinkForgets(t *testing.T, f SinkFixture) {
	s := f.Open(stream)
	mustRecover(t, s)
	left := batchOf(0, 20).Pages[0]
	if err := s.Send(t.Context(), left); err != nil {
		t.Fatalf("send: %v", err)
	}
	mustRecover(t, s)
	if left.Recycle != nil {
		t.Error("recover returned with a page that is not released")
	}
	if f.Mode == bridge.AtLeastOnce {
		return // in at-least-once mode the topic may have its events
	}
	mustPublish(t, s, batchOf(0, 20))
	wantRecords(t, f, 1, 20)
}

func sinkHolds(t *testing.T, f SinkFixture) {
	ours, other := f.Open(stream), f.Open("other")
	mustRecover(t, ours)
	mustRecover(t, other)
	check := func(when string, s bridge.Sink, want bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		got, err := s.Holds(ctx)
		if err != nil || got != want {
			t.Errorf("%s: holds is %v, %v; want %v", when, got, err, want)
		}
	}
	check("empty topic", ours, false)
	b := batchOf(0, 3)
	b.Checkpoint.Stream = "other"
	mustPublish(t, other, b)
	check("records of another stream", ours, false)
	check("own records", other, true)
	mustPublish(t, ours, batchOf(0, 3))
	check("own records among others", ours, true)
	check("own records, asked by a new process", f.Open(stream), true)
}

// batchOf returns batch seq of a stream: one page with n events that are in no other batch.
func batchOf(seq, n int) bridgetest.Load {
	first := seq * n
	at := bridge.Position{}
	if seq > 0 {
		at.Cursor = fmt.Sprint("c", seq)
	}
	p := bridgetest.NewPage(at, fmt.Appendf(nil, `{"items":[%s],"nextCursor":"c%d"}`, itemBodies(first, n), seq+1))
	if err := bridgetest.DecodePage(p); err != nil {
		panic(err) // the body above is a page
	}
	return bridgetest.Load{Pages: []*bridge.Page{p}, Batch: bridge.Batch{Checkpoint: bridge.Checkpoint{
		Format: bridge.CheckpointFormat, Stream: stream, Version: bridge.Version{Epoch: 1, Seq: int64(seq)},
		Kind: bridge.KindData, Cursor: p.Next, Origin: bridge.Origin{Resource: "events"},
		Events: int64(first + n), Pages: int64(seq + 1), Session: "session", WrittenAt: itemTime,
	}}}
}

// wantRecords checks that the topic holds the events of the first batches and no others:
// each in one unchanged copy, in order within each key.
func wantRecords(t *testing.T, f SinkFixture, batches, events int) {
	t.Helper()
	want := map[string][]bridgetest.Record{}
	for seq := range batches {
		for _, e := range batchOf(seq, events).Pages[0].Events {
			want[string(e.Key)] = append(want[string(e.Key)], bridgetest.Record{
				Stream: stream, ID: string(e.ID), Key: e.Key, Value: e.Raw, Time: e.Time})
		}
	}
	got := map[string][]bridgetest.Record{}
	for _, r := range f.Records() {
		got[string(r.Key)] = append(got[string(r.Key)], r)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("topic differs, by key (-want +got):\n%s", diff)
	}
}

func publish(t *testing.T, s bridge.Sink, b bridgetest.Load) (bridge.Receipt, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return b.Publish(ctx, s)
}

func mustPublish(t *testing.T, s bridge.Sink, b bridgetest.Load) bridge.Receipt {
	t.Helper()
	r, err := publish(t, s, b)
	if err != nil {
		t.Fatalf("publish %s: %v", b.Checkpoint.Version, err)
	}
	return r
}

func recoverSink(t *testing.T, s bridge.Sink) (bridge.Checkpoint, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return s.Recover(ctx, nil)
}

func mustRecover(t *testing.T, s bridge.Sink) {
	t.Helper()
	if _, err := recoverSink(t, s); err != nil && !errors.Is(err, bridge.ErrNoCheckpoint) {
		t.Fatalf("recover: %v", err)
	}
}

func poisoned(b []byte) bool { return slices.Contains(b, bridgetest.Poison) }
