package command

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/cmd/internal/cli"
)

// result is the exit code and the output of a run of the program.
type result struct {
	code           int
	stdout, stderr string
}

// runProgram runs the program in this process with exactly these variables.
func runProgram(t *testing.T, env map[string]string, args ...string) result {
	t.Helper()
	return runOn(t.Context(), cli.Stdio{}, env, args...)
}

// succeed runs the program, and ends the test if it fails.
func succeed(t *testing.T, env map[string]string, args ...string) {
	t.Helper()
	if got := runProgram(t, env, args...); got.code != cli.ExitOK {
		t.Fatalf("%v: %+v", args, got)
	}
}

// runOn runs the program. The result has the outputs that std does not replace.
func runOn(ctx context.Context, std cli.Stdio, env map[string]string, args ...string) result {
	var environ []string
	for name, value := range env {
		environ = append(environ, name+"="+value)
	}
	var stdout, stderr bytes.Buffer
	if std.Stdin == nil {
		std.Stdin = strings.NewReader("")
	}
	if std.Stdout == nil {
		std.Stdout = &stdout
	}
	if std.Stderr == nil {
		std.Stderr = &stderr
	}
	code := Program.Run(ctx, args, environ, std)
	return result{code, stdout.String(), stderr.String()}
}

// Values that no output may contain.
const (
	secretKey      = "sesame-key"
	secretPassword = "sesame-password"
)

func wantNoSecrets(t *testing.T, r result) {
	t.Helper()
	for _, secret := range []string{secretKey, secretPassword, "wrong-key"} {
		if strings.Contains(r.stdout+r.stderr, secret) {
			t.Errorf("the output holds the secret %q:\n%s%s", secret, r.stdout, r.stderr)
		}
	}
}

// everyCommand returns a command with all others below it.
func everyCommand(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		all = append(all, everyCommand(sub)...)
	}
	return all
}

// world is a simulated export API, a Kafka with the default topics, and a
// Redis, with the variables that name them.
type world struct {
	env   map[string]string
	redis *miniredis.Miniredis
}

func newWorld(t *testing.T) *world {
	t.Helper()
	sim := must.Get(exportsim.New(exportsim.Config{Events: 5, Seed: 1, APIKey: secretKey}))(t)
	t.Cleanup(sim.Close)
	api := httptest.NewServer(sim)
	t.Cleanup(api.Close)
	kafka := servers.EmbeddedKafka(t)
	for _, topic := range []string{"export.events", "dlq.export.events"} {
		must.Do(t, kafka.CreateTopic(topic, 2, map[string]string{"retention.ms": "-1"}))
	}
	createCheckpoints(t, kafka)
	redis := servers.EmbeddedRedis(t)
	redis.RequireAuth(secretPassword)
	return &world{redis: redis, env: map[string]string{
		"EXPORT_URL": api.URL, "EXPORT_API_KEY": secretKey,
		"KAFKA_BROKERS": strings.Join(kafka.ListenAddrs(), ","),
		"REDIS_URL":     "redis://:" + secretPassword + "@" + redis.Addr() + "/0",
	}}
}

// runOnce drains the export.
func (w *world) runOnce(t *testing.T) {
	t.Helper()
	w.env["HTTP_ADDR"] = "off"
	succeed(t, w.env, "run", "--once")
}

// serveItems is an export that lists the items and the JSON of the next cursor.
func serveItems(t *testing.T, list func(*http.Request) (items []string, next string)) (url string) {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		items, next := list(r)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"items":[%s],"nextCursor":%s}`, strings.Join(items, ","), next)
	}))
	t.Cleanup(api.Close)
	return api.URL
}

// event is the nth event of an export, one a second from firstEvent on.
func event(id string, n int) string {
	at := firstEvent.UnixMilli() + int64(n)*1000
	return fmt.Sprintf(`{"eventId":%q,"userId":"u","timestamp":%d,"payload":{"@type":"x"}}`, id, at)
}

// aroundEvents are the bounds of a range with all events.
func aroundEvents() []string {
	at := func(d time.Duration) string { return firstEvent.Add(d).UTC().Format(time.RFC3339) }
	return []string{"--from", at(-time.Hour), "--to", at(time.Hour)}
}

// createCheckpoints creates the checkpoint topic as topics create does.
func createCheckpoints(t *testing.T, kafka *servers.Cluster) {
	t.Helper()
	configs := map[string]string{"cleanup.policy": "compact", "min.compaction.lag.ms": "604800000"}
	must.Do(t, kafka.CreateTopic("exportbridge.checkpoints", 16, configs))
}

// restrictedKafka is a Kafka where the user writer may only look at the topics.
func restrictedKafka(t *testing.T, env map[string]string) {
	t.Helper()
	var acls []kfake.ACL
	for _, prefix := range []string{"export.", "dlq.", "exportbridge."} {
		acls = append(acls, kfake.ACL{
			Resource: kmsg.ACLResourceTypeTopic, Name: prefix, Pattern: kmsg.ACLResourcePatternTypePrefixed,
			Operation: kmsg.ACLOperationDescribe, Allow: true,
		})
	}
	produce(t, secureKafka(t, env, acls...), eventRecord(0, 1, "k", "v"))
}

// secureKafka is a Kafka where the user writer has these rights. It returns an administrator's
// client.
func secureKafka(t *testing.T, env map[string]string, acls ...kfake.ACL) (admin *kgo.Client) {
	t.Helper()
	cluster := servers.EmbeddedKafka(t, kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.SeedTopics(2, "export.events", "dlq.export.events"),
		kfake.User("SCRAM-SHA-256", "writer", secretPassword, acls...), kfake.Superuser("SCRAM-SHA-256", "admin", "admin"))
	createCheckpoints(t, cluster)
	env["KAFKA_BROKERS"] = strings.Join(cluster.ListenAddrs(), ",")
	env["KAFKA_SASL_MECHANISM"] = "SCRAM-SHA-256"
	env["KAFKA_SASL_USERNAME"] = "writer"
	env["KAFKA_SASL_PASSWORD"] = secretPassword
	return servers.Client(t, cluster.ListenAddrs()[0],
		kgo.SASL(scram.Auth{User: "admin", Pass: "admin"}.AsSha256Mechanism()))
}

// wantLines checks that lines match the expressions, in this order.
func wantLines(t *testing.T, text string, want []string) {
	t.Helper()
	rest := strings.Split(text, "\n")
	for _, expression := range want {
		re := regexp.MustCompile(expression)
		for {
			if len(rest) == 0 {
				t.Errorf("no line matches %s after the ones before:\n%s", expression, text)
				return
			}
			line := rest[0]
			rest = rest[1:]
			if re.MatchString(line) {
				break
			}
		}
	}
}

var update = flag.Bool("update", false, "write the golden files anew")

// volatile are the parts of an output that differ from run to run.
var volatile = []struct {
	in  *regexp.Regexp
	out string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`\d+\.\d ms`), "N ms"},
	{regexp.MustCompile(`, clock skew \S+ s`), ""},
	{regexp.MustCompile(`source [0-9a-f]{8}`), "source DIGEST"},
	{regexp.MustCompile(`within \ds`), "within Ns"},
}

// wantGolden compares a result with a golden file.
func wantGolden(t *testing.T, name string, got result) {
	t.Helper()
	text := fmt.Sprintf("%s%sexit code %d\n", stripColour(got.stdout), got.stderr, got.code)
	for _, v := range volatile {
		text = v.in.ReplaceAllString(text, v.out)
	}
	file := filepath.Join("testdata", regexp.MustCompile(`\W+`).ReplaceAllString(name, "-")+".txt")
	if *update {
		must.Do(t, os.WriteFile(file, []byte(text), 0o644))
	}
	want, err := os.ReadFile(file)
	if diff := cmp.Diff(string(want), text); err != nil || diff != "" {
		t.Errorf("%s (-want +got): %v\n%s", file, err, diff)
	}
	wantNoSecrets(t, got)
}
