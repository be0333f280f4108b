package exportapi_test

import (
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/engine"
	"exportbridge/bridge/exportapi/exportsim"
)

// TestEngineOverABadLink runs the engine over real connections that break. Every event is
// published once, in order.
func TestEngineOverABadLink(t *testing.T) {
	t.Parallel()
	for name, offer := range map[string]exportsim.Config{"plain": {}, "gzip": {Gzip: true}, "zstd": {Zstd: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const events, size = 12_000, 200
			offer.Seed, offer.Events, offer.CursorFirst, offer.BandwidthBits = 7, events, true, 200e6
			offer.Faults = exportsim.Faults{{Kind: exportsim.FaultReset, Probability: .03},
				{Kind: exportsim.FaultTruncate, Probability: .03},
				{Kind: exportsim.FaultMalformed, Probability: .02}}
			api := must.Get(exportsim.New(offer))(t)
			t.Cleanup(api.Close)
			server := listen(t, api)
			topic := bridgetest.NewTopic(t, bridge.ExactlyOnce)
			source := connect(t, config(t, map[string]string{"EXPORT_URL": server.URL, "EXPORT_PAGE_SIZE": "200"}))
			b := must.Get(engine.New(engine.Config{
				Stream: "events", Mode: bridge.ExactlyOnce, Origin: bridge.Origin{Resource: "events"}, PageSize: size, Owner: "me",
				PollInterval: time.Second, PollIntervalMax: time.Second, PrefetchPages: 8, PrefetchBytes: 16 << 20,
				RetryMax:   time.Second,
				EmptyPages: 5, OnInvalidCursor: "stop", OnSharedID: "publish", OnCheckpointLoss: "kafka",
				ShutdownTimeout: time.Second, Limits: engine.Limits{Once: true},
			}, engine.Ports{Source: source, Sink: topic.Open("events"), Store: bridgetest.NewStore(t, "events"),
				Inbox: bridgetest.NewInbox(t)}))(t)
			must.Do(t, b.Run(t.Context()))
			records := topic.Records()
			if len(records) != events {
				t.Errorf("%d records, want %d", len(records), events)
			}
			for i, r := range records {
				if n, ok := exportsim.IndexOf(r.Value); !ok || n != i {
					t.Fatalf("record %d is event %d", i, n)
				}
			}
		})
	}
}
