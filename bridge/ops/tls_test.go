package ops_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/ops"
)

// secureSite is a server with TLS, probes on an address of their own, and tokens.
type secureSite struct {
	*doorSite
	main, probes string // addresses
	roots        *x509.CertPool
	client       tls.Certificate
}

func serveSecure(t *testing.T, change func(*ops.Config)) *secureSite {
	t.Helper()
	made := must.Get(servers.WriteCertificates(t.TempDir()))(t)
	read := func(path string) string {
		text := must.Get(os.ReadFile(path))(t)
		return string(text)
	}
	s := &secureSite{roots: x509.NewCertPool()}
	s.roots.AppendCertsFromPEM([]byte(read(made.CA)))
	s.client = must.Get(tls.LoadX509KeyPair(made.ClientCert, made.ClientKey))(t)
	s.doorSite = serveDoor(t, func(cfg *ops.Config) {
		cfg.ProbeAddr = "127.0.0.1:0"
		cfg.TLSCert, cfg.TLSKey = read(made.ServerCert), bridge.Secret(read(made.ServerKey))
		if change != nil {
			change(cfg)
		}
		if cfg.TLSClientCA != "" {
			cfg.TLSClientCA = read(made.CA)
		}
	})
	s.main, s.probes = s.Addr().String(), s.ProbeAddr().String()
	return s
}

// send connects, sends a request as it is written, and returns the first line of the answer
// and the rest. With secure, it connects by TLS.
func (s *secureSite) send(t *testing.T, addr string, secure *tls.Config, request string) (first, rest string) {
	t.Helper()
	c := must.Get(net.Dial("tcp", addr))(t)
	defer c.Close()
	must.Do(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	if secure != nil {
		c = tls.Client(c, secure)
	}
	if _, err := io.WriteString(c, request); err != nil {
		return err.Error(), ""
	}
	answer, err := io.ReadAll(c)
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		t.Fatalf("still connected; answer %q", answer)
	}
	if len(answer) == 0 && err != nil {
		return err.Error(), ""
	}
	first, rest, _ = strings.Cut(string(answer), "\r\n")
	return first, rest
}

func (s *secureSite) tls() *tls.Config { return &tls.Config{RootCAs: s.roots, ServerName: "localhost"} }

func (s *secureSite) old(version uint16) *tls.Config {
	return &tls.Config{RootCAs: s.roots, ServerName: "localhost", MinVersion: version, MaxVersion: version}
}

func get(path string, header ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
		strings.Join(append(header, "", ""), "\r\n")
}

// TestTLS attacks a server with TLS and an address for probes.
func TestTLS(t *testing.T) {
	t.Parallel()
	s := serveSecure(t, nil)
	bearer := "Authorization: Bearer " + s.reader
	act := "Authorization: Bearer " + s.actor
	pause := func(headers ...string) string {
		return pausePath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + act + "\r\n" +
			strings.Join(headers, "\r\n") + "\r\n\r\n"
	}
	body := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(anyReason), anyReason)
	onlyHTTP2 := s.tls()
	onlyHTTP2.NextProtos = []string{"h2"}
	const status = "/api/v1/status"
	for _, tc := range []struct {
		name    string
		probes  bool // to the address of the probes
		tls     *tls.Config
		request string
		want    string // in the first line of the answer or the error
	}{
		{"read", false, s.tls(), get(status, bearer), "200"},
		{"probe", true, nil, get("/readyz?verbose"), "200"},
		{"metrics", true, nil, get("/metrics"), "200"},
		{"metrics with a token", false, s.tls(), get("/metrics", bearer), "200"},

		{"1 plain HTTP to the TLS port", false, nil, get(status, bearer), "400"},
		{"2 TLS 1.1", false, s.old(tls.VersionTLS11), get(status, bearer), "protocol version"},
		{"3 TLS 1.0", false, s.old(tls.VersionTLS10), get(status, bearer), "protocol version"},
		{"4 HTTP/2 only", false, onlyHTTP2, get(status, bearer), "no application protocol"},
		{"5 HTTP/2 with prior knowledge", false, s.tls(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "421"},
		{"6 upgrade to HTTP/2", true, nil,
			get("/livez", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"), "200"},
		{"7 metrics without a token", false, s.tls(), get("/metrics"), "401"},
		{"8 readiness without a token", false, s.tls(), get("/readyz?verbose"), "401"},
		{"9 liveness by its other name without a token", false, s.tls(), get("/ping"), "401"},
		{"10 the API at the probes", true, nil, get(status, bearer), "404"},
		{"11 the page at the probes", true, nil, get("/"), "404"},
		{"12 an action at the probes", true, nil, pause("Connection: close", "Content-Length: 16") + anyReason, "404"},
		{"13 the session at the probes", true, nil, get("/api/v1/session"), "404"},
		{"14 profiles at the probes", true, nil, get("/debug/pprof/"), "404"},
		{"15 dots behind a probe", true, nil, get("/livez/../api/v1/status"), "307"},
		{"16 an absolute URL at the probes", true, nil, get("https://" + s.main + status), "404"},
		{"17 CONNECT at the probes", true, nil, "CONNECT" + strings.TrimPrefix(get(s.main), "GET"), "404"},
		{"18 TLS to the probes", true, s.tls(), get("/livez"), "first record does not look like a TLS handshake"},
		{"19 DNS rebinding at the probes", true, nil,
			strings.Replace(get("/metrics"), "localhost", "evil.example", 1), "421"},
		{"20 length and chunks", false, s.tls(), pause("Content-Length: 4", "Transfer-Encoding: chunked") + body, "411"},
		{"21 two lengths", false, s.tls(), pause("Content-Length: 16", "Content-Length: 4") + anyReason, "400"},
		{"22 an unknown transfer encoding", false, s.tls(), pause("Transfer-Encoding: xchunked") + body, "501"},
		{"23 a space before the colon", false, s.tls(), pause("Transfer-Encoding : chunked") + body, "400"},
		{"24 a folded header is one header", false, s.tls(),
			get(status, "Authorization: Bearer wrong-wrong-wrong", " "+s.reader), "401"},
		{"25 a bare line feed in a header", false, s.tls(),
			get(status, "X: a\nAuthorization: Bearer wrong-wrong-wrong"), "401"},
		{"26 NUL in a header", false, s.tls(), get(status, bearer+"\x00"), "400"},
		{"27 a huge header", false, s.tls(), get(status, bearer, "X: "+strings.Repeat("x", 32<<10)), "431"},
		{"28 many headers", false, s.tls(),
			get(status, append(strings.Split(strings.Repeat("X: y,", 8000), ","), bearer)...), "431"},
		{"29 slow headers", false, s.tls(), "GET " + status + " HTTP/1.1\r\n", "EOF"},
		{"30 no handshake", false, nil, "", "EOF"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			addr := s.main
			if tc.probes {
				addr = s.probes
			}
			first, rest := s.send(t, addr, tc.tls, tc.request)
			if !strings.Contains(first, tc.want) && (tc.want != "EOF" || first != "") {
				t.Errorf("%s\n%s, want %s", first, rest, tc.want)
			}
			if strings.Contains(first+rest, s.actor) || strings.Contains(first+rest, s.reader) {
				t.Error("the answer has a token")
			}
		})
	}
	t.Cleanup(func() {
		if len(s.control.orders) > 0 {
			t.Errorf("acted: %v", s.control.orders)
		}
	})
}

// A request that follows one in its body is not executed: the rest of a refused request is
// not read as another.
func TestSmuggledRequest(t *testing.T) {
	t.Parallel()
	s := serveSecure(t, nil)
	smuggled := pausePath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer " +
		s.actor + "\r\nContent-Length: 16\r\n\r\n" + anyReason
	for name, request := range map[string]string{
		"chunks win": "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + fmt.Sprint(len(smuggled)+5) +
			"\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"length wins": "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n" +
			"Transfer-Encoding: identity\r\n\r\n" + smuggled,
	} {
		first, rest := s.send(t, s.main, s.tls(), request)
		if len(s.control.orders) > 0 || strings.Contains(first, "200") || strings.Contains(rest, "HTTP/1.1 200") {
			t.Errorf("%s: %s %s, acted %v", name, first, rest, s.control.orders)
		}
	}
}

// HTTP_TLS_CLIENT_CA requires a certificate, besides the token.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	s := serveSecure(t, func(c *ops.Config) { c.TLSClientCA = "set" })
	stranger := serveSecure(t, nil)
	for name, tc := range map[string]struct {
		certificates []tls.Certificate
		header       string
		want         string
	}{
		"certificate and token":   {[]tls.Certificate{s.client}, "Authorization: Bearer " + s.reader, "200"},
		"certificate alone":       {[]tls.Certificate{s.client}, "X: y", "401"},
		"token alone":             {nil, "Authorization: Bearer " + s.reader, "certificate required"},
		"another's certificate":   {[]tls.Certificate{stranger.client}, "Authorization: Bearer " + s.reader, "certificate"},
		"certificate as a header": {nil, "X-Forwarded-Client-Cert: Subject=CN=bridge", "certificate required"},
	} {
		conf := s.tls()
		conf.Certificates = tc.certificates
		if first, _ := s.send(t, s.main, conf, get("/api/v1/status", tc.header)); !strings.Contains(first, tc.want) {
			t.Errorf("%s: %s, want %s", name, first, tc.want)
		}
	}
	if first, _ := s.send(t, s.probes, nil, get("/livez")); !strings.Contains(first, "200") {
		t.Errorf("the probe: %s", first)
	}
}
