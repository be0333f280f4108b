package conformance

import (
	"context"
	"testing"

	"exportbridge/bridge"
)

func sinkTopics(t *testing.T, f SinkFixture) {
	s := f.Open(stream)
	mustRecover(t, s)
	before := topicsOf(t, s)
	if events := before[0]; events.ID == "" && !f.ByName || events.DeadLetters || events.Partitions < 1 ||
		events.End != 0 {
		t.Errorf("the topic of a new stream is %+v, want it empty, with an id and partitions", events)
	}
	const events = 20
	for seq := range 3 {
		receipt := mustPublish(t, s, batchOf(seq, events))
		if end := receipt.Topics[0].End; end < int64((seq+1)*events) {
			t.Errorf("the receipt of batch %d says that the topic reaches %d, want at least %d", seq, end, (seq+1)*events)
		}
	}
	mustRecover(t, s)
	after := topicsOf(t, s)[0]
	if after.ID != before[0].ID || after.Partitions != before[0].Partitions || after.End < 3*events {
		t.Errorf("a new session finds %+v, want %+v with at least %d records", after, before[0], 3*events)
	}
	if again := topicsOf(t, s)[0]; again != after {
		t.Errorf("a second look finds %+v, want %+v", again, after)
	}
}

// sinkRecreated recreates the topic at both moments at which a session cannot have noticed:
// before its first publish, and after.
func sinkRecreated(t *testing.T, f SinkFixture) {
	if f.Recreate == nil {
		t.Skip("this fixture cannot make a topic again (Recreate is nil)")
	}
	visible := f.Mode == bridge.AtLeastOnce && f.ByName
	seq := 0
	for name, before := range map[string]int{"at the beginning of a session": 0, "in a session": 2} {
		s := f.Open(stream)
		mustRecover(t, s)
		id := topicsOf(t, s)[0].ID
		for range before {
			mustPublish(t, s, batchOf(seq, 20))
			seq++
		}
		f.Recreate()
		if _, err := publish(t, s, batchOf(seq, 20)); err == nil {
			t.Errorf("%s: a batch was published to a topic that was made again", name)
		}
		seq++
		if n := len(f.Records()); n > 0 && !visible {
			t.Errorf("%s: %d records are in the topic that was made again", name, n)
		}
		mustRecover(t, s)
		if again := topicsOf(t, s)[0]; again.ID == id && id != "" {
			t.Errorf("%s: the topic that was made again has the same id %q", name, id)
		}
		mustPublish(t, s, batchOf(seq, 20))
		seq++
	}
}

func topicsOf(t *testing.T, s bridge.Sink) []bridge.TopicState {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	topics, err := s.Topics(ctx)
	if err != nil {
		t.Fatalf("topics: %v", err)
	}
	return topics
}
