package faultproxy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"exportbridge/bridge/bridgetest/faultproxy"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
)

// echo is a server that answers each line with the same line, and remembers.
type echo struct {
	addr  string
	lines chan string
}

func startEcho(t *testing.T) *echo {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	e := &echo{addr: l.Addr().String(), lines: make(chan string, 100)}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer c.Close()
				for in := bufio.NewScanner(c); in.Scan(); {
					e.lines <- in.Text()
					fmt.Fprintln(c, in.Text())
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		work.Wait()
	})
	return e
}

// patience bounds whatever a test waits for.
const patience = 30 * time.Second

// connect returns a connection whose reads end some time.
func connect(t *testing.T, addr string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c := must.Get(net.Dial("tcp", addr))(t)
	t.Cleanup(func() { c.Close() })
	must.Do(t, c.SetDeadline(time.Now().Add(patience)))
	return c, bufio.NewReader(c)
}

func wantLine(t *testing.T, in *bufio.Reader, want string) {
	t.Helper()
	if got, err := in.ReadString('\n'); err != nil || got != want+"\n" {
		t.Errorf("read %q, %v, want %q", got, err, want)
	}
}

func TestTCPProxyPasses(t *testing.T) {
	t.Parallel()
	e := startEcho(t)
	p := faultproxy.StartTCPProxy(t, e.addr)
	c, in := connect(t, p.Addr())
	p.Delay(time.Millisecond)
	for i := range 100 {
		fmt.Fprintln(c, "line", i)
	}
	for i := range 100 {
		wantLine(t, in, fmt.Sprint("line ", i))
	}
}

// TestTCPProxyDelays uses a delay that never ends: what is on its way when the
// connection is cut never arrives.
func TestTCPProxyDelays(t *testing.T) {
	t.Parallel()
	e := startEcho(t)
	p := faultproxy.StartTCPProxy(t, e.addr)
	c, in := connect(t, p.Addr())
	fmt.Fprintln(c, "first")
	wantLine(t, in, "first")
	<-e.lines
	p.Delay(time.Hour)
	fmt.Fprintln(c, "hello")
	if got := <-e.lines; got != "hello" {
		t.Errorf("the server has got %q", got)
	}
	// Without the delay the answer would come long before this ends.
	must.Do(t, c.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	if got, err := in.ReadString('\n'); !isTimeout(err) {
		t.Errorf("the client has got %q, %v", got, err)
	}
	p.CutAll()
	p.Delay(0)
	c, in = connect(t, p.Addr())
	fmt.Fprintln(c, "last")
	wantLine(t, in, "last")
}

func TestTCPProxyCutsRequests(t *testing.T) {
	t.Parallel()
	for _, persisted := range []bool{false, true} {
		t.Run(fmt.Sprint(persisted), func(t *testing.T) {
			t.Parallel()
			e := startEcho(t)
			p := faultproxy.StartTCPProxy(t, e.addr)
			idle, idleIn := connect(t, p.Addr())
			p.CutRequests("hello", 2, persisted)
			for range 2 {
				c, _ := connect(t, p.Addr())
				fmt.Fprintln(c, "hello")
				if got, err := io.ReadAll(c); len(got) > 0 || err != nil {
					t.Errorf("read %q, %v, want the end", got, err)
				}
				if persisted {
					<-e.lines
				}
			}
			fmt.Fprintln(idle, "another text")
			wantLine(t, idleIn, "another text")
			fmt.Fprintln(idle, "hello again")
			wantLine(t, idleIn, "hello again")
			if first, second := <-e.lines, <-e.lines; first != "another text" || second != "hello again" {
				t.Errorf("the server has got %q and %q", first, second)
			}
		})
	}
}

func TestTCPProxyBlackhole(t *testing.T) {
	t.Parallel()
	e := startEcho(t)
	p := faultproxy.StartTCPProxy(t, e.addr)
	c, in := connect(t, p.Addr())
	p.Blackhole(true)
	p.Blackhole(true)
	fmt.Fprintln(c, "held")
	gone, _ := connect(t, p.Addr())
	fmt.Fprintln(gone, "of a client that is gone")
	gone.Close()
	select {
	case line := <-e.lines:
		t.Errorf("%q passed the blackhole", line)
	case <-time.After(50 * time.Millisecond):
	}
	p.Blackhole(false)
	p.Blackhole(false)
	wantLine(t, in, "held")
	if both := <-e.lines + <-e.lines; !strings.Contains(both, "gone") {
		t.Errorf("the server has got %q", both)
	}
}

func TestTCPProxyRefuses(t *testing.T) {
	t.Parallel()
	e := startEcho(t)
	p := faultproxy.StartTCPProxy(t, e.addr)
	_, in := connect(t, p.Addr())
	p.Refuse(true)
	if _, err := in.ReadByte(); err == nil || isTimeout(err) {
		t.Errorf("read of a connection that is cut: %v", err)
	}
	_, in = connect(t, p.Addr())
	if _, err := in.ReadByte(); err == nil || isTimeout(err) {
		t.Errorf("read of a connection that is refused: %v", err)
	}
	p.Refuse(false)
	c, in := connect(t, p.Addr())
	fmt.Fprintln(c, "hello")
	wantLine(t, in, "hello")
}

// TestTCPProxyWithoutServer looks to clients like a server that hangs up.
func TestTCPProxyWithoutServer(t *testing.T) {
	t.Parallel()
	p := faultproxy.StartTCPProxy(t, servers.FreeAddress(t))
	_, in := connect(t, p.Addr())
	if _, err := in.ReadByte(); err == nil || isTimeout(err) {
		t.Errorf("read without a server: %v", err)
	}
}

// TestTCPProxyRedis loses the reply to a command that was executed.
func TestTCPProxyRedis(t *testing.T) {
	t.Parallel()
	m := servers.EmbeddedRedis(t)
	p := faultproxy.StartTCPProxy(t, m.Addr())
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1})
	t.Cleanup(func() { c.Close() })
	must.Do(t, c.Ping(t.Context()).Err())
	p.CutRequests("incr", 1, true)
	if err := c.Incr(t.Context(), "key").Err(); err == nil {
		t.Error("the client knows the outcome")
	}
	if n, err := c.Get(t.Context(), "key").Int(); err != nil || n != 1 {
		t.Errorf("the key is %d, %v, want 1", n, err)
	}
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}
