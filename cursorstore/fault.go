package cursorstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"exportbridge/bridge"
)

// errReply means that a script returned an unknown reply.
var errReply = errors.New("unexpected script reply")

// ErrWrites is a Transient fault of a server that rejects writes and answers
// reads.
var ErrWrites = errors.New("reads work, writes fail")

// symptom is a word in a server error and its meaning.
type symptom struct {
	word  string
	class bridge.Class
	code  string
	hint  string
}

// Permissions are the commands of an ACL user that suffice, as ACL SETUSER takes them. In
// a cluster it needs +cluster|slots and +command besides.
const Permissions = "+ping +select +client|setname +info +scan +type +time +multi +exec +eval +evalsha " +
	"+get +set +del +pexpire +hset +hmget +hgetall +hexists +hdel +zadd +zrem +zscan +zrangebyscore +zrevrangebyscore"

const grant = "grant the user the keys CURSOR_PREFIX:* and the commands " + Permissions

// symptoms are matched in this order, anywhere in the message: servers before
// version 7 prefix script errors.
var symptoms = []symptom{
	{"WRONGPASS", bridge.Permanent, "wrongpass", "check REDIS_USERNAME and REDIS_PASSWORD"},
	{"NOAUTH", bridge.Permanent, "noauth",
		"authentication required: set REDIS_PASSWORD, and REDIS_USERNAME for an ACL user"},
	{"called without any password configured", bridge.Permanent, "wrongpass",
		"the server has no password: unset REDIS_PASSWORD"},
	{"NOPERM", bridge.Permanent, "noperm", grant},
	{"The user executing the script can't", bridge.Permanent, "noperm", grant}, // in a script, Redis 7.0
	{"ACL failure in script", bridge.Permanent, "noperm", grant},               // Redis 7.2, Valkey
	{"DENIED", bridge.Permanent, "denied",
		"the server is in protected mode: give it a password, or connect over loopback"},
	{"unknown command", bridge.Permanent, "unknown-command",
		"the server must be Redis 6 or later, or compatible, with scripts allowed"},
	{"DB index is out of range", bridge.Permanent, "database", "the database in REDIS_URL does not exist; /0 always does"},
	{"invalid DB index", bridge.Permanent, "database", "the database in REDIS_URL does not exist; /0 always does"},
	{"SELECT is not allowed in cluster mode", bridge.Permanent, "database",
		"a cluster has only database 0: use /0 in REDIS_URL"},
	{"cluster support disabled", bridge.Permanent, "cluster",
		"several hosts in REDIS_URL mean a cluster, but the server is standalone: " +
			"use one host, or set REDIS_MASTER_NAME for sentinels"},
	{"CROSSSLOT", bridge.Permanent, "cluster", "the server is part of a cluster: list several of its nodes in REDIS_URL"},
	{"MOVED ", bridge.Permanent, "cluster", "the server is part of a cluster: list several of its nodes in REDIS_URL"},
	{"READONLY", bridge.Transient, "readonly",
		"REDIS_URL names a replica: name the primary, or use REDIS_MASTER_NAME with sentinels"},
	{"OOM", bridge.Transient, "oom", "the server is at its maxmemory: raise it, or free memory; do not allow eviction"},
	{"MISCONF", bridge.Transient, "misconf", "the server cannot write its data to disk: check its disk and log"},
	{"NOREPLICAS", bridge.Transient, "noreplicas", "min-replicas-to-write is not met: start the replicas"},
	{"LOADING", bridge.Transient, "loading", "wait until the server has loaded its data"},
	{"MASTERDOWN", bridge.Transient, "masterdown",
		"the replica has lost its primary; wait for the fail-over or start the primary"},
	{"CLUSTERDOWN", bridge.Transient, "clusterdown", "the cluster does not serve all slots: check cluster info"},
	{"max number of clients", bridge.Transient, "maxclients",
		"the server is at its maxclients: raise it, or close other clients"},
	{"all sentinels specified in configuration are unreachable", bridge.Transient, "network",
		"check that REDIS_URL lists the sentinels and that they run"},
}

// explain turns a client error into a Fault with the server's address, severity
// and hint. It never contains a password: go-redis's errors do not.
func (c *Client) explain(err error) error {
	located := fmt.Errorf("redis at %s: %w", c.where, err)
	if f, ok := errors.AsType[*bridge.Fault](err); ok { // there is no password to log in with
		return &bridge.Fault{Class: f.Class, Code: f.Code, Hint: f.Hint, Err: located}
	}
	message := err.Error()
	if strings.Contains(message, "WRONGTYPE") || errors.Is(err, errLargeReply) {
		return foreign("a key of the stream", err)
	}
	if _, cluster := c.rdb.(*redis.ClusterClient); cluster && strings.Contains(message, "MOVED ") {
		return &bridge.Fault{Code: "moved", Err: located,
			Hint: "the nodes of the cluster send the client to each other: wait for the fail-over, or check cluster nodes"}
	}
	for _, s := range symptoms {
		if !strings.Contains(message, s.word) {
			continue
		}
		if slices.Contains([]string{"readonly", "oom", "misconf", "noreplicas"}, s.code) {
			located = fmt.Errorf("redis at %s: %w: %w", c.where, ErrWrites, err)
		}
		f := &bridge.Fault{Class: s.class, Code: s.code, Hint: s.hint, Err: located}
		if s.class == bridge.Permanent {
			f.Reason = bridge.ReasonConfig
		}
		return f
	}
	if f := untrusted(err); f != nil {
		f.Err = located
		return f
	}
	var answered redis.Error
	var network net.Error
	switch {
	case errors.As(err, &answered):
		return &bridge.Fault{Code: "error", Err: located}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		hint := "check the address in REDIS_URL and the load of the server; REDIS_TIMEOUT is the longest wait"
		if c.secure { // a server without TLS waits for more
			hint += "; if the server does not use TLS, use redis:// in REDIS_URL"
		}
		located = fmt.Errorf("redis at %s: no answer within %s: %w", c.where, c.timeout, err)
		return &bridge.Fault{Code: "timeout", Hint: hint, Err: located}
	}
	if isClosed(err) {
		scheme := "if the server uses TLS, rediss:// in REDIS_URL"
		if c.secure {
			scheme = "if the server does not use TLS, redis:// in REDIS_URL"
		}
		return &bridge.Fault{
			Code: "closed",
			Hint: "check that Redis runs at the address in REDIS_URL, its protected-mode (set a password) " +
				"and maxclients; use " + scheme,
			Err: fmt.Errorf("redis at %s: Redis closed the connection: %w", c.where, err),
		}
	}
	return &bridge.Fault{Code: "network", Hint: "check that Redis runs at the address in REDIS_URL", Err: located}
}

// isClosed reports whether the server closed the connection. go-redis drops an error
// that the server wrote before.
func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// untrusted returns the fault of a TLS error, else nil.
func untrusted(err error) *bridge.Fault {
	var (
		record    tls.RecordHeaderError
		cert      *tls.CertificateVerificationError
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
	)
	f := &bridge.Fault{Class: bridge.Permanent, Code: "tls", Reason: bridge.ReasonConfig}
	if file, ok := errors.AsType[*bridge.TLSFileError](err); ok { // which may be half replaced
		return &bridge.Fault{Code: "tls", Hint: "check the file of " + file.Variable}
	}
	switch {
	case errors.As(err, &record):
		f.Hint = "the server does not use TLS at this address: use redis:// or the TLS port"
	case errors.As(err, &authority):
		f.Hint = "set REDIS_TLS_CA (or REDIS_TLS_CA_FILE) to the PEM certificate that signed the server's"
	case errors.As(err, &name), errors.As(err, &cert):
		f.Hint = "the server's certificate is not valid for the host in REDIS_URL"
	case bridge.IsTLSAlert(err):
		f.Hint = "the server rejected the client's side of TLS: check REDIS_TLS_CERT and REDIS_TLS_KEY"
	default:
		return nil
	}
	return f
}

// foreign is the error of a key, or after a space a field of it, that holds a
// foreign value.
func foreign(key string, cause error) error {
	if !isForeign(cause) {
		cause = fmt.Errorf("%w: %w", bridge.ErrForeign, cause)
	}
	return &bridge.Fault{
		Class: bridge.Permanent, Code: "foreign", Reason: bridge.ReasonCheckpoint, Hint: foreignHint(key),
		Err: fmt.Errorf("%s: %w", key, cause),
	}
}

// foreignHint is the remedy for a foreign value. Redis holds a copy: a deleted
// checkpoint is restored from the checkpoint topic.
func foreignHint(key string) string {
	const others = "nothing was overwritten. If another program uses the key, set CURSOR_PREFIX; " +
		"if a newer exportbridge wrote it, upgrade; "
	name, field, isField := strings.Cut(key, " ")
	switch {
	case !strings.Contains(key, ":{"):
		return others + "if it was damaged, remove it with redis-cli DEL"
	case isField:
		return others + fmt.Sprintf("if it was damaged: redis-cli HDEL '%s' '%s'", name, field)
	case strings.HasSuffix(key, ":checkpoint"):
		return others + fmt.Sprintf("if it was damaged: redis-cli DEL '%s', "+
			"and the bridge writes it again from the checkpoint topic", key)
	}
	return others + fmt.Sprintf("if it was damaged: redis-cli DEL '%s'", key)
}

func isForeign(err error) bool { return errors.Is(err, bridge.ErrForeign) }
