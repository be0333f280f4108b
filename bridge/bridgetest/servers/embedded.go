package servers

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Cluster is a Kafka in the test process.
type Cluster struct {
	*kfake.Cluster
	gate *gate
}

// EmbeddedKafka starts a kfake cluster, which the end of the test closes. It has one
// broker, unless the options say otherwise. Its data is on disk, as in the demo. It is as
// strict with fenced producers as Apache Kafka.
func EmbeddedKafka(t testing.TB, opts ...kfake.Opt) *Cluster {
	t.Helper()
	g := &gate{conns: make(map[net.Conn]struct{})}
	all := append([]kfake.Opt{kfake.NumBrokers(1), kfake.DataDir(t.TempDir()), kfake.ListenFn(g.listen)}, opts...)
	c, err := kfake.NewCluster(all...)
	if err != nil {
		t.Fatalf("start embedded Kafka: %v", err)
	}
	t.Cleanup(c.Close)
	EmulateKafkaFencing(c)
	return &Cluster{Cluster: c, gate: g}
}

// Break cuts all connections and refuses new ones until heal is called. It
// has no effect on a cluster with its own kfake.ListenFn.
func (c *Cluster) Break() (heal func()) { return c.gate.shut() }

// Stall makes a broker answer fetches without records until release is called, like a
// broker whose quota for the client is used up. Other requests are served.
func (c *Cluster) Stall(node int32) (release func()) {
	var released atomic.Bool
	c.ControlKey(kmsg.Fetch.Int16(), func(request kmsg.Request) (kmsg.Response, error, bool) {
		if released.Load() {
			c.DropControl()
			return nil, nil, false
		}
		c.KeepControl()
		if c.CurrentNode() != node {
			return nil, nil, false
		}
		r := request.(*kmsg.FetchRequest)
		answer := r.ResponseKind().(*kmsg.FetchResponse)
		answer.SessionID, answer.ThrottleMillis = r.SessionID, 100
		return answer, nil, true
	})
	return func() { released.Store(true) }
}

// Logins lets decide answer each login. It gets the first message of the client. Without
// Logins, the cluster does not support SASL.
func (c *Cluster) Logins(decide func(first []byte, answer *kmsg.SASLAuthenticateResponse)) {
	c.ControlKey(kmsg.SASLHandshake.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return r.ResponseKind(), nil, true
	})
	c.ControlKey(kmsg.SASLAuthenticate.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		answer := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		decide(r.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes, answer)
		return answer, nil, true
	})
}

// gate makes listeners that can reject all connections.
type gate struct {
	mu     sync.Mutex // guards all below
	closed bool
	conns  map[net.Conn]struct{}
}

func (g *gate) listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	return &gatedListener{Listener: l, gate: g}, nil
}

func (g *gate) shut() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for c := range g.conns {
		c.Close()
	}
	clear(g.conns)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.closed = false
	}
}

// admit remembers a connection, unless the gate is shut.
func (g *gate) admit(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.conns[c] = struct{}{}
	return true
}

func (g *gate) forget(c net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, c)
}

type gatedListener struct {
	net.Listener
	gate *gate
}

func (l *gatedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.gate.admit(c) {
			return &gatedConn{Conn: c, gate: l.gate}, nil
		}
		c.Close()
	}
}

type gatedConn struct {
	net.Conn
	gate *gate
}

func (c *gatedConn) Close() error {
	c.gate.forget(c.Conn)
	return c.Conn.Close()
}

// EmbeddedRedis starts a miniredis, which the end of the test closes. Its keys expire.
func EmbeddedRedis(t testing.TB) *miniredis.Miniredis {
	t.Helper()
	m := miniredis.RunT(t)
	m.ClockTTL(true)
	return m
}
