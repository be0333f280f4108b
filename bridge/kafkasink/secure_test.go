package kafkasink_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkaadmin"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
)

// authority signs certificates for one test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.key = a.newKey()
	a.pem = a.sign(a.cert, &a.key.PublicKey)
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	return must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(a.t)
}

func (a *authority) sign(c *x509.Certificate, public *ecdsa.PublicKey) string {
	der := must.Get(x509.CreateCertificate(rand.Reader, c, a.cert, public, a.key))(a.t)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// issue returns a certificate and its key in PEM.
func (a *authority) issue(name string, ip net.IP) (cert, key string) {
	private := a.newKey()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip != nil {
		c.IPAddresses = []net.IP{ip}
	}
	der := must.Get(x509.MarshalPKCS8PrivateKey(private))(a.t)
	return a.sign(c, &private.PublicKey), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// serverTLS is a broker's side, which demands certificates of clients if asked.
func (a *authority) serverTLS(ip net.IP, mutual bool) *tls.Config {
	cert, key := a.issue("broker", ip)
	pair := must.Get(tls.X509KeyPair([]byte(cert), []byte(key)))(a.t)
	conf := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if mutual {
		conf.ClientAuth = tls.RequireAndVerifyClientCert
		conf.ClientCAs = x509.NewCertPool()
		conf.ClientCAs.AddCert(a.parsed())
	}
	return conf
}

func (a *authority) parsed() *x509.Certificate {
	block, _ := pem.Decode([]byte(a.pem))
	return must.Get(x509.ParseCertificate(block.Bytes))(a.t)
}

func TestTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	other := newAuthority(t)
	cert, key := a.issue("client", nil)
	strange, strangeKey := other.issue("client", nil)
	local := net.IPv4(127, 0, 0, 1)
	trust := func(c *kafkastream.Config) { c.TLSEnabled, c.TLSCA = true, a.pem }
	for name, c := range map[string]struct {
		server *tls.Config
		client func(*kafkastream.Config)
		hint   string // empty: it works
	}{
		"trusted": {a.serverTLS(local, false), trust, ""},
		"not verified": {a.serverTLS(local, false),
			func(c *kafkastream.Config) { c.TLSEnabled, c.TLSSkipVerify = true, true }, ""},
		"mutual": {a.serverTLS(local, true),
			func(c *kafkastream.Config) { trust(c); c.TLSCert, c.TLSKey = cert, bridge.Secret(key) }, ""},
		"unknown authority": {a.serverTLS(local, false),
			func(c *kafkastream.Config) { c.TLSEnabled, c.TLSCA = true, other.pem }, "KAFKA_TLS_CA"},
		"another name":   {a.serverTLS(net.IPv4(127, 0, 0, 9), false), trust, "another host name"},
		"no certificate": {a.serverTLS(local, true), trust, "KAFKA_TLS_CERT"},
		"strange certificate": {a.serverTLS(local, true), func(c *kafkastream.Config) {
			trust(c)
			c.TLSCert, c.TLSKey = strange, bridge.Secret(strangeKey)
		}, "KAFKA_TLS_CERT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := kafkatest.Fake(t, kfake.TLS(c.server))
			cfg := config(t, cluster.ListenAddrs(), c.client)
			s := open(t, cfg)
			err := tryRecover(t, s)
			if c.hint == "" {
				must.Be(t, err, bridge.ErrNoCheckpoint)
				publish(t, s, page(event("e", "u")))
				return
			}
			f := kafkatest.AsFault(t, err, bridge.Permanent, bridge.ReasonConfig)
			if !strings.Contains(f.Hint, c.hint) || !strings.Contains(f.Error(), cluster.ListenAddrs()[0]) {
				t.Errorf("fault %v, hint %q: want the broker and %q", f, f.Hint, c.hint)
			}
			if found := cfg.Needs().Check(t.Context()); found[0].Level != kafkaadmin.LevelFail || found[0].Hint != f.Hint {
				t.Errorf("check found %+v, want the same hint", found)
			}
		})
	}
}

// recovering calls Recover until stop is called.
func recovering(t *testing.T, s *kafkasink.Sink) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Recover(ctx, nil)
		done <- err
	}()
	return func() {
		cancel()
		must.Be(t, <-done, context.Canceled)
	}
}

// TestNoTLSToTLS: without TLS on our side the broker only hangs up, which may
// be an outage too. It must be named, not blocked on.
func TestNoTLSToTLS(t *testing.T) {
	t.Parallel()
	var seen kafkatest.Reports
	cluster := kafkatest.Fake(t, kfake.TLS(newAuthority(t).serverTLS(net.IPv4(127, 0, 0, 1), false)))
	s := open(t, config(t, cluster.ListenAddrs(), reportTo(&seen)))
	stop := recovering(t, s)
	defer stop()
	err := seen.Await(t, "the broker", kafkatest.Mentions(cluster.ListenAddrs()[0]))
	kafkatest.AsFault(t, err, bridge.Transient, "")
}

// TestTLSToNoTLS: a broker without TLS takes our greeting for the start of a
// request and waits for the rest.
func TestTLSToNoTLS(t *testing.T) {
	t.Parallel()
	var seen kafkatest.Reports
	cluster := kafkatest.Fake(t)
	s := open(t, config(t, cluster.ListenAddrs(), func(c *kafkastream.Config) { c.Report, c.TLSEnabled = seen.Add, true }))
	stop := recovering(t, s)
	defer stop()
	err := seen.Await(t, "the broker", kafkatest.Mentions(cluster.ListenAddrs()[0]))
	if f := kafkatest.AsFault(t, err, bridge.Transient, ""); !strings.Contains(f.Hint, "TLS") {
		t.Errorf("hint %q does not suspect TLS", f.Hint)
	}
}

func TestSASL(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		cluster := kafkatest.Fake(t, kfake.EnableSASL(), kfake.Superuser(mechanism, "alice", "secret"))
		login := func(password string) func(*kafkastream.Config) {
			return func(c *kafkastream.Config) {
				c.SASLMechanism, c.SASLUsername, c.SASLPassword = mechanism, "alice", bridge.Secret(password)
				c.SASLInsecure = true
			}
		}
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			publish(t, recovered(t, config(t, cluster.ListenAddrs(), login("secret"))), page(event("e", "u")))
		})
		t.Run(mechanism+" refused", func(t *testing.T) {
			t.Parallel()
			err := tryRecover(t, open(t, config(t, cluster.ListenAddrs(), login("hunter2"))))
			f := kafkatest.AsFault(t, err, bridge.Permanent, bridge.ReasonAuth)
			if !strings.Contains(f.Hint, "KAFKA_SASL_PASSWORD") || !strings.Contains(f.Error(), cluster.ListenAddrs()[0]) {
				t.Errorf("fault %v, hint %q: want the broker and the variable", f, f.Hint)
			}
			if strings.Contains(f.Error()+f.Hint, "hunter2") {
				t.Errorf("fault %v shows the password", f)
			}
		})
		t.Run(mechanism+" from a file", func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "password")
			cfg := config(t, cluster.ListenAddrs(), login(""), func(c *kafkastream.Config) { c.SASLPasswordFile = file })
			s := open(t, cfg)
			f := kafkatest.AsFault(t, tryRecover(t, s), bridge.Permanent, bridge.ReasonAuth)
			if !strings.Contains(f.Hint, "KAFKA_SASL_PASSWORD_FILE") {
				t.Errorf("hint %q does not name the variable", f.Hint)
			}
			must.Do(t, os.WriteFile(file, []byte("secret\n"), 0o600))
			must.Be(t, tryRecover(t, s), bridge.ErrNoCheckpoint)
		})
	}
	t.Run("another mechanism", func(t *testing.T) {
		t.Parallel()
		cluster := kafkatest.Fake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "alice", "secret"))
		s := open(t, config(t, cluster.ListenAddrs(), func(c *kafkastream.Config) {
			c.SASLMechanism, c.SASLPassword, c.SASLInsecure = "OAUTHBEARER", "token", true
		}))
		f := kafkatest.AsFault(t, tryRecover(t, s), bridge.Permanent, bridge.ReasonAuth)
		if !strings.Contains(f.Hint, "OAUTHBEARER") {
			t.Errorf("hint %q does not name the mechanism", f.Hint)
		}
	})
}
