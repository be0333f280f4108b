// Package kafkatest has what the tests of the Kafka packages share: the cluster to test on,
// the reports about it, and functions that wait.
package kafkatest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
)

// kafkaBrokers names the cluster to test on; if it is empty, the cluster is an embedded
// one.
const kafkaBrokers = "TEST_KAFKA_BROKERS"

// Patience bounds every wait of a test.
const Patience = time.Minute

// Context returns a context of the test that ends after Patience.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Run is a TestMain that returns the exit code. With TEST_REAL it starts one Apache Kafka
// for all tests. It checks for leaked goroutines after the given ends and that server have
// ended.
func Run(m *testing.M, ends ...func() error) int {
	if os.Getenv("TEST_REAL") == "1" && os.Getenv(kafkaBrokers) == "" {
		kafka, err := servers.LaunchKafka(context.Background(), servers.KafkaOptions{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		os.Setenv(kafkaBrokers, strings.Join(kafka.Addrs(), ","))
		ends = append(ends, kafka.Close)
	}
	return servers.Leakless{M: m, AtOnce: 8, Ends: ends}.Run()
}

// Brokers returns the cluster to test on.
func Brokers(t *testing.T) []string {
	t.Helper()
	if named := os.Getenv(kafkaBrokers); named != "" {
		return strings.Split(named, ",")
	}
	return Fake(t).ListenAddrs()
}

// Embedded reports whether Brokers returns an embedded cluster.
func Embedded() bool { return os.Getenv(kafkaBrokers) == "" }

// embeddedOnly skips a test on real servers that would repeat what it does without them.
func embeddedOnly(t *testing.T) {
	t.Helper()
	if !Embedded() {
		t.Skip("make test runs this, on embedded Kafka")
	}
}

// Fake returns an embedded cluster, for faults that a real one cannot be told to make. On
// real servers the test is skipped.
func Fake(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	embeddedOnly(t)
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatalf("start embedded Kafka: %v", err)
	}
	t.Cleanup(c.Close)
	servers.EmulateKafkaFencing(c)
	return c
}

// Server is an embedded cluster that can stop and start again with its data.
type Server struct {
	// Addr stays reserved while the cluster is stopped.
	Addr []string

	t    *testing.T
	opts []kfake.Opt
	kfk  *kfake.Cluster
}

// NewServer returns a running cluster. On real servers the test is skipped.
func NewServer(t *testing.T, opts ...kfake.Opt) *Server {
	t.Helper()
	embeddedOnly(t)
	addr := servers.FreeAddress(t)
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n := must.Get(strconv.Atoi(port))(t)
	own := []kfake.Opt{kfake.NumBrokers(1), kfake.DataDir(t.TempDir()), kfake.Ports(n)}
	s := &Server{t: t, Addr: []string{addr}, opts: append(own, opts...)}
	s.Start()
	t.Cleanup(func() { s.kfk.Close() })
	return s
}

// Start starts the cluster again.
func (s *Server) Start() {
	s.t.Helper()
	kfk, err := kfake.NewCluster(s.opts...)
	if err != nil {
		s.t.Fatalf("start embedded Kafka: %v", err)
	}
	s.kfk = kfk
	servers.EmulateKafkaFencing(kfk)
}

// Cluster returns the running cluster.
func (s *Server) Cluster() *kfake.Cluster { return s.kfk }

// Stop stops the cluster.
func (s *Server) Stop() { s.kfk.Close() }

// CreateTopic creates a topic and waits until its leaders answer. A broker of Apache Kafka
// lists a topic before it serves it.
func CreateTopic(t *testing.T, brokers []string, topic string, partitions int32, configs map[string]*string) {
	t.Helper()
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(brokers...)))(t)
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(t.Context(), partitions, -1, configs, topic); err != nil {
		t.Fatalf("create topic %s: %v", topic, err)
	}
	Eventually(t, "know topic "+topic, func() (bool, error) {
		ends, err := admin.ListEndOffsets(t.Context(), topic)
		return err == nil && ends.Error() == nil && len(ends[topic]) == int(partitions), err
	})
}

// CreateCheckpointTopic creates a checkpoint topic with the required settings, and with
// changes to them.
func CreateCheckpointTopic(t *testing.T, brokers []string, topic string, changes map[string]*string) {
	t.Helper()
	configs := map[string]*string{"cleanup.policy": new("compact"), "min.compaction.lag.ms": new("604800000")}
	maps.Copy(configs, changes)
	CreateTopic(t, brokers, topic, 16, configs)
}

// SetConfig changes a setting of a topic and waits until the broker shows it: Apache Kafka
// answers as soon as the change is stored.
func SetConfig(t *testing.T, admin *kadm.Client, topic, name, value string) {
	t.Helper()
	changes := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}
	altered := must.Get(admin.AlterTopicConfigs(t.Context(), changes, topic))(t)
	must.Get(altered.On(topic, func(r *kadm.AlterConfigsResponse) error { return r.Err }))(t)
	Eventually(t, "show the new "+name+" of topic "+topic, func() (bool, error) {
		described, err := admin.DescribeTopicConfigs(t.Context(), topic)
		if err != nil {
			return false, err
		}
		shown, err := described.On(topic, nil)
		return slices.ContainsFunc(shown.Configs, func(c kadm.Config) bool {
			return c.Key == name && c.MaybeValue() == value
		}), err
	})
}

// Eventually waits until done returns true. what completes the words "it does not".
func Eventually(t *testing.T, what string, done func() (bool, error)) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); <-tick.C {
		ok := must.Get(done())(t)
		if ok {
			return
		}
	}
	t.Fatalf("within %s it does not %s", Patience, what)
}

// WithoutConfigs answers a request for settings with an error instead of those of each topic.
func WithoutConfigs(req kmsg.Request, err *kerr.Error) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	for _, r := range req.(*kmsg.DescribeConfigsRequest).Resources {
		answer := kmsg.NewDescribeConfigsResponseResource()
		answer.ResourceType, answer.ResourceName, answer.ErrorCode = r.ResourceType, r.ResourceName, err.Code
		resp.Resources = append(resp.Resources, answer)
	}
	return resp
}

// Receive waits for a value.
func Receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	var v T
	select {
	case v = <-from:
	case <-timer.C:
		t.Fatalf("waited %s in vain for %s", Patience, what)
	}
	return v
}
