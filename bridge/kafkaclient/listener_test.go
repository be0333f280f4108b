package kafkaclient_test

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkaclient"
)

// withoutSASL is a broker that answers a SASL handshake as a plaintext listener of
// Apache Kafka does.
func withoutSASL(t *testing.T) string {
	t.Helper()
	cluster := servers.EmbeddedKafka(t)
	cluster.ControlKey(int16(kmsg.SASLHandshake), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		answer := r.ResponseKind().(*kmsg.SASLHandshakeResponse)
		answer.ErrorCode = kerr.IllegalSaslState.Code
		return answer, nil, true
	})
	return cluster.ListenAddrs()[0]
}

// requiringSASL is a broker that answers a client without SASL as a SASL listener of Apache
// Kafka does: it tells the versions, and closes the connection at the next request.
func requiringSASL(t *testing.T) string {
	t.Helper()
	cluster := servers.EmbeddedKafka(t)
	cluster.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		return nil, io.EOF, true
	})
	return cluster.ListenAddrs()[0]
}

// TestListenerOfAnotherKind: the hint names the setting to change, never one that
// has the asked-for value already.
func TestListenerOfAnotherKind(t *testing.T) {
	t.Parallel()
	const tlsAlert = "\x15\x03\x03\x00\x02\x02\x46"
	login := func(c *kafkaclient.Config) {
		c.SASLMechanism, c.SASLUsername, c.SASLPassword = "SCRAM-SHA-256", "ann", "key"
	}
	encrypt := func(c *kafkaclient.Config) { c.TLSEnabled = true }
	for name, test := range map[string]struct {
		answer  func(net.Conn)
		set     []func(*kafkaclient.Config)
		reason  bridge.Reason
		has     string
		missing string
	}{
		"closed": {servers.Say(""), nil, "",
			"set KAFKA_TLS_ENABLED=true; if it requires SASL, set KAFKA_SASL_MECHANISM", "unset"},
		"TLS, closed": {servers.Say(""), []func(*kafkaclient.Config){encrypt}, "", "set KAFKA_TLS_ENABLED=false",
			"=true"},
		"TLS and SASL, closed": {servers.Say(""), []func(*kafkaclient.Config){encrypt, login}, "",
			"set KAFKA_TLS_ENABLED=false; if it does not use SASL, unset KAFKA_SASL_MECHANISM", "set KAFKA_SASL_MECHANISM="},
		"SASL, closed": {servers.Say(""), []func(*kafkaclient.Config){login}, "",
			"set KAFKA_TLS_ENABLED=true; if it does not use SASL, unset KAFKA_SASL_MECHANISM", "=false"},
		"plain client, TLS": {servers.Say(tlsAlert), nil, bridge.ReasonConfig,
			"the listener uses TLS: set KAFKA_TLS_ENABLED=true", "SASL"},
		"SASL without TLS": {servers.Say(tlsAlert), []func(*kafkaclient.Config){login}, bridge.ReasonConfig,
			"the listener uses TLS: set KAFKA_TLS_ENABLED=true", "SASL"},
		"TLS, HTTP": {servers.Say("HTTP/1.1 400 Bad Request\r\n\r\n"), []func(*kafkaclient.Config){encrypt},
			bridge.ReasonConfig, "does not use TLS: set KAFKA_TLS_ENABLED=false", "SASL"},
		"HTTP": {servers.Say("HTTP/1.1 400 Bad Request\r\n\r\n"), nil, bridge.ReasonConfig, "HTTP server",
			"TLS"},
		"SASL, hangs up": {servers.Say(""), []func(*kafkaclient.Config){login,
			func(c *kafkaclient.Config) { c.Brokers = servers.EmbeddedKafka(t).ListenAddrs() }}, bridge.ReasonAuth,
			"check KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD; if the listener does not use SASL, unset KAFKA_SASL_MECHANISM",
			"TLS"},
		"SASL listener": {servers.Say(""), []func(*kafkaclient.Config){
			func(c *kafkaclient.Config) { c.Brokers = []string{requiringSASL(t)} }}, "",
			"network path to the brokers; if the listener requires SASL, set KAFKA_SASL_MECHANISM", "TLS"},
		"SASL, plain listener": {servers.Say(""), []func(*kafkaclient.Config){login,
			func(c *kafkaclient.Config) { c.Brokers = []string{withoutSASL(t)} }}, bridge.ReasonConfig,
			"the listener does not use SASL: unset KAFKA_SASL_MECHANISM", "PASSWORD"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := kafkaclient.DefaultConfig()
			cfg.Brokers = []string{servers.Answering(t, test.answer)}
			for _, set := range test.set {
				set(&cfg)
			}
			client, err := cfg.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			err = client.Ping(t.Context())
			if err == nil {
				t.Fatal("the ping succeeded")
			}
			f := client.Explain(err, "")
			if f.Reason != test.reason || !strings.Contains(f.Hint, test.has) || strings.Contains(f.Hint, test.missing) {
				t.Errorf("%v: reason %q, hint %q; want %q, a hint with %q, without %q", f, f.Reason, f.Hint, test.reason,
					test.has, test.missing)
			}
		})
	}
}
