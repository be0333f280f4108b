package cursorstore_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cursorstore"
)

// TestFilesAreReadAgain: new connections use the CA, the client certificate, its key and the
// password that the files have by then.
func TestFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	var server atomic.Pointer[tls.Config]
	m := miniredis.NewMiniRedis()
	must.Do(t, m.StartTLS(&tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return server.Load(), nil
	}}))
	t.Cleanup(m.Close)
	dir := t.TempDir()
	cfg := valid()
	cfg.URL, cfg.Timeout = cursorstore.URL("rediss://localhost:"+m.Port()), 5*time.Second
	cfg.TLSCAFile, cfg.TLSCertFile, cfg.TLSKeyFile = filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	cfg.PasswordFile = filepath.Join(dir, "password")
	write := func(path, text string) {
		t.Helper()
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	}
	// rotate gives server and client a certificate that both trust, and a password.
	rotate := func(password string, files bool) {
		t.Helper()
		ca, certFile, keyFile := certificate(t)
		pair := must.Get(tls.LoadX509KeyPair(certFile, keyFile))(t)
		clients := x509.NewCertPool()
		clients.AppendCertsFromPEM([]byte(ca))
		server.Store(&tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients})
		m.RequireAuth(password)
		if !files {
			return
		}
		key := must.Get(os.ReadFile(keyFile))(t)
		write(cfg.TLSCAFile, ca)
		write(cfg.TLSCertFile, ca)
		write(cfg.TLSKeyFile, string(key))
		write(cfg.PasswordFile, password+"\n")
		if cfg.TLSCA == "" { // as at the start, and never again
			cfg.TLSCA, cfg.TLSCert, cfg.TLSKey, cfg.Password = ca, ca, bridge.Secret(key), bridge.Secret(password)
		}
	}
	load := func(cfg cursorstore.Config) error {
		_, err := open(t, cfg).Stream(stream).Load(t.Context())
		if errors.Is(err, bridge.ErrNoCheckpoint) {
			return nil
		}
		return err
	}
	rotate("first", true)
	must.Do(t, load(cfg))
	without := cfg
	without.TLSCert, without.TLSKey = "", ""
	wantFault(t, load(without), bridge.Permanent, "REDIS_TLS_CERT")
	rotate("second", false)
	wantFault(t, load(cfg), bridge.Permanent, "REDIS_TLS_CA")
	rotate("third", true)
	must.Do(t, load(cfg))
	write(cfg.PasswordFile, "wr0ng")
	wantFault(t, load(cfg), bridge.Permanent, "REDIS_PASSWORD")
	write(cfg.PasswordFile, "\n") // while it is replaced
	wantFault(t, load(cfg), bridge.Transient, "REDIS_PASSWORD_FILE")
	for _, file := range []string{cfg.TLSKeyFile, cfg.PasswordFile} {
		must.Do(t, os.Remove(file))
	}
	must.Be(t, load(cfg), nil, "REDIS_TLS_KEY_FILE")
	cfg.TLSKeyFile, cfg.TLSCertFile, cfg.TLSCert, cfg.TLSKey = "", "", "", ""
	server.Load().ClientAuth = tls.NoClientCert
	wantFault(t, load(cfg), bridge.Transient, "REDIS_PASSWORD_FILE")
}
