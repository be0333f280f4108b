package kafkaclient_test

import (
	"slices"
	"testing"

	"exportbridge/bridge/kafkaclient"
)

// What is sent to another machine without TLS can be read on the way.
func TestUnsafe(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		brokers []string
		tls     bool
		want    []string
	}{
		{[]string{"kafka:9092"}, false, []string{"KAFKA_TLS_ENABLED"}},
		{[]string{"localhost:9092", "10.0.0.1:9092"}, false, []string{"KAFKA_TLS_ENABLED"}},
		{[]string{"kafka:9092"}, true, nil},
		{[]string{"localhost:9092", "127.0.0.2:9092", "[::1]:9092"}, false, nil},
	} {
		c := kafkaclient.DefaultConfig()
		c.Brokers, c.TLSEnabled = tc.brokers, tc.tls
		if got := c.Unsafe(); !slices.Equal(got, tc.want) {
			t.Errorf("%q, TLS %t: %q, want %q", tc.brokers, tc.tls, got, tc.want)
		}
	}
	c := kafkaclient.Config{TLSSkipVerify: true, SASL: kafkaclient.SASL{SASLInsecure: true}}
	if got := c.Unsafe(); !slices.Equal(got, []string{"KAFKA_TLS_SKIP_VERIFY", "KAFKA_SASL_INSECURE"}) {
		t.Errorf("%q", got)
	}
}
