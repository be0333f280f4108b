package cursorstore

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"exportbridge/bridge"
)

// Client is a connection pool to Redis: a server, a primary behind sentinels,
// or a cluster. All methods may be called concurrently.
type Client struct {
	rdb     redis.UniversalClient
	where   string // for errors, without credentials
	secure  bool   // with TLS
	prefix  string
	age     time.Duration
	timeout time.Duration
	writes  writes
	polls   polls
	report  func(stream string, err error)
}

// Open validates the configuration and returns a client. It does not connect:
// the first operation fails if the server is unreachable. The caller closes it.
func Open(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	options, err := cfg.options()
	if err != nil {
		return nil, err
	}
	c := &Client{
		rdb:     redis.NewUniversalClient(options),
		where:   strings.Join(options.Addrs, ","),
		secure:  options.TLSConfig != nil,
		prefix:  cfg.Prefix,
		age:     cfg.HistoryAge,
		timeout: cfg.Timeout,
		report:  cfg.Report,
	}
	if c.report == nil {
		c.report = func(string, error) {}
	}
	return c, nil
}

// Close closes all connections. Later operations fail.
func (c *Client) Close() error {
	if err := c.rdb.Close(); err != nil {
		return fmt.Errorf("close redis at %s: %w", c.where, err)
	}
	return nil
}

// Stream returns the store of a stream without a request.
func (c *Client) Stream(name string) *Store {
	s := stream{c: c, name: name, keys: keysOf(c.prefix, name)}
	return &Store{stream: s, history: history{stream: s}, inbox: inbox{stream: s}}
}

// Streams returns the sorted names of all streams with a key under the prefix.
// It scans the whole database in small steps.
func (c *Client) Streams(ctx context.Context) ([]string, error) {
	var mu sync.Mutex // guards names: a cluster's nodes are scanned together
	names := make(map[string]struct{})
	scan := func(ctx context.Context, node redis.Cmdable) error {
		return c.scan(ctx, node, func(key string) {
			mu.Lock()
			defer mu.Unlock()
			if name, ok := streamOf(c.prefix, key); ok {
				names[name] = struct{}{}
			}
		})
	}
	if err := c.eachPrimary(ctx, scan); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(names)), nil
}

const scanStep = 1000

func (c *Client) scan(ctx context.Context, node redis.Cmdable, found func(key string)) error {
	for cursor := uint64(0); ; {
		var page []string
		err := c.call(ctx, "scan for streams", func(ctx context.Context) (err error) {
			page, cursor, err = node.Scan(ctx, cursor, c.prefix+":{*", scanStep).Result()
			return err
		})
		if err != nil {
			return err
		}
		for _, key := range page {
			found(key)
		}
		if cursor == 0 {
			return nil
		}
	}
}

// eachPrimary runs f on every primary, concurrently in a cluster.
func (c *Client) eachPrimary(ctx context.Context, f func(context.Context, redis.Cmdable) error) error {
	cluster, ok := c.rdb.(*redis.ClusterClient)
	if !ok {
		return f(ctx, c.rdb)
	}
	// Finding the nodes is an operation of its own, with its own timeout.
	err := c.call(ctx, "find the cluster's nodes", func(ctx context.Context) error { return cluster.Ping(ctx).Err() })
	if err != nil {
		return err
	}
	return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return f(ctx, node) })
}

// call runs one operation with the timeout and classifies the error.
func (c *Client) call(ctx context.Context, op string, f func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err := f(bounded)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", op, ctx.Err())
	}
	return fmt.Errorf("%s: %w", op, c.explain(err))
}

// call runs one operation on the stream's keys. It reports whether the server with these keys
// is healthy, unless ctx was cancelled.
func (s *stream) call(ctx context.Context, op string, f func(context.Context) error) error {
	err := s.c.call(ctx, op, f)
	if err == nil || ctx.Err() == nil {
		s.c.report(s.name, s.c.writes.health(s.name, err))
	}
	return err
}

// wrote notes that the server accepts the stream's writes.
func (s *stream) wrote() {
	if s.c.writes.taken(s.name) {
		s.c.report(s.name, nil)
	}
}

// eval runs a script as one operation and returns its reply, a list of strings
// that starts with the outcome.
func (s *stream) eval(
	ctx context.Context, op string, script *redis.Script, keys []string, args ...any,
) (reply []string, err error) {
	err = s.call(ctx, op, func(ctx context.Context) (err error) {
		reply, err = script.Run(ctx, s.c.rdb, keys, args...).StringSlice()
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(reply) == 0 {
		return nil, fmt.Errorf("%s: %w", op, errReply)
	}
	return reply, nil
}

// LogTo sends go-redis's own messages to the logger at debug level, because the error of
// the operation reports each of them too. Nil discards them. It applies to the whole
// process; by default go-redis writes to standard error.
func LogTo(log *slog.Logger) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	redis.SetLogger(clientLog{log})
}

type clientLog struct{ log *slog.Logger }

// Printf implements go-redis's logger.
func (c clientLog) Printf(ctx context.Context, format string, args ...any) {
	if c.log.Enabled(ctx, slog.LevelDebug) {
		c.log.DebugContext(ctx, "redis client", "message", fmt.Sprintf(format, args...))
	}
}

var (
	_ bridge.Store = (*Store)(nil)
	_ bridge.Inbox = (*Store)(nil)
)
