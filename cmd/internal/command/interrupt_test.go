package command

import (
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/cmd/internal/cli"
)

// Ctrl-C ends each command that waits for an unreachable Kafka as interrupted, not as failed with
// the broker's last error. A command waits three seconds for a silent broker, so some of them do.
func TestInterruptedWithoutKafka(t *testing.T) {
	t.Parallel()
	sim := must.Get(exportsim.New(exportsim.Config{Events: 5, Seed: 1, APIKey: secretKey}))(t)
	t.Cleanup(sim.Close)
	api := httptest.NewServer(sim)
	t.Cleanup(api.Close)
	silent := []string{"run", "check", "tail -n 1", "topics plan", "cursor history", "dlq list", "backfill list"}
	const bounds, key = " --from -2h --to -1h", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	for _, args := range []string{
		"run", "run --once", "tail", "tail -n 1", "tail --dlq -n 1", "check", "check --only kafka --json",
		"topics plan", "topics create", "topics create --execute", "status", "status --json", "status --group",
		"cursor show", "cursor list", "cursor history", "cursor export", "cursor rewind --shift-by -1",
		"cursor rewind --shift-by -1 --execute", "cursor reset --to-earliest", "cursor reset --to-earliest --execute",
		"pause", "pause --all --execute", "resume", "replay" + bounds, "replay --execute" + bounds, "backfill" + bounds,
		"backfill --execute" + bounds, "backfill --execute --here" + bounds, "backfill list", "backfill watch aaaaaa",
		"backfill pause aaaaaa --execute", "backfill resume aaaaaa --execute", "backfill cancel aaaaaa",
		"verify" + bounds, "verify --repair --execute" + bounds, "attest", "attest --verify", "dlq list", "dlq show 0:1",
		"dlq retry --all", "dlq retry --all --execute", "forget 4711", "forget 4711 --execute", "keys rewrap",
		"keys rewrap --execute", "schema infer", "schema check",
	} {
		want := cli.ExitInterrupted
		if args == "run" || args == "run --once" || args == "tail" { // these stop in order
			want = cli.ExitOK
		}
		for _, hangUp := range []bool{true, false} {
			if !hangUp && !slices.Contains(silent, args) {
				continue
			}
			t.Run(fmt.Sprintf("%s, hang up %t", args, hangUp), func(t *testing.T) {
				t.Parallel()
				ctx, interrupt := context.WithCancel(t.Context())
				defer interrupt()
				env := map[string]string{
					"EXPORT_URL": api.URL, "EXPORT_API_KEY": secretKey, "HTTP_ADDR": "off",
					"KAFKA_BROKERS": listen(t, hangUp, interrupt), "REDIS_URL": "redis://" + servers.EmbeddedRedis(t).Addr(),
					"EVENT_ENCRYPT": "/payload/email", "EVENT_ENCRYPT_KEY": "m1 " + key, "EVENT_HASH_KEY": "k1 " + key,
				}
				got := runOn(ctx, cli.Stdio{}, env, strings.Fields(args)...)
				if ctx.Err() == nil {
					t.Fatalf("it ended before: %+v", got)
				}
				if got.code != want {
					t.Errorf("%+v, want exit code %d", got, want)
				}
			})
		}
	}
}

// listen is a server that interrupts at the first connection, and is silent or hangs up.
func listen(t *testing.T, hangUp bool, interrupt func()) string {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var all []net.Conn
	var done sync.WaitGroup
	done.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if interrupt(); hangUp {
				_ = conn.Close()
			}
			all = append(all, conn)
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		done.Wait()
		for _, conn := range all {
			_ = conn.Close()
		}
	})
	return listener.Addr().String()
}
