package faultproxy

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// KafkaFault is what a [KafkaProxy] does to a request.
type KafkaFault int

const (
	// CutBeforeRequest cuts the connection; the broker never sees the request.
	CutBeforeRequest KafkaFault = iota
	// DropReply lets the broker execute the request and cuts the connection
	// instead of delivering the reply.
	DropReply
	// DelayRequest delivers the request later, even if the client has given up by then.
	// Later requests on the connection wait too.
	DelayRequest
	// DelayReply delivers the reply later. Later replies on the connection wait too.
	DelayReply
	// LateRequest cuts the client's connection at once. It delivers the request later, over
	// the connection to the broker, which stays open.
	LateRequest
)

func (f KafkaFault) String() string {
	names := [...]string{"cut before", "drop the reply to", "delay", "delay the reply to", "deliver late"}
	if f < 0 || int(f) >= len(names) {
		return fmt.Sprint("unknown fault ", int(f))
	}
	return names[f]
}

// KafkaRule selects requests and the fault that hits them.
type KafkaRule struct {
	Fault KafkaFault
	// Delay is for DelayRequest, DelayReply and LateRequest. The delay of a hit is between
	// Delay and Delay+Spread: the delays are evenly distributed, and the same in each run.
	// If Until is not nil, a hit also waits until it is closed.
	Delay, Spread time.Duration
	Until         <-chan struct{}
	// Keys are the kinds of request; none means all.
	Keys []kmsg.Key
	// Client is a kgo.ClientID; empty means all.
	Client string
	// When, if not nil, narrows the rule further. It gets each request that matches Keys
	// and Client, one at a time. It must neither block nor keep the request.
	When func(kmsg.Request) bool
	// Times is the number of requests to hit: 0 is the same as 1, and a negative number
	// means all until RuleStats.Remove.
	Times int
	// Chance is the probability with which each of these requests is hit; 0 means always.
	// The same Seed gives the same choices for the same requests.
	Chance float64
	Seed   uint64
}

// KafkaProxy is a proxy between clients and brokers. It knows Kafka's framing and breaks
// single requests. The cluster behind it advertises the proxy's addresses, so that all
// connections of a client lead through the proxy:
//
//	p := faultproxy.StartKafkaProxy(t)
//	k := servers.EmbeddedKafka(t, kfake.ListenFn(p.Listen))
//	k := servers.StartKafka(t, servers.KafkaOptions{Proxy: p})
//
// The plain listeners of Apache Kafka stay reachable without the proxy. With kfake, a
// client avoids the proxy with Direct. For a cluster that advertises itself, use Before.
// The proxy cannot read TLS. Its methods may be called concurrently.
type KafkaProxy struct {
	*relay

	renaming sync.Mutex              // locked before mu
	fronts   map[string]*net.TCPAddr // addresses of the proxy, by the advertised one; guarded by renaming

	mu     sync.Mutex        // guards all below
	direct map[string]string // addresses of the brokers, by that of the proxy
	addrs  []string
	rules  []*kafkaRule
}

type kafkaRule struct {
	KafkaRule
	hits    *RuleStats
	hit     int
	chances *rand.Rand
}

// StartKafkaProxy starts a proxy without brokers, which the end of the test closes. Start
// it before its brokers: a proxy that starts later ends before them.
func StartKafkaProxy(t testing.TB) *KafkaProxy {
	t.Helper()
	p := NewKafkaProxy()
	t.Cleanup(func() { finishProxy(t, p.Close) })
	return p
}

// NewKafkaProxy is StartKafkaProxy outside a test. The caller must Close the proxy.
func NewKafkaProxy() *KafkaProxy {
	return &KafkaProxy{relay: newRelay(), fronts: make(map[string]*net.TCPAddr), direct: make(map[string]string)}
}

// Addrs returns the addresses of all brokers for clients.
func (p *KafkaProxy) Addrs() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.addrs)
}

// Direct dials a broker without the proxy, for kgo.Dialer.
func (p *KafkaProxy) Direct(ctx context.Context, network, addr string) (net.Conn, error) {
	p.mu.Lock()
	broker, ok := p.direct[addr]
	p.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("dial %s directly: no such broker is behind the proxy", addr)
	}
	return (&net.Dialer{}).DialContext(ctx, network, broker)
}

// Listen is for kfake.ListenFn. The proxy listens at the address, and the broker at another
// one that only the proxy knows.
func (p *KafkaProxy) Listen(network, at string) (net.Listener, error) {
	l, err := net.Listen(network, anyPort)
	if err != nil {
		return nil, fmt.Errorf("listen behind a proxy: %w", err)
	}
	front, err := p.Front(at, l.Addr().String())
	if err != nil {
		l.Close()
		return nil, err
	}
	return &hiddenListener{Listener: l, front: front}, nil
}

// hiddenListener reports the address of the proxy as its own.
type hiddenListener struct {
	net.Listener
	front net.Addr
}

func (l *hiddenListener) Addr() net.Addr { return l.front }

// Front listens at one address for the broker at another address.
func (p *KafkaProxy) Front(at, broker string) (net.Addr, error) {
	front, err := p.forward(at, broker, p.carry)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addrs = append(p.addrs, front.String())
	p.direct[front.String()] = broker
	return front, nil
}

// Add adds a rule, which applies from now on. If several rules match a request, the one
// added first hits it, and the others do not count it.
func (p *KafkaProxy) Add(rule KafkaRule) *RuleStats {
	r := &kafkaRule{KafkaRule: rule, chances: rand.New(rand.NewPCG(rule.Seed, 0))}
	what := []string{rule.Fault.String()}
	for _, key := range rule.Keys {
		what = append(what, key.Name())
	}
	r.hits = newRuleStats(strings.Join(what, " "), func() { p.remove(r) })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return r.hits
}

func (p *KafkaProxy) remove(r *kafkaRule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = slices.DeleteFunc(p.rules, func(other *kafkaRule) bool { return other == r })
}

// match returns the rule that hits a request, or nil.
func (p *KafkaProxy) match(h *requestHeader) *kafkaRule {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		if r.matches(h) {
			return r
		}
	}
	return nil
}

func (r *kafkaRule) matches(h *requestHeader) bool {
	if len(r.Keys) > 0 && !slices.Contains(r.Keys, h.key) || r.Client != "" && r.Client != h.client {
		return false
	}
	if r.Times >= 0 && r.hit >= max(r.Times, 1) {
		return false
	}
	if r.When != nil {
		if request, err := h.decode(); err != nil || request == nil || !r.When(request) {
			return false
		}
	}
	if r.Chance > 0 && r.chances.Float64() >= r.Chance {
		return false
	}
	r.hit++
	return true
}

// kafkaLink is a connection with its requests that have no reply yet.
type kafkaLink struct {
	*link
	proxy *KafkaProxy
	news  chan struct{} // has room for one: a reply has arrived

	mu      sync.Mutex // guards pending
	pending map[int32]forwarded
}

// forwarded is a request that the broker has got.
type forwarded struct {
	header requestHeader
	rule   *kafkaRule // the rule that hits it, or nil
}

func (p *KafkaProxy) carry(ctx context.Context, l *link) {
	k := &kafkaLink{link: l, proxy: p, news: make(chan struct{}, 1), pending: make(map[int32]forwarded)}
	l.carry(ctx, carriage{
		read:    readFrame,
		request: func(f piece) error { return k.request(ctx, f) },
		reply:   func(f piece) error { return k.reply(ctx, f) },
		settle:  func() { k.settle(ctx) },
	})
}

func (k *kafkaLink) request(ctx context.Context, f piece) error {
	h, err := parseRequest(f.data)
	if err != nil {
		return err
	}
	if err := k.proxy.release(ctx, f.at); err != nil {
		return err
	}
	rule := k.proxy.match(&h)
	if rule != nil {
		switch rule.Fault {
		case CutBeforeRequest:
			rule.hits.add(nil)
			return errCut
		case LateRequest:
			k.client.Close()
			err = k.delay(ctx, rule, f.at)
		case DelayRequest:
			err = k.delay(ctx, rule, f.at)
		}
		if err != nil {
			return err
		}
	}
	h.body = nil // its memory is reused
	k.mu.Lock()
	k.pending[h.correlation] = forwarded{header: h, rule: rule}
	k.mu.Unlock()
	_, err = k.server.Write(f.data)
	return err
}

func (k *kafkaLink) reply(ctx context.Context, f piece) error {
	a := k.answer(correlationOf(f.data))
	data, err := k.proxy.rename(&a.header, f.data)
	if err != nil {
		return err
	}
	if err := k.proxy.release(ctx, f.at); err != nil {
		return err
	}
	if a.rule == nil {
		k.deliver(data)
		return nil
	}
	switch a.rule.Fault {
	case DropReply, LateRequest:
		// A reply that cannot be decoded counts without its content.
		reply, _ := a.header.decodeReply(f.data)
		a.rule.hits.add(reply)
		return errCut
	case DelayReply:
		if err := k.delay(ctx, a.rule, f.at); err != nil {
			return err
		}
	}
	k.deliver(data)
	a.rule.hits.add(nil)
	return nil
}

// delay waits for the delay of a rule, counted from the arrival at a time.
func (k *kafkaLink) delay(ctx context.Context, rule *kafkaRule, at time.Time) error {
	if rule.Until != nil {
		select {
		case <-rule.Until:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return k.proxy.release(ctx, at.Add(rule.wait()))
}

// wait returns the delay of the next hit. The golden ratio distributes the delays evenly.
func (r *kafkaRule) wait() time.Duration {
	_, part := math.Modf(float64(r.hits.Count()) * (math.Phi - 1))
	return r.Delay + time.Duration(part*float64(r.Spread))
}

// answer returns the request of a reply.
func (k *kafkaLink) answer(correlation int32) forwarded {
	k.mu.Lock()
	a := k.pending[correlation]
	delete(k.pending, correlation)
	k.mu.Unlock()
	select {
	case k.news <- struct{}{}:
	default:
	}
	return a
}

// settle waits until the broker has answered all requests. A broker may drop a request
// whose connection has ended.
func (k *kafkaLink) settle(ctx context.Context) {
	for {
		k.mu.Lock()
		open := len(k.pending)
		k.mu.Unlock()
		if open == 0 {
			return
		}
		select {
		case <-k.news:
		case <-ctx.Done():
			return
		}
	}
}
