package process

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/bridgetest/must"
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

// TestJobHint: a job is resumed after what its hint says, except one that is cancelled by then.
func TestJobHint(t *testing.T) {
	t.Parallel()
	lost := &bridge.Fault{Code: bridge.CodeTopicLost, Reason: bridge.ReasonTopic, Err: errors.New("lost")}
	const cancel = "exportbridge backfill cancel k3xq7a --execute, then start a new job for the "
	for want, err := range map[string]error{
		"RESUME": errors.New("disk full"),
		"cancel the job, whose cursor the API no longer accepts: " + cancel + "remaining windows": &bridge.BlockedError{
			Reason: bridge.ReasonCursor},
		"cancel the job, whose topic has lost events: " + cancel + "whole range": &bridge.BlockedError{
			Reason: bridge.ReasonTopic, Err: lost},
		"grant it; then RESUME": &bridge.BlockedError{Reason: bridge.ReasonAuth, Hint: "grant it"},
	} {
		if got := JobHint(err, &backfill.Job{ID: "k3xq7a"}, "RESUME"); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// TestHintsNameStream: with several streams, the command in the hint of a log record names the
// stream. Without --stream it would be rejected.
func TestHintsNameStream(t *testing.T) {
	t.Parallel()
	st := &config.Stream{Name: "users"}
	st.Contract.Schema = `{"type": "object", "properties": {"id": {"type": "string"}}}`
	must.Do(t, st.Contract.Validate([]string{""}))
	blocked := &bridge.BlockedError{Reason: bridge.ReasonCursor, Err: errors.New("410 Gone")}
	for want, say := range map[string]func(*Process){
		"exportbridge backfill cancel --stream users k3xq7a --execute": func(p *Process) {
			p.logLane("users", "k3xq7a", 0, blocked)
		},
		"exportbridge backfill --stream users --resume k3xq7a --execute": func(p *Process) {
			p.logJob(&backfill.Job{Stream: "users", ID: "k3xq7a", Kind: backfill.Backfill}, errors.New("disk full"))
		},
		"exportbridge schema check --stream users counts": func(p *Process) {
			checker := must.Get(checkerOf(st, p.log, &p.streams))(t)
			checker.Check(&bridge.Page{Events: []bridge.Event{{Raw: []byte(`{"id":1}`)}}})
		},
	} {
		var out bytes.Buffer
		p := &Process{log: slog.New(slog.NewTextHandler(&out, nil))}
		p.streams.set([]*stream{{name: "events"}, {name: "users"}})
		if say(p); !strings.Contains(out.String(), want) {
			t.Errorf("%s: want %q", out.String(), want)
		}
	}
}
