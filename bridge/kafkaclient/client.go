package kafkaclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/plugin/kslog"

	"exportbridge/bridge"
)

// Time-outs measured to ride through the loss of one of three brokers, and
// short enough to name a dead broker within ten seconds.
const (
	dialTimeout     = 2 * time.Second
	requestOverhead = 3 * time.Second
	metadataMinAge  = 250 * time.Millisecond
	// RetryTimeout bounds the retries of a request.
	RetryTimeout = 10 * time.Second
	// AttemptTimeout bounds one attempt to reach the cluster, so that an
	// unreachable broker is reported within ten seconds.
	AttemptTimeout = 8 * time.Second
)

// maxBatch bounds a record batch. A request must stay below the brokers'
// default limit of 100 MiB.
const maxBatch = 64 << 20

// Client is a kgo client that records which broker delays it. Its methods may be called
// concurrently.
type Client struct {
	*kgo.Client
	cfg     Config
	monitor *connMonitor
}

// Open returns a client without connecting. All access to Kafka goes through
// it, with the same brokers, TLS and credentials. The caller closes it.
func (c *Config) Open(opts ...kgo.Opt) (*Client, error) {
	client := &Client{cfg: *c, monitor: newConnMonitor()}
	return client.Open(opts...)
}

// Request is kgo's for all but groups. kgo asks only one broker for a group's coordinator:
// while that broker is down, Request repeats the request, which asks the next one.
func (c *Client) Request(ctx context.Context, req kmsg.Request) (resp kmsg.Response, err error) {
	_, ofGroup := req.(kmsg.GroupCoordinatorRequest)
	c.repeat(ctx, func() (again bool) {
		resp, err = c.Client.Request(ctx, req)
		return ofGroup && isDial(err)
	})
	return resp, err
}

// RequestSharded is kgo's, with the repetition of Request.
func (c *Client) RequestSharded(ctx context.Context, req kmsg.Request) (parts []kgo.ResponseShard) {
	c.repeat(ctx, func() (again bool) {
		parts = c.Client.RequestSharded(ctx, req)
		return slices.ContainsFunc(parts, func(p kgo.ResponseShard) bool { return isDial(p.Err) })
	})
	return parts
}

// repeat asks until each broker had a chance to answer.
func (c *Client) repeat(ctx context.Context, ask func() (again bool)) {
	for range len(c.cfg.Brokers) + 1 {
		if !ask() || ctx.Err() != nil {
			return
		}
	}
}

func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// OpenUntil is Open for requests with the deadline of ctx. kgo ignores the deadline while
// it waits for the first answer on a connection: the client limits that wait to the time
// left, at least 100 ms.
func (c *Config) OpenUntil(ctx context.Context, opts ...kgo.Opt) (*Client, error) {
	if end, ok := ctx.Deadline(); ok {
		left := max(time.Until(end), 100*time.Millisecond) // the shortest timeout that kgo accepts
		opts = append(opts, kgo.RequestTimeoutOverhead(min(left, requestOverhead)))
	}
	return c.Open(opts...)
}

// Open returns another client with additional options. Both share the knowledge
// about connections.
func (c *Client) Open(extra ...kgo.Opt) (*Client, error) {
	cfg := &c.cfg
	opts := []kgo.Opt{
		kgo.SeedBrokers(cfg.Brokers...),
		kgo.ClientID(cfg.ClientID),
		kgo.Rack(cfg.Rack),
		kgo.DialTimeout(dialTimeout),
		kgo.RequestTimeoutOverhead(requestOverhead),
		kgo.RetryTimeout(RetryTimeout),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.RetryBackoffFn(retryBackoff),
		kgo.MaxVersions(stableVersions),
		kgo.DisableClientMetrics(), // its last push would hold up Close
		kgo.WithHooks(append([]kgo.Hook{c.monitor}, cfg.Hooks...)...),
	}
	if cfg.TLSEnabled {
		opts = append(opts, kgo.Dialer(dialTLS(cfg.clientTLS(), cfg.TLSSkipVerify)))
	}
	if cfg.SASLMechanism != "" {
		mechanism, refused := cfg.mechanism()
		opts = append(opts, kgo.SASL(mechanism), kgo.WithHooks(refusedLogins(refused)))
	}
	if cfg.Log != nil {
		opts = append(opts, kgo.WithLogger(quiet{kslog.New(cfg.Log)}))
	}
	client, err := kgo.NewClient(append(opts, extra...)...)
	if err != nil {
		return nil, cfg.Fault(fmt.Errorf("create Kafka client: %w", err), "")
	}
	return &Client{Client: client, cfg: *cfg, monitor: c.monitor}, nil
}

// With runs do with its own client. Errors are Faults about topic, which may be
// empty, unless they name another one.
func With[T any](
	ctx context.Context, cfg *Config, topic string, do func(context.Context, *Client) (T, error),
) (T, error) {
	client, err := cfg.OpenUntil(ctx)
	if err != nil {
		var none T
		return none, err
	}
	defer client.Close()
	answer, err := do(ctx, client)
	if err != nil {
		return answer, client.Explain(err, topic)
	}
	return answer, nil
}

// Log returns a reader of a topic. With a non-zero id, a topic recreated under the same
// name is an error. Without an id it reads the topic found first. The client's consumer
// options are ignored.
func (c *Client) Log(topic string, id [16]byte) *Log {
	return &Log{client: c.Client, name: topic, id: id, turns: make(map[int32]chan struct{})}
}

// Trouble returns the latest error of a broker that has not recovered, or names
// an unresponsive one; nil if there is none.
func (c *Client) Trouble() error { return c.monitor.cause() }

// Cause returns err, or the connection error behind it if err is only a
// timeout.
func (c *Client) Cause(err error) error {
	if cause := c.Trouble(); cause != nil && !answered(err) {
		return cause
	}
	return err
}

// Explain turns a client error into a Fault about topic, which may be empty.
func (c *Client) Explain(err error, topic string) *bridge.Fault {
	return c.cfg.Fault(c.Cause(err), topic)
}

// answered reports whether a broker, not the network, caused the error.
func answered(err error) bool {
	if f, ok := errors.AsType[*bridge.Fault](err); ok {
		return f.Class == bridge.Permanent || f.Code != "error"
	}
	return IsAnswer(err) && !errors.Is(err, kerr.SaslAuthenticationFailed) // an error of the connection
}

func (c *Config) clientTLS() bridge.ClientTLS {
	return bridge.ClientTLS{
		Prefix: "KAFKA_TLS", CA: c.TLSCA, Cert: c.TLSCert, Key: c.TLSKey,
		CAFile: c.TLSCAFile, CertFile: c.TLSCertFile, KeyFile: c.TLSKeyFile,
	}
}

// dialTLS returns a function that dials with the certificates at the time of the call.
func dialTLS(certificates bridge.ClientTLS, skipVerify bool) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conf, err := certificates.Config()
		if err != nil {
			return nil, err
		}
		conf.InsecureSkipVerify = skipVerify // asked for by KAFKA_TLS_SKIP_VERIFY
		d := tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: conf}
		return d.DialContext(ctx, network, addr)
	}
}

// quiet lowers all messages of the Kafka client to debug level. It logs every
// partition and group at every attempt; Config.Report reports a problem once.
type quiet struct{ *kslog.Logger }

func (q quiet) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	if level != kgo.LogLevelDebug && level != kgo.LogLevelNone {
		level = kgo.LogLevelDebug
	}
	q.Logger.Log(level, msg, keyvals...)
}

// stableVersions are kgo's own, shared by all clients of the process.
var stableVersions = kversion.Stable()

// retryBackoff is kgo's own, without a source of random numbers for each client, which
// takes 5 KB.
func retryBackoff(fails int) time.Duration {
	backoff := 250 * time.Millisecond << min(max(fails-1, 0), 10)
	if fails > 0 {
		backoff = time.Duration(float64(backoff) * (0.8 + 0.4*rand.Float64()))
	}
	return min(5*time.Second, backoff)
}

// Backoff returns the delay before the next attempt: full jitter, at most five
// seconds.
func Backoff(try int) time.Duration {
	return rand.N(min(5*time.Second, 250*time.Millisecond<<min(try, 10)) + 1)
}
