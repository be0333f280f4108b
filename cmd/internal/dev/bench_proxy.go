package dev

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/cmd/internal/cli"
)

func newBenchProxyCommand(a *cli.App) *cobra.Command {
	var to string
	var delay, spread time.Duration
	var commits, plain bool
	cmd := &cobra.Command{
		Use:     "serve-proxy",
		Short:   "Stand before Kafka, or any server, and deliver its replies later, until stdin ends",
		Example: "  exportbridge-dev bench serve-proxy --to localhost:9092 --delay 5ms",
		Args:    cli.NoArgs,
		Hidden:  true,
	}
	cmd.Flags().StringVar(&to, "to", "", "`ADDRESS` of a broker")
	cmd.Flags().DurationVar(&delay, "delay", 0, "how much later")
	cmd.Flags().DurationVar(&spread, "spread", 0, "up to so much later still, evenly spread")
	cmd.Flags().BoolVar(&commits, "commits", false, "only the replies to the ends of transactions, and what is behind them on the connection")
	cmd.Flags().BoolVar(&plain, "plain", false, "it is no Kafka")
	cmd.RunE = func(*cobra.Command, []string) error {
		p := newDelayProxy(delays{least: delay, spread: spread})
		p.commits, p.plain = commits, plain
		addr, err := p.before(to)
		if err != nil {
			return err
		}
		return serveParent(a, addr, p)
	}
	return cmd
}

// delays are how much later replies are delivered.
type delays struct{ least, spread time.Duration }

// nth is the delay of reply n: the golden section spreads them evenly, the
// same way each time.
func (d delays) nth(n int) time.Duration {
	_, part := math.Modf(float64(n) * (math.Phi - 1))
	return d.least + time.Duration(part*float64(d.spread))
}

// delayProxy stands before servers and delivers what they answer later: as if
// they were farther away. Requests and replies stay pipelined. Kafka's replies
// that name brokers name the proxy in their place, so that all connections
// lead through it. Those that say that a partition has moved keep the broker's
// address: nothing moves during a bench.
type delayProxy struct {
	delays
	commits bool // only the ends of transactions are late
	plain   bool // what goes through is not Kafka's

	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu        sync.Mutex
	fronts    map[string]string // address of the proxy by that of the broker; guarded by mu
	listeners []net.Listener    // guarded by mu
	late      int               // replies that were delayed; guarded by mu
}

func newDelayProxy(d delays) *delayProxy {
	life, end := context.WithCancel(context.Background())
	return &delayProxy{delays: d, life: life, end: end, fronts: make(map[string]string)}
}

// Close cuts all connections and waits until they are gone.
func (p *delayProxy) Close() error {
	p.end()
	p.mu.Lock()
	var errs []error
	for _, l := range p.listeners {
		errs = append(errs, l.Close())
	}
	p.listeners = nil
	p.mu.Unlock()
	p.work.Wait()
	return errors.Join(errs...)
}

// before returns the address at which the proxy stands before a server.
func (p *delayProxy) before(server string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if front, ok := p.fronts[server]; ok {
		return front, nil
	}
	if p.life.Err() != nil {
		return "", net.ErrClosed
	}
	l, err := listen(anyPort)
	if err != nil {
		return "", fmt.Errorf("stand before %s: %w", server, err)
	}
	p.listeners = append(p.listeners, l)
	p.fronts[server] = l.Addr().String()
	p.work.Go(func() { p.accept(l, server) })
	return p.fronts[server], nil
}

// accept carries each connection until the listener is closed.
func (p *delayProxy) accept(l net.Listener, server string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.carry(client, server) })
	}
}

// proxied is one connection through the proxy.
type proxied struct {
	*delayProxy
	client, server net.Conn
	replies        chan reply

	mu    sync.Mutex
	asked map[int32]askedFor // that have no reply yet, by correlation id; guarded by mu
}

// askedFor is what a reply needs to be read.
type askedFor struct {
	key     int16
	version int16
}

// reply is a piece that came from the server, and when it is due.
type reply struct {
	data []byte
	due  time.Time
}

// repliesAhead is how many replies may be on their way on one connection.
const repliesAhead = 1024

// carry brings a client together with the server.
func (p *delayProxy) carry(client net.Conn, server string) {
	conn, err := new(net.Dialer).DialContext(p.life, "tcp", server)
	if err != nil {
		_ = client.Close() // which tells the client
		return
	}
	p.join(client, conn)
}

// join carries everything between two connections until a side ends.
func (p *delayProxy) join(client, server net.Conn) {
	x := &proxied{delayProxy: p, client: client, server: server, replies: make(chan reply, repliesAhead), asked: make(map[int32]askedFor)}
	ctx, cut := context.WithCancel(p.life)
	defer cut()
	closed := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(closed)
		_, _ = client.Close(), server.Close()
	})
	var parts sync.WaitGroup
	for _, part := range []func(context.Context) error{x.forward, x.receive, x.deliver} {
		parts.Go(func() {
			defer cut()   // one end is the end of all
			_ = part(ctx) // whose end it is, client and server see for themselves
		})
	}
	parts.Wait()
	<-closed
}

// forward brings requests to the server as they come.
func (x *proxied) forward(context.Context) error {
	if x.plain {
		_, err := io.Copy(x.server, x.client)
		return err
	}
	from := bufio.NewReaderSize(x.client, 64<<10)
	var frame []byte
	for {
		var err error
		if frame, err = readKafka(from, frame); err != nil {
			return err
		}
		if len(frame) < 12 {
			return errNoFrame
		}
		x.mu.Lock()
		x.asked[int32(binary.BigEndian.Uint32(frame[8:]))] = askedFor{
			key: int16(binary.BigEndian.Uint16(frame[4:])), version: int16(binary.BigEndian.Uint16(frame[6:])),
		}
		x.mu.Unlock()
		if _, err := x.server.Write(frame); err != nil {
			return err
		}
	}
}

// receive takes replies from the server as they come.
func (x *proxied) receive(ctx context.Context) error {
	defer close(x.replies)
	from := bufio.NewReaderSize(x.server, 64<<10)
	for {
		data, delayed, err := x.next(from)
		if err != nil {
			return err
		}
		due := time.Now()
		if delayed {
			due = due.Add(x.delay())
		}
		select {
		case x.replies <- reply{data, due}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// delay is that of the next reply that is late.
func (p *delayProxy) delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late++
	return p.nth(p.late)
}

// next returns the next piece from the server, and whether it is to be late.
func (x *proxied) next(from *bufio.Reader) (data []byte, delayed bool, err error) {
	if x.plain {
		data = make([]byte, 32<<10)
		n, err := from.Read(data)
		return data[:n], true, err
	}
	frame, err := readKafka(from, nil)
	if err != nil {
		return nil, false, err
	}
	id := int32(binary.BigEndian.Uint32(frame[4:]))
	x.mu.Lock()
	asked := x.asked[id]
	delete(x.asked, id)
	x.mu.Unlock()
	frame, err = x.rewrite(asked, frame)
	return frame, !x.commits || asked.key == int16(kmsg.EndTxn), err
}

// deliver brings replies to the client when they are due, in the order in
// which they came.
func (x *proxied) deliver(ctx context.Context) error {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for r := range x.replies {
		if d := time.Until(r.due); d > 0 {
			wait.Reset(d)
			select {
			case <-wait.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if _, err := x.client.Write(r.data); err != nil {
			return err
		}
	}
	return nil
}

// maxKafka is more than a broker takes. A larger frame is not Kafka's: TLS, say.
const maxKafka = 256 << 20

var errNoFrame = errors.New("what came is not Kafka's: is this a plain listener?")

// readKafka reads one request or reply, the four bytes of its size included,
// into memory that it may use.
func readKafka(from io.Reader, memory []byte) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > maxKafka {
		return nil, errNoFrame
	}
	if cap(memory) < int(n)+4 {
		memory = make([]byte, n+4)
	}
	memory = memory[:n+4]
	copy(memory, size[:])
	_, err := io.ReadFull(from, memory[4:])
	return memory, err
}

// rewrite puts the proxy's addresses into a reply that names brokers.
func (p *delayProxy) rewrite(asked askedFor, frame []byte) ([]byte, error) {
	var names func() error
	var decoded kmsg.Response
	switch kmsg.Key(asked.key) {
	case kmsg.Metadata:
		m := kmsg.NewPtrMetadataResponse()
		decoded, names = m, func() error { return p.rename(addressesOf(m.Brokers)) }
	case kmsg.DescribeCluster:
		m := kmsg.NewPtrDescribeClusterResponse()
		decoded, names = m, func() error { return p.rename(addressesOf(m.Brokers)) }
	case kmsg.FindCoordinator:
		m := kmsg.NewPtrFindCoordinatorResponse()
		decoded, names = m, func() error { return p.rename(coordinators(m)) }
	default:
		return frame, nil
	}
	decoded.SetVersion(asked.version)
	body := kbin.Reader{Src: frame[8:]}
	if decoded.IsFlexible() {
		kmsg.SkipTags(&body)
	}
	if err := decoded.ReadFrom(body.Src); err != nil {
		return nil, fmt.Errorf("read a reply that names brokers: %w", err)
	}
	if err := names(); err != nil {
		return nil, err
	}
	out := append(make([]byte, 4, len(frame)+64), frame[4:8]...)
	if decoded.IsFlexible() {
		out = append(out, 0) // no tags
	}
	out = decoded.AppendTo(out)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out, nil
}

// address is where a reply says that a broker is.
type address struct {
	host *string
	port *int32
}

// addressesOf finds the addresses in a list of brokers.
func addressesOf[B kmsg.MetadataResponseBroker | kmsg.DescribeClusterResponseBroker](brokers []B) []address {
	var all []address
	for i := range brokers {
		switch b := any(&brokers[i]).(type) {
		case *kmsg.MetadataResponseBroker:
			all = append(all, address{&b.Host, &b.Port})
		case *kmsg.DescribeClusterResponseBroker:
			all = append(all, address{&b.Host, &b.Port})
		}
	}
	return all
}

// coordinators finds the addresses in either form of the reply.
func coordinators(m *kmsg.FindCoordinatorResponse) []address {
	all := []address{{&m.Host, &m.Port}}
	for i := range m.Coordinators {
		all = append(all, address{&m.Coordinators[i].Host, &m.Coordinators[i].Port})
	}
	return all
}

// rename puts the proxy in the place of brokers. Where there is none, as in
// the answer that there is no coordinator, nothing is put.
func (p *delayProxy) rename(all []address) error {
	for _, a := range all {
		if *a.host == "" {
			continue
		}
		front, err := p.before(net.JoinHostPort(*a.host, strconv.Itoa(int(*a.port))))
		if err != nil {
			return err
		}
		host, port, _ := net.SplitHostPort(front)
		number, err := strconv.ParseInt(port, 10, 32)
		if err != nil {
			return err
		}
		*a.host, *a.port = host, int32(number)
	}
	return nil
}
