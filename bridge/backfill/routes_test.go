package backfill_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/bridgetest/must"
)

// TestJobTopics: a backfill publishes to the topics of its routes, a replay to one.
func TestJobTopics(t *testing.T) {
	t.Parallel()
	j := backfill.Job{Kind: backfill.Backfill, Topic: "T", Routes: "a*=T.a,b*=drop,c*=T,*=T.rest"}
	if got := j.Topics(); !slices.Equal(got, []string{"T", "T.a", "T.rest"}) {
		t.Errorf("a backfill has the topics %v", got)
	}
	if !j.Publishes([]string{"other", "T.rest"}) || j.Publishes([]string{"other", "drop"}) {
		t.Error("a backfill does not publish to its topics only")
	}
	j.Kind = backfill.Replay
	if got := j.Topics(); !slices.Equal(got, []string{"T"}) {
		t.Errorf("a replay has the topics %v", got)
	}
}

// TestOtherRoutes: a backfill begins with the routes of the stream only, or before its first
// start. A replay has a topic of its own.
func TestOtherRoutes(t *testing.T) {
	inOwnWorld(t, 10, func(t *testing.T, w *world) {
		s, _ := w.beside()
		s.Routes = "a*=T.a"
		live := bridge.Checkpoint{Format: 1, Stream: stream, Origin: bridge.Origin{Resource: "events", Start: second(5000)}}
		for routes, want := range map[string]backfill.Reason{
			"": backfill.OtherRoutes, "b*=T.b": backfill.OtherRoutes, s.Routes: "",
		} {
			live.Routes = routes
			s.Live = checkpoints{live}
			_, err := s.Plan(t.Context(), ask(10), time.Now())
			text := fmt.Sprintf(`KAFKA_ROUTES is "a*=T.a", but stream events publishes by %q`, routes)
			if reasonOf(err) != want || err != nil && err.Error() != text {
				t.Errorf("a stream with the routes %q: %v", routes, err)
			}
			replay := ask(10)
			replay.Kind = backfill.Replay
			if _, err := s.Plan(t.Context(), replay, time.Now()); err != nil {
				t.Errorf("a replay of a stream with the routes %q: %v", routes, err)
			}
		}
	})
}

// TestRoutesOfThePlan: a job keeps the routes, and the ids of all topics, of its plan.
func TestRoutesOfThePlan(t *testing.T) {
	inOwnWorld(t, 10, func(t *testing.T, w *world) {
		s, _ := w.beside()
		s.Routes = "a*=T.a"
		plan := must.Get(s.Plan(t.Context(), ask(10), time.Now()))(t)
		began, err := s.Begin(t.Context(), plan)
		if err != nil || began.TopicID != "id of export.events" || !maps.Equal(began.RoutedIDs, map[string]string{"T.a": "id of T.a"}) {
			t.Fatalf("%+v, %v", began, err)
		}
		s.Routes = "b*=T.b"
		job, err := s.Resumable(t.Context(), &backfill.Resumption{ID: began.ID})
		if err != nil || job.Routes != "a*=T.a" || !maps.Equal(job.RoutedIDs, began.RoutedIDs) {
			t.Errorf("%+v, %v", job, err)
		}
	})
}
