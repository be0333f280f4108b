package cursorstore

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// The limits of a server's answer to one command. All are far above what is ours: a
// process with little memory must live with what others write.
const (
	maxValue  = 8 << 20  // bytes of a value
	maxValues = 4 << 20  // values in a list
	maxReply  = 64 << 20 // bytes of the answer
	maxLine   = 64       // bytes of a line that is read for a length
)

// errLargeReply is the error of an answer beyond the limits.
var errLargeReply = errors.New("a value is larger than any that exportbridge writes")

// dial returns go-redis's own dialer with bounded replies, and for each connection the TLS
// settings that secure returns, nil for none.
func dial(
	timeout time.Duration, secure func() (*tls.Config, error),
) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conf, err := secure()
		if err != nil {
			return nil, err
		}
		conn, err := redis.NewDialer(&redis.Options{DialTimeout: timeout, TLSConfig: conf})(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		bounded := &replies{Conn: conn}
		if raw, ok := conn.(syscall.Conn); ok { // by which go-redis notices idle connections that were closed
			return struct {
				*replies
				syscall.Conn
			}{bounded, raw}, nil
		}
		return bounded, nil
	}
}

// replies is a connection that fails answers beyond the limits before go-redis
// allocates the length that they announce. It is for one command at a time.
type replies struct {
	net.Conn
	answered int    // bytes since the last command
	value    int    // bytes of the current value that are to come
	line     []byte // of the protocol, as far as it came
	failed   bool   // nothing more is read
}

// Write implements net.Conn.
func (r *replies) Write(p []byte) (int, error) {
	r.answered = 0
	return r.Conn.Write(p)
}

// Read implements net.Conn.
func (r *replies) Read(p []byte) (int, error) {
	if r.failed {
		return 0, errLargeReply
	}
	n, err := r.Conn.Read(p)
	r.answered += n
	if r.failed = r.answered > maxReply || !r.follow(p[:n]); r.failed {
		return 0, errLargeReply
	}
	return n, err
}

// follow reads what arrived as the protocol, and reports whether its lengths are within
// the limits.
func (r *replies) follow(p []byte) bool {
	for len(p) > 0 {
		if skip := min(r.value, len(p)); skip > 0 {
			r.value, p = r.value-skip, p[skip:]
			continue
		}
		c := p[0]
		if p = p[1:]; c != '\n' {
			if len(r.line) < maxLine {
				r.line = append(r.line, c)
			}
			continue
		}
		ok := r.length()
		if r.line = r.line[:0]; !ok {
			return false
		}
	}
	return true
}

// length takes the length that a line announces.
func (r *replies) length() bool {
	if len(r.line) < 2 {
		return true
	}
	n, err := strconv.Atoi(string(r.line[1 : len(r.line)-1])) // ends with \r
	switch {
	case err != nil || n < 0:
		return true
	case r.line[0] == '$', r.line[0] == '=', r.line[0] == '!':
		r.value = n + len("\r\n")
		return n <= maxValue
	case r.line[0] == '*', r.line[0] == '%', r.line[0] == '~', r.line[0] == '>':
		return n <= maxValues
	}
	return true
}
