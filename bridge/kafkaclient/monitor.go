package kafkaclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// slowAnswer is the response time after which a broker counts as unresponsive.
const slowAnswer = 3 * time.Second

// keptError is the time after which an error counts no more. A broker that is needed is tried
// again within seconds; one that was removed from the cluster is not.
const keptError = time.Minute

// connMonitor tracks a client's connections to explain stalls by the broker
// that causes them. It is a hook of the client, called by the client's
// goroutines.
type connMonitor struct {
	mu      sync.Mutex // guards brokers
	brokers map[addr]*brokerHealth
}

// addr is a broker's address, built without allocation.
type addr struct {
	host string
	port int32
}

func (a addr) String() string { return net.JoinHostPort(a.host, strconv.Itoa(int(a.port))) }

// brokerHealth is the state of one broker's address.
type brokerHealth struct {
	err   error // of the last attempt; nil if it went well
	at    time.Time
	asked time.Time // when the oldest unanswered request was written; zero if there is none
}

func newConnMonitor() *connMonitor { return &connMonitor{brokers: make(map[addr]*brokerHealth)} }

// OnBrokerConnect records the result of a connection attempt, TLS and SASL
// included.
func (c *connMonitor) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, conn net.Conn, err error) {
	if _, first := errors.AsType[*kgo.ErrFirstReadEOF](err); conn != nil && errors.Is(err, io.EOF) && !first {
		err = &hangUpError{err}
	}
	c.note(meta, err)
}

// hangUpError is a connection that was closed during authentication: some
// brokers reject a login this way.
type hangUpError struct{ err error }

func (e *hangUpError) Error() string {
	return "the broker closed the connection during login: " + e.err.Error()
}
func (e *hangUpError) Unwrap() error { return e.err }

// refusedLogins is a hook that is called when a broker refuses a login.
type refusedLogins func()

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (refused refusedLogins) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if _, known := errors.AsType[*refusedToken](err); !known && errors.Is(err, kerr.SaslAuthenticationFailed) {
		refused()
	}
}

// OnBrokerDisconnect records that pending requests will not be answered.
func (c *connMonitor) OnBrokerDisconnect(meta kgo.BrokerMetadata, _ net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broker(meta).asked = time.Time{}
}

// OnBrokerWrite notes a request that is to be answered.
//
//nolint:revive // the hook has six parameters
func (c *connMonitor) OnBrokerWrite(meta kgo.BrokerMetadata, _ int16, _ int, _, _ time.Duration, err error) {
	if err != nil {
		return // OnBrokerE2E gets the error too
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.broker(meta); b.asked.IsZero() {
		b.asked = time.Now()
	}
}

// OnBrokerE2E records a response, or a failed request.
func (c *connMonitor) OnBrokerE2E(meta kgo.BrokerMetadata, _ int16, e2e kgo.BrokerE2E) {
	c.note(meta, e2e.Err())
}

func (c *connMonitor) note(meta kgo.BrokerMetadata, err error) {
	if errors.Is(err, kgo.ErrClientClosed) || errors.Is(err, context.Canceled) {
		return // we gave up, not the broker
	}
	if err != nil {
		err = BrokerError(meta, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.broker(meta)
	b.err, b.at, b.asked = err, time.Now(), time.Time{}
}

func (c *connMonitor) broker(meta kgo.BrokerMetadata) *brokerHealth {
	at := address(meta)
	b := c.brokers[at]
	if b == nil {
		b = &brokerHealth{}
		c.brokers[at] = b
	}
	return b
}

// cause returns the latest error of a broker that has not recovered, or names
// an unresponsive one; nil if there is none.
func (c *connMonitor) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var newest *brokerHealth
	for at, b := range c.brokers {
		if b.err != nil && time.Since(b.at) < keptError && (newest == nil || b.at.After(newest.at)) {
			newest = b
		}
		if waited := time.Since(b.asked); newest == nil && !b.asked.IsZero() && waited > slowAnswer {
			newest = &brokerHealth{err: fmt.Errorf("broker %s: no answer for %s", at, waited.Round(time.Second))}
		}
	}
	if newest == nil {
		return nil
	}
	return newest.err
}

func address(meta kgo.BrokerMetadata) addr { return addr{meta.Host, meta.Port} }

// advertisedError is a failure to reach a broker at its advertised address.
type advertisedError struct {
	node int32
	addr string
	err  error
}

func (e *advertisedError) Error() string {
	return fmt.Sprintf("broker %d at its advertised address %s: %v", e.node, e.addr, e.err)
}

func (e *advertisedError) Unwrap() error { return e.err }

// BrokerError adds the broker to an error. Bootstrap brokers have negative ids.
func BrokerError(meta kgo.BrokerMetadata, err error) error {
	if meta.NodeID >= 0 {
		return &advertisedError{node: meta.NodeID, addr: address(meta).String(), err: err}
	}
	return fmt.Errorf("broker %s: %w", address(meta), err)
}
