package dev

import (
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

// Where the embedded servers listen unless the port is taken: where everybody
// looks for them, and on loopback alone, because they let everybody in.
const (
	usualKafka     = "127.0.0.1:9092"
	usualRedis     = "127.0.0.1:6379"
	usualSimulator = "127.0.0.1:4000"
)

// retentionInterval is how often the embedded Kafka deletes what the topics'
// retention no longer keeps.
const retentionInterval = 10 * time.Second

// listenAt takes addr, or the usual address when addr is empty; if that one is
// taken, a free port of the same host, and then moved is true.
func listenAt(addr, usual string) (ln net.Listener, moved bool, err error) {
	if addr != "" {
		ln, err = listen(addr)
		return ln, false, err
	}
	if ln, err = listen(usual); err == nil {
		return ln, false, nil
	}
	ln, err = listen(freePort(usual))
	return ln, true, err
}

// notStarted is the error of a server that does not listen at addr; empty is a
// usual address.
func notStarted(server, addr string, err error) error {
	err = fmt.Errorf("start %s: %w", server, err)
	if addr == "" {
		return err
	}
	return &cli.Error{Code: cli.ExitFailed, Err: err, Hint: "another address than " + addr + "; without one a free port serves where the usual one is taken"}
}

func listen(addr string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
}

func freePort(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	return net.JoinHostPort(host, "0")
}

// embeddedKafka is a Kafka of one broker in this process.
type embeddedKafka struct {
	// Addr is the broker's address, for KAFKA_BROKERS.
	Addr string
	// Moved is true if the usual port was taken.
	Moved bool

	cluster *kfake.Cluster
	dir     *dataDir
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// startEmbeddedKafka starts a Kafka at addr; empty is port 9092, or a free one
// if that is taken. It keeps its data in dir, which no other process may use
// at the same time and where a later start finds it again; with an empty dir
// in a temporary one that Close removes. On disk rather than in memory, where
// a long demo would grow.
func startEmbeddedKafka(addr, dir string) (*embeddedKafka, error) {
	data, err := openDataDir(dir)
	if err != nil {
		return nil, err
	}
	ln, moved, err := listenAt(addr, usualKafka)
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
	k := &embeddedKafka{Addr: ln.Addr().String(), Moved: moved, cluster: cluster, dir: data, stop: stop}
	k.done.Go(func() { k.applyRetention(ctx) })
	return k, nil
}

// applyRetention deletes old records from time to time; the embedded Kafka
// does it only when told.
func (k *embeddedKafka) applyRetention(ctx context.Context) {
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

// Seed creates a topic unless it is there, from an earlier start in the same
// directory. A configuration of nil is the broker's.
func (k *embeddedKafka) Seed(topic string, partitions int32, configs map[string]string) error {
	if k.cluster.TopicInfo(topic) != nil {
		return nil
	}
	if err := k.cluster.CreateTopic(topic, partitions, configs); err != nil {
		return fmt.Errorf("create topic %s in embedded Kafka: %w", topic, err)
	}
	return nil
}

// Close stops the server after its data is on disk.
func (k *embeddedKafka) Close() error {
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

// anotherDataDir is what to do about a directory that cannot be used.
const anotherDataDir = "another --data-dir"

// openDataDir takes the directory, which it creates if need be, for this
// process; empty is a new temporary one.
func openDataDir(path string) (*dataDir, error) {
	if path == "" {
		path, err := os.MkdirTemp("", "exportbridge-*")
		if err != nil {
			return nil, fmt.Errorf("create data directory: %w", err)
		}
		return &dataDir{path: path, temporary: true}, nil
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("create data directory: %w", err), Hint: anotherDataDir}
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("lock data directory: %w", err), Hint: anotherDataDir}
	}
	if err := lockFile(lock); err != nil {
		return nil, errors.Join(&cli.Error{
			Code: cli.ExitFailed,
			Err:  fmt.Errorf("data directory %s is in use by another process: %w", path, err),
			Hint: anotherDataDir,
		}, lock.Close())
	}
	return &dataDir{path: path, lock: lock}, nil
}

// Close lets go of the directory. The lock file stays: removing it would let
// two processes lock two files of one name.
func (d *dataDir) Close() error {
	if d.temporary {
		return os.RemoveAll(d.path)
	}
	return errors.Join(unlockFile(d.lock), d.lock.Close())
}

// embeddedRedis is a Redis in this process.
type embeddedRedis struct {
	// Addr is host and port, URL the same for REDIS_URL.
	Addr, URL string
	// Moved is true if the usual port was taken.
	Moved bool

	server *miniredis.Miniredis
	saver  *redisSaver // nil: nothing is kept
}

// startEmbeddedRedis starts a Redis at addr; empty is port 6379, or a free one
// if that is taken. With a dir it keeps its data there, a second old at most
// after a crash; without one it forgets all at Close.
func startEmbeddedRedis(addr, dir string) (*embeddedRedis, error) {
	server := miniredis.NewMiniRedis()
	// Without this no key would ever expire.
	server.ClockTTL(true)
	r := &embeddedRedis{server: server}
	if dir != "" {
		r.saver = &redisSaver{server: server, file: filepath.Join(dir, "redis.json")}
		if err := r.saver.load(); err != nil {
			return nil, fmt.Errorf("start embedded Redis: %w", err)
		}
	}
	at := addr
	if at == "" {
		at = usualRedis
	}
	err := server.StartAddr(at)
	if err != nil && addr == "" {
		r.Moved = true
		err = server.StartAddr(freePort(usualRedis))
	}
	if err != nil {
		return nil, notStarted("embedded Redis", addr, err)
	}
	r.Addr = server.Addr()
	r.URL = "redis://" + r.Addr + "/0"
	if r.saver != nil {
		r.saver.start()
	}
	return r, nil
}

// Close stops the server and closes its connections.
func (r *embeddedRedis) Close() error {
	var err error
	if r.saver != nil {
		err = r.saver.stop()
	}
	r.server.Close()
	return err
}

// embeddedHTTP serves one handler in this process: the simulator.
type embeddedHTTP struct {
	// Addr is host and port, URL the base for EXPORT_URL.
	Addr, URL string
	// Moved is true if the usual port was taken.
	Moved bool

	server *http.Server
	done   chan error
}

// startEmbeddedSimulator serves handler at addr; empty is port 4000, or a free
// one if that is taken.
func startEmbeddedSimulator(handler http.Handler, addr string) (*embeddedHTTP, error) {
	ln, moved, err := listenAt(addr, usualSimulator)
	if err != nil {
		return nil, notStarted("simulator", addr, err)
	}
	s := &embeddedHTTP{
		Addr:   ln.Addr().String(),
		Moved:  moved,
		server: &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second},
		done:   make(chan error, 1),
	}
	s.URL = "http://" + s.Addr
	go func() { s.done <- s.server.Serve(ln) }()
	return s, nil
}

// Wait returns when ctx is done, or with the error that ended the server.
func (s *embeddedHTTP) Wait(ctx context.Context) error {
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

// Close stops the server; requests that take longer than a second are cut off.
func (s *embeddedHTTP) Close() error {
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
