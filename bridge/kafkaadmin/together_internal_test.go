package kafkaadmin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge/kafkaclient"
)

// counted returns a client of a fake cluster, and the number of requests that create topics.
func counted(t *testing.T) (*kafkaclient.Client, *atomic.Int64) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	n := new(atomic.Int64)
	cluster.ControlKey(kmsg.CreateTopics.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		n.Add(1)
		return nil, nil, false
	})
	cfg := kafkaclient.DefaultConfig()
	cfg.Brokers = cluster.ListenAddrs()
	client, err := cfg.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client, n
}

// creator makes topics of a stream together with others.
func creator(client *kafkaclient.Client, with *Creations) *maker {
	s := &Stream{Config: kafkaclient.DefaultConfig(), Layout: DefaultLayout()}
	s.Creations = with
	return s.maker(client)
}

// TestCreateTogether: streams that start together create their topics by few requests, one
// of all of them once.
func TestCreateTogether(t *testing.T) {
	t.Parallel()
	client, requests := counted(t)
	const streams = 20
	var with Creations
	var all sync.WaitGroup
	names := []string{"dlq"}
	for i := range streams {
		names = append(names, fmt.Sprintf("t%d", i))
		all.Go(func() {
			if err := creator(client, &with).make(t.Context(), names[0], fmt.Sprintf("t%d", i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	topics, err := client.Identify(t.Context(), names...)
	for _, topic := range topics {
		if !topic.Exists || len(topic.Partitions) != int(DefaultLayout().Partitions) {
			t.Errorf("topic %s: %+v", topic.Name, topic)
		}
	}
	if n := requests.Load(); err != nil || n > streams/2 {
		t.Errorf("%d requests for %d streams, %v", n, streams, err)
	}
}

// TestCreateAfterOthersFail: a stream whose topics another one could not create does so
// itself, and one that is stopped does not wait for others.
func TestCreateAfterOthersFail(t *testing.T) {
	t.Parallel()
	client, requests := counted(t)
	var with Creations
	other, _ := with.join(nil)
	ended := make(chan error)
	go func() { ended <- creator(client, &with).make(t.Context(), "t") }()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := with.create(stopped, creator(client, &with), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a stream that is stopped: %v", err)
	}
	other.err = errors.New("the other one was stopped")
	close(other.sent)
	if err := <-ended; err != nil || requests.Load() != 1 {
		t.Errorf("%d requests, %v", requests.Load(), err)
	}
}
