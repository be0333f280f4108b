// Package embedded runs the servers of a demo or a benchmark in this process: a fake
// Kafka, a fake Redis and the simulated export API.
package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/twmb/franz-go/pkg/kfake"

	"exportbridge/cmd/internal/cli"
)

// The default addresses of the embedded servers. They are on loopback only, because the
// servers require no authentication.
const (
	DefaultKafka = "127.0.0.1:9092"
	DefaultRedis = "127.0.0.1:6379"
	DefaultAPI   = "127.0.0.1:4000"
)

// retentionInterval is how often the embedded Kafka deletes the records beyond the
// retention of their topics.
const retentionInterval = 10 * time.Second

// ListenAt listens at addr. If addr is empty, it listens at the usual address or, if
// that is taken, at a free port of the same host; moved is true for a free port.
func ListenAt(addr, usual string) (ln net.Listener, moved bool, err error) {
	if addr != "" {
		ln, err = listen(addr)
		return ln, false, err
	}
	if ln, err = listen(usual); err == nil {
		return ln, false, nil
	}
	ln, err = listen(FreePort(usual))
	return ln, true, err
}

// notStarted returns the error of a server that cannot listen at addr, which is empty
// for the default address.
func notStarted(server, addr string, err error) error {
	if addr == "" {
		return fmt.Errorf("start %s: %w", server, err)
	}
	return cli.Errorf(cli.ExitFailed, "choose another address than "+addr+", or omit it to use a free port",
		"start %s: %w", server, err)
}

func listen(addr string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
}

// FreePort returns an address with the host of addr, at which Listen chooses a free port.
func FreePort(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	return net.JoinHostPort(host, "0")
}

// Kafka is a Kafka with one broker in this process.
type Kafka struct {
	// Addr is the broker's address, for KAFKA_BROKERS.
	Addr string
	// Moved is true if the usual port was taken.
	Moved bool

	cluster *kfake.Cluster
	dir     *dataDir
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// StartKafka starts a Kafka at addr. If addr is empty, it listens at port 9092, or at a
// free port if that is taken. Its data is in dir, which one process at a time may use;
// a later start finds the data again. If dir is empty, the data is in a temporary
// directory that Close removes. In memory, the data of a long demo would become too large.
func StartKafka(addr, dir string) (*Kafka, error) {
	data, err := openDataDir(dir)
	if err != nil {
		return nil, err
	}
	ln, moved, err := ListenAt(addr, DefaultKafka)
	if err != nil {
		return nil, errors.Join(notStarted("embedded Kafka", addr, err), data.Close())
	}
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1),
		kfake.DataDir(filepath.Join(data.path, "kafka")),
		kfake.ListenFn(func(string, string) (net.Listener, error) { return ln, nil }),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start embedded Kafka: %w", err), ln.Close(), data.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	k := &Kafka{Addr: ln.Addr().String(), Moved: moved, cluster: cluster, dir: data, stop: stop}
	k.done.Go(func() { k.applyRetention(ctx) })
	return k, nil
}

// applyRetention deletes old records. The embedded Kafka deletes them on request only.
func (k *Kafka) applyRetention(ctx context.Context) {
	tick := time.NewTicker(retentionInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			k.cluster.ApplyRetention()
		}
	}
}

// Close writes the data to disk and stops the server.
func (k *Kafka) Close() error {
	k.stop()
	k.done.Wait()
	k.cluster.Close()
	return k.dir.Close()
}

// dataDir is a directory that one process at a time may use.
type dataDir struct {
	path      string
	temporary bool
	lock      *os.File
}

// AnotherDataDir is the hint about a data directory that cannot be used.
const AnotherDataDir = "choose another --data-dir"

// openDataDir creates the directory if it is missing, and locks it for this process. An
// empty path is a new temporary directory.
func openDataDir(path string) (*dataDir, error) {
	if path == "" {
		path, err := os.MkdirTemp("", "exportbridge-*")
		if err != nil {
			return nil, fmt.Errorf("create data directory: %w", err)
		}
		return &dataDir{path: path, temporary: true}, nil
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, cli.Errorf(cli.ExitFailed, AnotherDataDir, "create data directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, cli.Errorf(cli.ExitFailed, AnotherDataDir, "lock data directory: %w", err)
	}
	if err := lockFile(lock); err != nil {
		return nil, errors.Join(cli.Errorf(cli.ExitFailed, AnotherDataDir,
			"data directory %s is in use by another process: %w", path, err), lock.Close())
	}
	return &dataDir{path: path, lock: lock}, nil
}

// Close unlocks the directory. The lock file stays: if it were removed, two processes
// could lock two files of the same name.
func (d *dataDir) Close() error {
	if d.temporary {
		return os.RemoveAll(d.path)
	}
	return errors.Join(unlockFile(d.lock), d.lock.Close())
}

// Redis is a Redis in this process.
type Redis struct {
	// Addr is host and port, URL the value for REDIS_URL.
	Addr, URL string
	// Moved is true if the usual port was taken.
	Moved bool

	server *miniredis.Miniredis
}

// StartRedis starts a Redis at addr. If addr is empty, it listens at port 6379, or at a
// free port if that is taken. It loses its data when it stops; Kafka has every checkpoint.
func StartRedis(addr string) (*Redis, error) {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true) // without it, no key would expire
	r := &Redis{server: server}
	err := server.StartAddr(cmp.Or(addr, DefaultRedis))
	if err != nil && addr == "" {
		r.Moved = true
		err = server.StartAddr(FreePort(DefaultRedis))
	}
	if err != nil {
		return nil, notStarted("embedded Redis", addr, err)
	}
	r.Addr = server.Addr()
	r.URL = "redis://" + r.Addr + "/0"
	return r, nil
}

// Close stops the server and closes its connections.
func (r *Redis) Close() error {
	r.server.Close()
	return nil
}

// HTTP is the server of the simulator in this process.
type HTTP struct {
	// Addr is host and port, URL the value for EXPORT_URL.
	Addr, URL string
	// Moved is true if the usual port was taken.
	Moved bool

	server *http.Server
	done   chan error
}

// StartSimulator serves handler at addr. If addr is empty, it listens at port 4000, or
// at a free port if that is taken.
func StartSimulator(handler http.Handler, addr string) (*HTTP, error) {
	ln, moved, err := ListenAt(addr, DefaultAPI)
	if err != nil {
		return nil, notStarted("simulator", addr, err)
	}
	s := &HTTP{
		Addr:   ln.Addr().String(),
		Moved:  moved,
		server: &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second},
		done:   make(chan error, 1),
	}
	s.URL = "http://" + s.Addr
	go func() { s.done <- s.server.Serve(ln) }()
	return s, nil
}

// Wait waits until ctx ends, or until the server ends with an error, which it returns.
func (s *HTTP) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.done:
		s.done <- err
		return fmt.Errorf("serve simulator: %w", err)
	}
}

// closeTimeout is how long requests in flight may take to end at Close.
const closeTimeout = time.Second

// Close stops the server. It cuts off requests that take longer than a second.
func (s *HTTP) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := s.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.server.Close()
	}
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
