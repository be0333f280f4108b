package kafkasink_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// loseEnd has the next end of a transaction happen, and its answer lost.
func loseEnd(t *testing.T, c *kfake.Cluster) {
	t.Helper()
	lost := false
	c.ControlKey(int16(kmsg.EndTxn), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if lost {
			return nil, nil, false // the copy
		}
		lost = true
		var err error
		c.SleepControl(func() { err = endAsWell(t, c, req.(*kmsg.EndTxnRequest)) })
		if err != nil {
			t.Errorf("end the transaction: %v", err)
		}
		resp := req.ResponseKind().(*kmsg.EndTxnResponse)
		resp.ErrorCode = kerr.UnknownServerError.Code
		return resp, nil, true
	})
}

// endAsWell sends a copy of the request.
func endAsWell(t *testing.T, c *kfake.Cluster, req *kmsg.EndTxnRequest) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		return err
	}
	defer client.Close()
	again := *req
	resp, err := again.RequestWith(t.Context(), client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// countFetches returns a function that counts fetches since its last call.
func countFetches(c *kfake.Cluster) func() int {
	seen := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Count: -1, Observe: true})
	last := 0
	return func() int {
		n := seen.Hits()
		last, n = n, n-last
		return n
	}
}
