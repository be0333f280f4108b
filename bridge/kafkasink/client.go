package kafkasink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"github.com/twmb/franz-go/plugin/kslog"
)

// The SASL mechanisms, as Kafka names them.
const (
	saslPlain    = "PLAIN"
	saslScram256 = "SCRAM-SHA-256"
	saslScram512 = "SCRAM-SHA-512"
	saslOAuth    = "OAUTHBEARER"
)

// Time-outs measured to ride through the loss of one of three brokers, and
// short enough to name a dead broker within ten seconds.
const (
	dialTimeout     = 2 * time.Second
	requestOverhead = 3 * time.Second
	retryTimeout    = 10 * time.Second
	// transactionRetry outlasts the stalls of a limping cluster.
	transactionRetry = 20 * time.Second
	produceTimeout   = 5 * time.Second
	metadataMinAge   = 250 * time.Millisecond
	// unknownTopicTries times metadataMinAge is how long a topic may be
	// unknown to the brokers before its records fail.
	unknownTopicTries = 20
)

// maxBatch is the largest record batch that is sent. A whole request must stay
// below the brokers' default limit of 100 MiB.
const maxBatch = 64 << 20

// newClient returns a client that has not connected yet. Every use of Kafka
// goes through it, so that all have the same address, TLS and credentials.
func (s *Sink) newClient(w *watch, extra ...kgo.Opt) (*kgo.Client, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(s.cfg.Brokers...),
		kgo.ClientID(s.cfg.ClientID),
		kgo.Rack(s.cfg.Rack),
		kgo.DialTimeout(dialTimeout),
		kgo.RequestTimeoutOverhead(requestOverhead),
		kgo.RetryTimeout(retryTimeout),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.DisableClientMetrics(), // its last push would hold up Close
		kgo.WithHooks(w),
	}
	if s.cfg.TLSEnabled {
		conf, err := s.tlsConfig()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(conf))
	}
	if s.cfg.SASLMechanism != "" {
		opts = append(opts, kgo.SASL(s.mechanism()))
	}
	if s.cfg.Log != nil {
		opts = append(opts, kgo.WithLogger(quiet{kslog.New(s.cfg.Log)}))
	}
	client, err := kgo.NewClient(append(opts, extra...)...)
	if err != nil {
		return nil, fmt.Errorf("make Kafka client: %w", err)
	}
	return client, nil
}

// producerOpts are the options of a session's client. The record limits of
// kgo stay unset: its delivery time-out counts from the event time, and a
// record that is given up on leaves doubt.
func (s *Sink) producerOpts(x *session) []kgo.Opt {
	return []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(0), // whole pages arrive at once
		kgo.ProducerBatchCompression(codec(s.cfg.Compression)),
		kgo.ProducerBatchMaxBytesFn(x.batchLimit),
		kgo.MaxBufferedRecords(1 << 30), // Produce must never block: only Publish's own wait ends with ctx
		kgo.ProduceRequestTimeout(produceTimeout),
		kgo.UnknownTopicRetries(unknownTopicTries),
		kgo.RecordPartitioner(newPartitioner(s.cfg.CheckpointTopic, x)),
		kgo.ProducerOnDataLossDetected(s.noteLoss),
	}
}

// transactionOpts are the options of the client that writes checkpoints.
func (s *Sink) transactionOpts(x *session) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.TransactionalID(s.cfg.transactionalID()),
		kgo.TransactionTimeout(s.cfg.TransactionTimeout),
		kgo.RetryTimeoutFn(x.retryFor),
	}
	if s.patient {
		opts = append(opts, kgo.RequestTimeoutOverhead(transactionRetry))
	}
	return opts
}

// retryFor is how long a request is sent again after network errors. The end
// of a transaction that is sent twice leaves a copy on the wire, which could
// end the next transaction of brokers that do not tell them apart.
func (x *session) retryFor(key int16) time.Duration {
	switch kmsg.Key(key) {
	case kmsg.EndTxn:
		if !x.strict() {
			return time.Nanosecond // 0 would be for ever
		}
		return transactionRetry
	case kmsg.InitProducerID, kmsg.AddPartitionsToTxn:
		return transactionRetry
	default:
		return retryTimeout
	}
}

func codec(name string) kgo.CompressionCodec {
	switch name {
	case "gzip":
		return kgo.GzipCompression()
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	default:
		return kgo.NoCompression()
	}
}

func (s *Sink) tlsConfig() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: s.cfg.TLSSkipVerify} //nolint:gosec // asked for by KAFKA_TLS_SKIP_VERIFY
	if s.cfg.TLSCA != "" {
		conf.RootCAs = x509.NewCertPool()
		conf.RootCAs.AppendCertsFromPEM([]byte(s.cfg.TLSCA))
	}
	if s.cfg.TLSCert != "" {
		pair, err := tls.X509KeyPair([]byte(s.cfg.TLSCert), []byte(s.cfg.TLSKey.Reveal()))
		if err != nil {
			return nil, fmt.Errorf("read KAFKA_TLS_CERT and KAFKA_TLS_KEY: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}

func (s *Sink) mechanism() sasl.Mechanism {
	scramAuth := func(context.Context) (scram.Auth, error) {
		pass, err := s.password()
		return scram.Auth{User: s.cfg.SASLUsername, Pass: pass}, err
	}
	switch s.cfg.SASLMechanism {
	case saslScram256:
		return scram.Sha256(scramAuth)
	case saslScram512:
		return scram.Sha512(scramAuth)
	case saslOAuth:
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := s.password()
			return oauth.Auth{Token: token}, err
		})
	default:
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			pass, err := s.password()
			return plain.Auth{User: s.cfg.SASLUsername, Pass: pass}, err
		})
	}
}

// password returns the password as it is now: a rotated one is picked up with
// the next connection.
func (s *Sink) password() (string, error) {
	if s.cfg.SASLPasswordFile == "" {
		return s.cfg.SASLPassword.Reveal(), nil
	}
	b, err := os.ReadFile(s.cfg.SASLPasswordFile)
	if err != nil {
		return "", fmt.Errorf("read KAFKA_SASL_PASSWORD_FILE: %w", err)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

// quiet makes all that the Kafka client says debug messages. It complains of
// every partition and group at every try; Config.Report says once what is wrong.
type quiet struct{ *kslog.Logger }

func (q quiet) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	if level != kgo.LogLevelDebug && level != kgo.LogLevelNone {
		level = kgo.LogLevelDebug
	}
	q.Logger.Log(level, msg, keyvals...)
}
