package process

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"exportbridge/bridge/backfill"
	"exportbridge/bridge/exportapi"
	"exportbridge/cmd/internal/config"
)

// TestReplayTopic: a replay goes to none of the topics of a stream.
func TestReplayTopic(t *testing.T) {
	t.Parallel()
	all := &config.Settings{Streams: make([]config.Stream, 1)}
	k := &all.Streams[0].Kafka
	k.Topic, k.CheckpointTopic, k.DLQTopic, k.RouteText = "T", "checkpoints", "dead", "a=T.a"
	w := &jobPorts{all: all, Stream: &all.Streams[0]}
	for _, topic := range []string{
		"T", "T.a", "dead", "dlq.T", "checkpoints", "checkpoints.jobs", "T.keys", "T.attest",
	} {
		_, err := w.Choose(t.Context(), &backfill.Job{ID: "a", Kind: backfill.Replay, Topic: topic})
		if err == nil || !strings.Contains(err.Error(), "belongs to stream") {
			t.Errorf("a replay to %s: %v", topic, err)
		}
	}
}

// TestJobChecksBounds: the request before a job has both bounds, as its windows have.
func TestJobChecksBounds(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if q := r.URL.Query(); q.Get("start") == "" || q.Get("end") == "" {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = fmt.Fprint(w, `{"items":[]}`)
	}))
	t.Cleanup(api.Close)
	st := &config.Stream{Export: exportapi.DefaultConfig()}
	st.Export.URL, st.Export.Auth.Scheme = api.URL, "none"
	if err := (&jobPorts{Stream: st}).checkAPI(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
