package door

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync/atomic"
	"time"

	"exportbridge/bridge"
)

// rereadInterval is how often the files of a certificate are read again. An unusable pair
// is reported at the second reading, because the first may fall between the writes of the
// two files.
const rereadInterval = 5 * time.Second

// Pair is a server's certificate and key in PEM. The certificates that sign it follow it.
type Pair struct {
	Cert string
	Key  bridge.Secret
	// CertFile and KeyFile are the files that Cert and Key were read from. They are read
	// again, unless they are empty.
	CertFile, KeyFile string
}

// Parse returns the certificate, or why it does not fit the key.
func (p Pair) Parse() (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair([]byte(p.Cert), []byte(p.Key.Reveal()))
	return &pair, err
}

// read returns the pair with the present content of its files.
func (p Pair) read() (Pair, error) {
	var errs [2]error
	if p.CertFile != "" {
		p.Cert, errs[0] = bridge.ReadSecretFile(p.CertFile)
	}
	if p.KeyFile != "" {
		var key string
		key, errs[1] = bridge.ReadSecretFile(p.KeyFile)
		p.Key = bridge.Secret(key)
	}
	return p, errors.Join(errs[:]...)
}

// Certificate is the certificate of a server. It is reloaded from its files while Watch
// runs.
type Certificate struct {
	pair    Pair // the pair in use; owned by Watch
	log     *slog.Logger
	current atomic.Pointer[tls.Certificate]
}

// NewCertificate returns the certificate of a pair.
func NewCertificate(p Pair, log *slog.Logger) (*Certificate, error) {
	parsed, err := p.Parse()
	if err != nil {
		return nil, fmt.Errorf("HTTP_TLS_CERT with HTTP_TLS_KEY: %w", err)
	}
	c := &Certificate{pair: p, log: log}
	c.current.Store(parsed)
	return c, nil
}

// Config returns TLS 1.2 or later with the certificate in use. If clients is not nil, each
// client must have a certificate signed by one of them. HTTP/2 is not offered: the limits
// of a server count connections, and an HTTP/2 connection carries many requests.
func (c *Certificate) Config(clients *x509.CertPool) *tls.Config {
	conf := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
	}
	if clients != nil {
		conf.ClientCAs, conf.ClientAuth = clients, tls.RequireAndVerifyClientCert
	}
	return conf
}

// Watch reads the files again until ctx ends. An unusable pair is reported once, and the
// old pair stays in use.
func (c *Certificate) Watch(ctx context.Context) {
	tick := time.NewTicker(rereadInterval)
	defer tick.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := c.reread(); err == nil {
			failures = 0
		} else if failures++; failures == 2 {
			c.log.Error("HTTP_TLS_CERT unusable; the old certificate stays in use", "error", err.Error(),
				"hint", "correct HTTP_TLS_CERT_FILE and HTTP_TLS_KEY_FILE; both are read again")
		}
	}
}

func (c *Certificate) reread() error {
	next, err := c.pair.read()
	if err != nil || next == c.pair {
		return err
	}
	parsed, err := next.Parse()
	if err != nil {
		return err
	}
	c.pair = next
	if reflect.DeepEqual(c.current.Swap(parsed).Certificate, parsed.Certificate) {
		return nil // the same pair, apart from white space or the key's form
	}
	c.log.Info("certificate replaced", "until", parsed.Leaf.NotAfter.UTC().Format(time.RFC3339))
	return nil
}
