package kafkaclient_test

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkaclient"
)

// A client for a short time waits no longer for the first answer of a broker, which no
// context ends.
func TestClientWithin(t *testing.T) {
	t.Parallel()
	cfg := kafkaclient.DefaultConfig()
	for _, test := range []struct{ left, least, most time.Duration }{
		{0, 3 * time.Second, 3 * time.Second}, // no deadline
		{time.Hour, 3 * time.Second, 3 * time.Second},
		{2 * time.Second, 100 * time.Millisecond, 2 * time.Second},
		{time.Nanosecond, 100 * time.Millisecond, 100 * time.Millisecond},
	} {
		ctx := t.Context()
		if test.left > 0 {
			limited, cancel := context.WithTimeout(ctx, test.left)
			defer cancel()
			ctx = limited
		}
		must.Get(kafkaclient.With(ctx, &cfg, "", func(_ context.Context, c *kafkaclient.Client) (bool, error) {
			got := c.OptValue(kgo.RequestTimeoutOverhead).(time.Duration)
			if got < test.least || got > test.most {
				t.Errorf("%s left: the client waits for %s, want %s to %s", test.left, got, test.least, test.most)
			}
			return true, nil
		}))(t)
	}
}
