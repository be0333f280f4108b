package engine_test

import (
	"testing"
	"time"

	"exportbridge/bridge"
)

// TestTopicCutOffAndRefilled: another stream fills the topic up to the previous end. The loss
// is reported until an operator accepts it, whether a running stream noticed it or a new one.
func TestTopicCutOffAndRefilled(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{true, false} {
		inTopic(t, func(r *harness) {
			if running {
				r.topic.Cut(3)
				r.source.Grow(5)
			} else {
				r.end()
				r.topic.Cut(3)
				r.start()
			}
			r.after(5 * time.Second) // it blocks before the first minute is over
			r.wantTopicBlocked("3 offsets")
			r.topic.Share(100)
			for n := range 2 {
				r.after(5 * time.Minute)
				r.wantTopicBlocked("lost 3 offsets")
				r.wantObserved(bridge.ObserveTopic, bridge.TopicLost, n+1) // each process counts it once
				r.end()
				r.start()
			}
			r.after(5 * time.Minute)
			now := r.store.Checkpoint()
			r.steer(reset("accept", now.Epoch, stay(now)), true)
			r.after(time.Minute)
			r.wantState(bridge.StateIdle, "")
			r.restart(time.Minute)
			r.wantState(bridge.StateIdle, "")
			if lost := r.store.Checkpoint().Topics[0].Lost; lost != 0 {
				t.Errorf("the checkpoint still records %d lost offsets", lost)
			}
		})
	}
}
