package servers

import (
	"context"
	"flag"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge/bridgetest/must"
)

// launchTimeout bounds a launch, the first download of Kafka included.
const launchTimeout = 10 * time.Minute

// Real reports whether this run is one on real servers (make test-real sets
// TEST_REAL=1). A test that needs them says why it does not run:
//
//	if !servers.Real(t) {
//		t.Skip("run with make test-real")
//	}
func Real(t testing.TB) bool {
	t.Helper()
	switch v := os.Getenv("TEST_REAL"); v {
	case "", "0":
		return false
	case "1":
		return true
	default:
		t.Fatalf("TEST_REAL is %q, want 1, 0 or nothing", v)
		return false
	}
}

// Parallel lets n tests of a package run at a time, for packages whose tests
// wait more than they work: by default go test runs one per processor. It is for
// TestMain, before Run. The flag -parallel wins. With TEST_REAL=1 half of n run at a
// time, because Apache Kafka needs the processors too.
func Parallel(n int) {
	flag.Parse()
	if os.Getenv("TEST_REAL") == "1" {
		n /= 2
	}
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(n)) // a number is never refused
	}
}

// StartKafka starts Apache Kafka, or takes the one that TEST_KAFKA_BROKERS
// names, for the length of the test. Where it can do neither the test fails
// and says what to install.
func StartKafka(t testing.TB, o KafkaOptions) *Kafka {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	ctx, cancel := context.WithTimeout(t.Context(), launchTimeout)
	defer cancel()
	k := must.Get(LaunchKafka(ctx, o))(t)
	t.Cleanup(func() { finish(t, k.Logs, k.Close) })
	return k
}

// MaxVersion returns the newest version of a request that the brokers take.
func MaxVersion(t testing.TB, brokers []string, of kmsg.Key) int16 {
	t.Helper()
	client := must.Get(kgo.NewClient(kgo.SeedBrokers(brokers...)))(t)
	defer client.Close()
	versions := must.Get(kmsg.NewPtrApiVersionsRequest().RequestWith(t.Context(), client))(t)
	for _, k := range versions.ApiKeys {
		if k.ApiKey == of.Int16() {
			return k.MaxVersion
		}
	}
	t.Fatalf("the brokers take no %s request", of.Name())
	return 0
}

// StartRedis starts redis-server, or takes the one that TEST_REDIS_URL names,
// for the length of the test. Where it can do neither the test fails and says
// what to install.
func StartRedis(t testing.TB, o RedisOptions) *Redis {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	ctx, cancel := context.WithTimeout(t.Context(), launchTimeout)
	defer cancel()
	r := must.Get(LaunchRedis(ctx, o))(t)
	t.Cleanup(func() { finish(t, r.Logs, r.Close) })
	return r
}

// finish shows the end of the logs of a test that failed and ends its server.
func finish(t testing.TB, logs func(lines int) string, end func() error) {
	if t.Failed() {
		t.Logf("the server's log ends with\n%s", logs(30))
	}
	if err := end(); err != nil {
		t.Errorf("end the server: %v", err)
	}
}
