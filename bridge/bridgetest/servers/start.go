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

// launchTimeout bounds a launch with the first download of Kafka.
const launchTimeout = 10 * time.Minute

// NeedReal skips a test that needs real servers where the tests run without them.
func NeedReal(t testing.TB) {
	t.Helper()
	if !Real(t) {
		t.Skip("run with make test-real")
	}
}

// Real reports whether the tests run on real servers (make test-real sets TEST_REAL=1).
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

// Parallel lets n tests of a package run at a time, for packages whose tests mostly wait.
// By default go test runs one per processor. Call it in TestMain, before Run. The flag
// -parallel takes precedence. With TEST_REAL=1 half of n run at a time, because Apache
// Kafka needs the processors too.
func Parallel(n int) {
	flag.Parse()
	if os.Getenv("TEST_REAL") == "1" {
		n /= 2
	}
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(n)) // a number is always valid
	}
}

// StartKafka starts Apache Kafka, which the end of the test stops, or uses that of
// TEST_KAFKA_BROKERS. If it can do neither, the test fails with the programs to install.
func StartKafka(t testing.TB, o KafkaOptions) *Kafka {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), launchTimeout)
	defer cancel()
	k := must.Get(LaunchKafka(ctx, o))(t)
	t.Cleanup(func() { finish(t, k.Logs, k.Close) })
	return k
}

// MaxVersion returns the newest version of a request that the brokers support.
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

// StartRedis starts redis-server, which the end of the test stops, or uses that of
// TEST_REDIS_URL. If it can do neither, the test fails with the programs to install.
func StartRedis(t testing.TB, o RedisOptions) *Redis {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), launchTimeout)
	defer cancel()
	r := must.Get(LaunchRedis(ctx, o))(t)
	t.Cleanup(func() { finish(t, r.Logs, r.Close) })
	return r
}

// finish ends the server of a test. If the test failed, finish shows the end of the logs.
func finish(t testing.TB, logs func(lines int) string, end func() error) {
	if t.Failed() {
		t.Logf("the server's log ends with\n%s", logs(30))
	}
	if err := end(); err != nil {
		t.Errorf("end the server: %v", err)
	}
}
