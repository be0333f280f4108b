package bridgetest_test

import (
	"testing"

	"go.uber.org/goleak"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/conformance"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSourceConformance(t *testing.T) {
	t.Parallel()
	conformance.TestSource(t, func(t *testing.T) conformance.SourceFixture {
		s := bridgetest.NewSource(t, bridgetest.Export{})
		return conformance.SourceFixture{Source: s, Serve: s.Serve}
	})
}

func TestSinkConformance(t *testing.T) {
	t.Parallel()
	for _, mode := range []bridge.Mode{bridge.AtLeastOnce, bridge.ExactlyOnce} {
		t.Run(string(mode), func(t *testing.T) {
			conformance.TestSink(t, func(t *testing.T) conformance.SinkFixture {
				topic := bridgetest.NewTopic(t, mode)
				topic.AllowMisuse = true
				return conformance.SinkFixture{
					Mode:     mode,
					Open:     func(stream string) bridge.Sink { return topic.Open(stream) },
					Records:  topic.Records,
					Break:    topic.Break,
					FailNext: topic.FailNext,
					Recreate: topic.Recreate,
				}
			})
		})
	}
}

func TestStoreConformance(t *testing.T) {
	t.Parallel()
	conformance.TestStore(t, func(t *testing.T) conformance.StoreFixture {
		stores := map[string]*bridgetest.Store{}
		for _, stream := range []string{"events", "other"} {
			stores[stream] = bridgetest.NewStore(t, stream)
		}
		s := stores["events"]
		return conformance.StoreFixture{
			Open:     func(stream string) bridge.Store { return stores[stream] },
			Get:      s.Get,
			Put:      s.Put,
			Wipe:     s.Wipe,
			Break:    s.Break,
			FailNext: s.FailNext,
			History: func() (versions []bridge.Version) {
				for _, c := range s.History() {
					versions = append(versions, c.Version)
				}
				return versions
			},
		}
	})
}

func TestInboxConformance(t *testing.T) {
	t.Parallel()
	conformance.TestInbox(t, func(t *testing.T) conformance.InboxFixture {
		i := bridgetest.NewInbox(t)
		return conformance.InboxFixture{Inbox: i, Push: i.Push, Withdraw: i.Withdraw, Claimed: i.Claimed, Answer: i.AnswerTo}
	})
}
