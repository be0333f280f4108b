package kafkaclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
)

// Advise sets the advice of a Fault, and its hint if the program has a text for
// it.
func (c *Config) Advise(f *bridge.Fault, advice bridge.Hint) *bridge.Fault {
	f.HintCode, f.Hint = advice, c.Hints.Of(advice)
	return f
}

// Fault classifies an error of Kafka for the engine. topic is the topic
// concerned, or empty.
func (c *Config) Fault(err error, topic string) *bridge.Fault {
	if f, ok := errors.AsType[*bridge.Fault](err); ok {
		return f
	}
	f := &bridge.Fault{Class: bridge.Transient, Code: "error", Err: err}
	if file, ok := errors.AsType[*bridge.TLSFileError](err); ok { // which may be half replaced
		f.Code, f.Hint = "tls", "check the file of "+file.Variable
		return f
	}
	if login, ok := errors.AsType[*loginError](err); ok {
		login.explain(f)
		return f
	}
	if c.answerFault(f, topic) || tlsFault(f) || protocolFault(f) {
		return f
	}
	if _, ok := errors.AsType[*hangUpError](err); ok && c.SASLMechanism != "" {
		f.Class, f.Reason, f.Code = bridge.Permanent, bridge.ReasonAuth, "sasl"
		f.Hint = c.loginHint() + "; if the listener does not use SASL, unset KAFKA_SASL_MECHANISM"
		return f
	}
	f.Code, f.Hint = "network", c.networkHint(err)
	if errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		f.Code = "timeout"
		if c.TLSEnabled {
			f.Hint += "; check whether the listener uses TLS"
		}
	}
	return f
}

// ReadFault is Fault for an error of reading a topic: its hint grants reading.
func (c *Config) ReadFault(err error, topic string) *bridge.Fault {
	f := c.Fault(err, topic)
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		f.Hint = c.GrantRead(topic)
	}
	return f
}

// answerFault classifies a broker's error response. It reports false for other
// errors.
func (c *Config) answerFault(f *bridge.Fault, topic string) bool {
	answer, ok := errors.AsType[*kerr.Error](f.Err)
	if !ok {
		return false
	}
	f.Code = strings.ToLower(answer.Message)
	block := func(reason bridge.Reason, hint string) {
		f.Class, f.Reason, f.Hint = bridge.Permanent, reason, hint
	}
	advise := func(reason bridge.Reason, advice bridge.Hint) {
		block(reason, c.Hints.Of(advice))
		f.HintCode = advice
	}
	switch answer {
	case kerr.TopicAuthorizationFailed:
		block(bridge.ReasonAuth, c.GrantWrite(topic))
	case kerr.TransactionalIDAuthorizationFailed, kerr.GroupAuthorizationFailed:
		advise(bridge.ReasonAuth, bridge.HintMissingGrants)
	case kerr.ClusterAuthorizationFailed:
		// Brokers before 2.8 ask for it from every idempotent producer.
		block(bridge.ReasonAuth, c.Grant("--operation IdempotentWrite --cluster"))
	case kerr.SaslAuthenticationFailed:
		if token, ok := errors.AsType[*refusedToken](f.Err); ok && token.again {
			f.Hint = "the bridge logs in again, with a new token"
			return true
		}
		block(bridge.ReasonAuth, c.loginHint())
	case kerr.IllegalSaslState:
		block(bridge.ReasonConfig, "the listener does not use SASL: unset KAFKA_SASL_MECHANISM, or use the SASL port "+
			"in KAFKA_BROKERS")
	case kerr.UnsupportedSaslMechanism:
		block(bridge.ReasonAuth, "the listener does not offer KAFKA_SASL_MECHANISM="+c.SASLMechanism)
	case kerr.UnknownTopicOrPartition, kerr.UnknownTopicID:
		advise(bridge.ReasonTopic, bridge.HintTopicMissing)
	case kerr.InvalidTopicException:
		block(bridge.ReasonTopic, "check KAFKA_TOPIC and KAFKA_DLQ_TOPIC")
	case kerr.InvalidReplicationFactor, kerr.InvalidPartitions, kerr.InvalidConfig, kerr.PolicyViolation:
		block(bridge.ReasonConfig, "check KAFKA_PARTITIONS, KAFKA_REPLICATION and KAFKA_RETENTION against the cluster")
	case kerr.UnsupportedVersion:
		block(bridge.ReasonConfig, "the brokers are too old: Kafka 2.1 or later is required")
	case kerr.InvalidTimestamp:
		f.Hint = "the clocks of this host and the brokers differ by more than message.timestamp.after.max.ms or " +
			"message.timestamp.before.max.ms"
	case kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend:
		f.Hint = "fewer replicas are in sync than min.insync.replicas: are brokers down?"
	}
	return true
}

// tlsFault classifies errors of the TLS handshake, which are permanent.
func tlsFault(f *bridge.Fault) bool {
	block := func(hint string) bool {
		f.Class, f.Reason, f.Code, f.Hint = bridge.Permanent, bridge.ReasonConfig, "tls", hint
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](f.Err); ok {
		return block("unknown certificate authority: set KAFKA_TLS_CA_FILE to the CA of the broker's certificate")
	}
	if _, ok := errors.AsType[x509.HostnameError](f.Err); ok {
		return block("the broker's certificate is for another host name: use that name in KAFKA_BROKERS and " +
			"advertised.listeners")
	}
	if _, ok := errors.AsType[x509.CertificateInvalidError](f.Err); ok {
		return block("renew the broker's certificate, or check this machine's clock")
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](f.Err); ok {
		return block("the listener does not use TLS: set KAFKA_TLS_ENABLED=false, or use the TLS port in KAFKA_BROKERS")
	}
	if bridge.IsTLSAlert(f.Err) {
		return block("the broker rejected the client's side of TLS: check KAFKA_TLS_CERT and KAFKA_TLS_KEY")
	}
	return false
}

// protocolFault classifies answers in another protocol than Kafka's, which are
// permanent. kgo tells them by its text only.
func protocolFault(f *bridge.Fault) bool {
	block := func(code, hint string) bool {
		f.Class, f.Reason, f.Code, f.Hint = bridge.Permanent, bridge.ReasonConfig, code, hint
		return true
	}
	switch text := f.Err.Error(); {
	case strings.Contains(text, "tls alert record"):
		return block("tls", "the listener uses TLS: set KAFKA_TLS_ENABLED=true, or use the plain port in KAFKA_BROKERS")
	case strings.Contains(text, "beginning of an HTTP response"):
		return block("protocol", "an HTTP server answers at this address: name a listener of Kafka in KAFKA_BROKERS")
	}
	return false
}

// closedHint is the hint about a listener that closes the connection before it
// serves a request. It asks only for settings that differ from the present ones.
func (c *Config) closedHint() string {
	tlsHint := "if the listener uses TLS, set KAFKA_TLS_ENABLED=true"
	saslHint := "if it requires SASL, set KAFKA_SASL_MECHANISM"
	if c.TLSEnabled {
		tlsHint = "if the listener does not use TLS, set KAFKA_TLS_ENABLED=false"
	}
	if c.SASLMechanism != "" {
		saslHint = "if it does not use SASL, unset KAFKA_SASL_MECHANISM; otherwise " + c.loginHint()
	}
	return tlsHint + "; " + saslHint
}

func (c *Config) networkHint(err error) string {
	advertised, ok := errors.AsType[*advertisedError](err)
	if ok {
		return fmt.Sprintf("%s is the broker's advertised address: check that the broker is up and that "+
			"advertised.listeners is reachable from this host", advertised.addr)
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return "the host name does not resolve: check KAFKA_BROKERS"
	}
	if _, ok := errors.AsType[*kgo.ErrFirstReadEOF](err); ok {
		return c.closedHint()
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "check that Kafka is running, and KAFKA_BROKERS"
	}
	hint := "check KAFKA_BROKERS and the network path to the brokers"
	if errors.Is(err, io.EOF) && c.SASLMechanism == "" { // after the versions, which need no login
		hint += "; if the listener requires SASL, set KAFKA_SASL_MECHANISM"
	}
	return hint
}

func isTimeout(err error) bool {
	n, ok := errors.AsType[net.Error](err)
	return ok && n.Timeout()
}

// IsPermanent reports whether retrying is useless.
func IsPermanent(err error) bool {
	return bridge.FaultOf(err).Class == bridge.Permanent
}

// IsAnswer reports whether the error is a broker's error response.
func IsAnswer(err error) bool {
	_, ok := errors.AsType[*kerr.Error](err)
	return ok
}

// IsMissing reports whether a topic or partition does not exist.
func IsMissing(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition)
}
