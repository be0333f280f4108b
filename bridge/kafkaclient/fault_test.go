package kafkaclient_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"exportbridge/bridge/kafkaclient"
)

// TestReadFault: what may not be read needs the grant to read it.
func TestReadFault(t *testing.T) {
	t.Parallel()
	cfg := kafkaclient.Config{Brokers: []string{"kafka:9092"}}
	err := fmt.Errorf("read: %w", kerr.TopicAuthorizationFailed)
	if got := cfg.ReadFault(err, "dlq").Hint; got != cfg.GrantRead("dlq") || !strings.Contains(got, "--operation Read ") {
		t.Errorf("hint %q", got)
	}
	if got := cfg.Fault(err, "dlq").Hint; got != cfg.GrantWrite("dlq") {
		t.Errorf("hint of writing %q", got)
	}
}
