package bench

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/must"
)

// The transactions that are counted are those that Kafka has.
func TestTransactionsOfABridge(t *testing.T) {
	t.Parallel()
	const events, name = 9500, "counted"
	b := startBenchServers(t, events)
	end := b.runPart(t, cell{work: workBridge, mode: "exactly-once"}, name)
	if committed := b.markers(t, checkpoints(name)); end.Transactions != committed || committed == 0 {
		t.Errorf("%d transactions are counted, the topic of checkpoints has %d", end.Transactions, committed)
	}
}

// markers counts the ends of transactions in a topic of one partition.
func (b *benchServers) markers(t *testing.T, topic string) (n int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	end := must.Get(b.backend.offsets(ctx, topic))(t)
	reader := must.Get(b.backend.reader(topic, kgo.KeepControlRecords()))(t)
	defer reader.Close()
	for next := int64(0); next < end; {
		fetches := reader.PollFetches(ctx)
		must.Do(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if next = r.Offset + 1; r.Attrs.IsControl() {
				n++
			}
		})
	}
	return n
}

func TestFindBrokers(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere no process is found")
	}
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	at := server.Listener.Addr().(*net.TCPAddr)
	self := must.Get(os.Executable())(t)
	pid, program := listener(uint16(at.Port))
	if pid != os.Getpid() || program != filepath.Base(self) {
		t.Errorf("process %d, %s, listens at %s, want this one", pid, program, at)
	}
	server.Close()
	if pid, program := listener(uint16(at.Port)); pid == os.Getpid() {
		t.Errorf("process %d, %s, still listens at %s", pid, program, at)
	}
	// A test is not a broker, and neither is what listens elsewhere.
	open := httptest.NewServer(http.NotFoundHandler())
	defer open.Close()
	for _, addr := range []string{open.Listener.Addr().String(), "192.0.2.1:9092", "nonsense"} {
		if pids := findProcesses(t.Context(), []string{addr}, brokerPrograms); pids != nil {
			t.Errorf("brokers at %s: processes %d", addr, pids)
		}
	}
	for host, want := range map[string]bool{"127.0.0.1": true, "::1": true, "192.0.2.1": false} {
		if got := onThisMachine(t.Context(), host); got != want {
			t.Errorf("%s on this machine: %v", host, got)
		}
	}
}

func TestProcessCPU(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere it is not known")
	}
	before := ownCPU()
	got, err := processCPU(os.Getpid())
	// The clock of a process has more digits than its resource usage, and does not count its
	// children.
	if after := ownCPU(); err != nil || got <= 0 || got > after+0.1 {
		t.Errorf("%v s, %v; by its own account %v to %v s", got, err, before, after)
	}
	if _, err := processCPU(1 << 22); err == nil {
		t.Error("a process that does not exist has a clock")
	}
}
