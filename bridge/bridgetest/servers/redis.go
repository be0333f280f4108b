package servers

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// RedisOptions describe the Redis that a test needs. The server of TEST_REDIS_URL, if set,
// is used without options.
type RedisOptions struct {
	// Settings are further lines of redis.conf. They take precedence.
	Settings map[string]string
	// Own requests a server that the caller may kill.
	Own bool
}

// foreign reports whether the server of TEST_REDIS_URL satisfies the options.
func (o RedisOptions) foreign() bool { return !o.Own && len(o.Settings) == 0 }

// Redis is a running redis-server. Every write is on disk before it is acknowledged. One
// goroutine may use it at a time.
type Redis struct {
	foreign string // the server of TEST_REDIS_URL
	options RedisOptions
	process process
	addr    string
	ports   *portBlock
	dir     string
}

// LaunchRedis starts redis-server and returns when it answers. The caller must Close it. On
// Linux, the server ends with this process.
func LaunchRedis(ctx context.Context, o RedisOptions) (*Redis, error) {
	if address := os.Getenv("TEST_REDIS_URL"); address != "" && o.foreign() {
		return &Redis{foreign: address}, nil
	}
	r := &Redis{options: o}
	if err := r.launch(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("launch Redis: %w", err), r.Close())
	}
	return r, nil
}

func (r *Redis) launch(ctx context.Context) error {
	if err := r.prepare(); err != nil {
		return err
	}
	return r.Start(ctx)
}

func (r *Redis) prepare() (err error) {
	program, err := findProgram("redis-server")
	if err != nil {
		return err
	}
	if r.dir, err = os.MkdirTemp("", "exportbridge-redis-*"); err != nil {
		return err
	}
	if r.ports, err = takePorts(); err != nil {
		return err
	}
	if r.addr, err = r.ports.take(); err != nil {
		return err
	}
	file := filepath.Join(r.dir, "redis.conf")
	if err := os.WriteFile(file, []byte(r.settings()), 0o600); err != nil {
		return err
	}
	r.process.name, r.process.log = "redis-server", filepath.Join(r.dir, "redis.log")
	r.process.args = []string{program, file}
	return nil
}

// settings returns the lines of redis.conf; a later line wins.
func (r *Redis) settings() string {
	host, port, _ := net.SplitHostPort(r.addr) // takePorts has made it
	var lines strings.Builder
	set := func(name, value string) { fmt.Fprintf(&lines, "%s %s\n", name, value) }
	set("bind", host)
	set("dir", fmt.Sprintf("%q", r.dir))
	set("save", `""`)
	set("appendonly", "yes")
	set("appendfsync", "always")
	set("port", port)
	for name, value := range r.options.Settings {
		set(name, value)
	}
	return lines.String()
}

// Addr returns the server's host and port.
func (r *Redis) Addr() string {
	if r.foreign == "" {
		return r.addr
	}
	if u, err := url.Parse(r.foreign); err == nil {
		return u.Host
	}
	return r.foreign
}

// URL returns the server's URL.
func (r *Redis) URL() string { return cmp.Or(r.foreign, "redis://"+r.addr+"/0") }

// Kill ends the server with SIGKILL.
func (r *Redis) Kill() error { return r.with((*process).kill) }

// Pause stops the server with SIGSTOP: its connections stay open, and it does not answer.
func (r *Redis) Pause() error { return r.with((*process).pause) }

// Continue resumes the paused server.
func (r *Redis) Continue() error { return r.with((*process).proceed) }

// Stop ends the server with SIGTERM. If ctx ends earlier, Stop kills the server.
func (r *Redis) Stop(ctx context.Context) error {
	return r.with(func(p *process) error { return p.stop(ctx) })
}

// Start starts the ended server at its address with its data, and waits until it answers.
func (r *Redis) Start(ctx context.Context) error {
	if err := r.with((*process).start); err != nil {
		return err
	}
	return r.Ready(ctx)
}

// Restart kills the server, if it runs, and starts it again.
func (r *Redis) Restart(ctx context.Context) error {
	if err := r.Kill(); err != nil {
		return err
	}
	return r.Start(ctx)
}

func (r *Redis) with(do func(*process) error) error {
	if r.foreign != "" {
		return errNotOurs
	}
	return do(&r.process)
}

// Logs returns the last lines of the server's log.
func (r *Redis) Logs(lines int) string {
	if r.foreign != "" {
		return ""
	}
	return r.process.tail(lines)
}

// Close ends the server and removes its data. It does nothing to the server of
// TEST_REDIS_URL.
func (r *Redis) Close() error {
	errs := []error{r.process.kill()}
	if r.ports != nil {
		errs = append(errs, r.ports.release())
		r.ports = nil
	}
	if r.dir != "" {
		errs = append(errs, os.RemoveAll(r.dir))
	}
	return errors.Join(errs...)
}

// Ready waits until the server answers.
func (r *Redis) Ready(ctx context.Context) error {
	if err := await(ctx, r.process.exited(), r.ping); err != nil {
		return fmt.Errorf("wait for Redis: %w\n%s", err, r.Logs(20))
	}
	return nil
}

// ping sends one PING.
func (r *Redis) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", r.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(line, "+PONG") {
		return fmt.Errorf("it says %q", strings.TrimSpace(line))
	}
	return nil
}
