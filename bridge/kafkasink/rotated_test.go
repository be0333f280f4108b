package kafkasink_test

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkaclient"
)

// TestCertificatesAreReadAgain: new connections of an open client use the CA, the certificate
// and the key that the files have by then, and a file that does not fit passes.
func TestCertificatesAreReadAgain(t *testing.T) {
	t.Parallel()
	var server atomic.Pointer[tls.Config]
	cluster := servers.EmbeddedKafka(t, kfake.TLS(&tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return server.Load(), nil
	}}))
	dir := t.TempDir()
	cfg := kafkaclient.DefaultConfig()
	cfg.Brokers, cfg.TLSEnabled = cluster.ListenAddrs(), true
	cfg.TLSCAFile, cfg.TLSCertFile, cfg.TLSKeyFile = filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	write := func(path, text string) {
		t.Helper()
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	}
	rotate := func(a *authority) {
		cert, key := a.issue("client", nil)
		write(cfg.TLSCAFile, a.pem)
		write(cfg.TLSCertFile, cert)
		write(cfg.TLSKeyFile, key)
		cfg.TLSCA, cfg.TLSCert, cfg.TLSKey = a.pem, cert, bridge.Secret(key)
	}
	first, second := newAuthority(t), newAuthority(t)
	rotate(first)
	server.Store(first.serverTLS(net.IPv4(127, 0, 0, 1), true))
	client := must.Get(cfg.Open())(t)
	defer client.Close()
	ask := func() error {
		cluster.Break()() // so that there is a new connection
		ctx := kafkatest.Context(t)
		_, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
		return err
	}
	must.Do(t, ask())
	server.Store(second.serverTLS(net.IPv4(127, 0, 0, 1), true))
	if f := client.Explain(ask(), ""); !strings.Contains(f.Hint, "KAFKA_TLS_CA") {
		t.Errorf("before the files changed: %v, hint %q", f, f.Hint)
	}
	rotate(second)
	must.Do(t, ask())
	write(cfg.TLSKeyFile, "half")
	f := client.Explain(ask(), "")
	if kafkatest.AsFault(t, f, bridge.Transient, ""); f.Code != "tls" || !strings.Contains(f.Error(), "KAFKA_TLS_CERT") ||
		!strings.Contains(f.Hint, "KAFKA_TLS_CERT") {
		t.Errorf("half a key: %v, hint %q", f, f.Hint)
	}
	must.Do(t, os.Remove(cfg.TLSCAFile))
	f = client.Explain(ask(), "")
	if kafkatest.AsFault(t, f, bridge.Transient, ""); !strings.Contains(f.Error(), "KAFKA_TLS_CA_FILE") || !strings.Contains(f.Hint, "KAFKA_TLS_CA_FILE") {
		t.Errorf("no CA: %v, hint %q", f, f.Hint)
	}
}
