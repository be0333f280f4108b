package kafkaclient

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
)

// TestMonitorForgets: the last error of a broker that was removed from the cluster, which no request goes to any more,
// is not the cause of a later stall.
func TestMonitorForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		removed, stuck := kgo.BrokerMetadata{NodeID: 1, Host: "removed", Port: 9092}, kgo.BrokerMetadata{NodeID: 2, Host: "stuck"}
		m := newConnMonitor()
		m.OnBrokerConnect(removed, 0, nil, errors.New("refused"))
		if err := m.cause(); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("the cause is %v, want the error of the connection", err)
		}
		bridge.Sleep(t.Context(), time.Hour)
		if err := m.cause(); err != nil {
			t.Errorf("after an hour without another attempt the cause is %v", err)
		}
		m.OnBrokerWrite(stuck, 0, 0, 0, 0, nil)
		bridge.Sleep(t.Context(), 2*slowAnswer)
		if err := m.cause(); err == nil || !strings.Contains(err.Error(), "stuck") {
			t.Errorf("the cause is %v, want the broker that does not answer", err)
		}
	})
}
