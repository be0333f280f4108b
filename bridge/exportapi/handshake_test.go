package exportapi_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/servers"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	good, ca := listenTLS(t, answer(emptyPage), nil)
	old, oldCA := listenTLS(t, answer(emptyPage), &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	otherName := strings.Replace(good.URL, "127.0.0.1", "localhost", 1)
	plainServer := listen(t, answer(emptyPage))
	for name, tc := range map[string]struct{ url, ca, code string }{
		"own authority":     {good.URL, ca, ""},
		"unknown authority": {good.URL, "", "tls"},
		"another name":      {otherName, ca, "tls"},
		"TLS 1.1":           {old.URL, oldCA, "tls"},
		"no TLS at all":     {strings.Replace(plainServer.URL, "http:", "https:", 1), "", "tls"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, config(t, map[string]string{"EXPORT_URL": tc.url, "EXPORT_TLS_CA": tc.ca}))
			_, err := fetchAll(t, c, bridge.Position{Cursor: testCursor})
			if tc.code == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if f := wantFault(t, err); f.Class != bridge.Transient || f.Code != tc.code {
				t.Errorf("got class %v code %q (%v), want transient %q", f.Class, f.Code, f, tc.code)
			}
		})
	}
}

// The server requires another client certificate, or requires one and gets none.
func TestCertificateRefused(t *testing.T) {
	t.Parallel()
	cert, key := selfSigned(t, "stranger")
	for name, vars := range map[string]map[string]string{"none": {},
		"refused": {"EXPORT_TLS_CERT": cert, "EXPORT_TLS_KEY": key}} {
		server, ca := listenTLS(t, answer(emptyPage),
			&tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool()})
		for _, tokens := range []bool{false, true} {
			all := map[string]string{"EXPORT_URL": server.URL}
			if tokens {
				all = oauth2Vars(server.URL)
			}
			all["EXPORT_TLS_CA"] = ca
			maps.Copy(all, vars)
			_, err := fetchAll(t, connect(t, config(t, all)), bridge.Position{})
			f := wantFault(t, err)
			if f.Class != bridge.Transient || f.Code != "tls" ||
				!strings.Contains(f.Hint, "EXPORT_TLS_CERT and EXPORT_TLS_KEY") ||
				strings.Contains(f.Hint, "EXPORT_OAUTH2_TOKEN_URL") != tokens {
				t.Errorf("%s, token request %t: %v %s: %v (%s)", name, tokens, f.Class, f.Code, f, f.Hint)
			}
		}
	}
}

// A server of tokens on another host does not get the client certificate of the API.
func TestCertificateIsForTheAPI(t *testing.T) {
	t.Parallel()
	cert, key := selfSigned(t, "client")
	for host, want := range map[string]int{"https://127.0.0.1:1": 1, "https://localhost:1": 0} {
		var offered atomic.Int64
		server, ca := listenTLS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			offered.Store(int64(len(r.TLS.PeerCertificates)))
			w.WriteHeader(http.StatusTeapot)
		}), &tls.Config{ClientAuth: tls.RequestClientCert})
		vars := oauth2Vars(server.URL)
		vars["EXPORT_URL"], vars["EXPORT_TLS_CA"] = host, ca
		vars["EXPORT_TLS_CERT"], vars["EXPORT_TLS_KEY"] = cert, key
		_, err := fetchAll(t, connect(t, config(t, vars)), bridge.Position{})
		if f := wantFault(t, err); f.Code != "418" || offered.Load() != int64(want) {
			t.Errorf("API at %s: %s, %d certificates offered, want %d", host, f.Code, offered.Load(), want)
		}
	}
}

// An https proxy does not get the client certificate of the API behind it.
func TestCertificateIsNotForTheProxy(t *testing.T) {
	t.Parallel()
	cert, key := selfSigned(t, "client")
	var atAPI, atProxy atomic.Int64
	asks := &tls.Config{ClientAuth: tls.RequestClientCert}
	api, ca := listenTLS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		atAPI.Add(int64(len(r.TLS.PeerCertificates)))
		answer(emptyPage)(w, r)
	}), asks)
	proxy, proxyCA := listenTLS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		atProxy.Add(int64(len(r.TLS.PeerCertificates)))
		to, err := new(net.Dialer).DialContext(r.Context(), "tcp", r.Host)
		if err != nil {
			t.Error(err)
			return
		}
		from, rest, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n")
		done := make(chan struct{})
		go func() { defer close(done); _, _ = io.Copy(to, rest); _ = to.Close() }()
		_, _ = io.Copy(from, to)
		_ = from.Close()
		<-done
	}), asks)
	vars := map[string]string{
		"EXPORT_URL": api.URL, "EXPORT_PROXY": proxy.URL, "EXPORT_TLS_CA": ca + proxyCA, "EXPORT_TLS_CERT": cert,
		"EXPORT_TLS_KEY": key,
	}
	for _, through := range []string{"proxy", "direct"} {
		if through == "direct" {
			delete(vars, "EXPORT_PROXY")
		}
		atAPI.Store(0)
		if _, err := fetchAll(t, connect(t, config(t, vars)), bridge.Position{}); err != nil || atAPI.Load() != 1 {
			t.Errorf("%s: %d certificates at the API: %v", through, atAPI.Load(), err)
		}
	}
	if n := atProxy.Load(); n != 0 {
		t.Errorf("%d certificates at the proxy", n)
	}
}

// The certificate authority of the server of tokens is not trusted.
func TestTokenServerUnknown(t *testing.T) {
	t.Parallel()
	server, _ := listenTLS(t, answer(emptyPage), nil)
	_, err := fetchAll(t, connect(t, config(t, oauth2Vars(server.URL))), bridge.Position{})
	if f := wantFault(t, err); f.Code != "tls" || !strings.Contains(f.Hint, "check EXPORT_OAUTH2_TOKEN_URL") ||
		!strings.Contains(f.Hint, "EXPORT_TLS_CA") {
		t.Errorf("%s: %v (%s)", f.Code, f, f.Hint)
	}
}

// EXPORT_URL has a scheme that its server does not use.
func TestOtherScheme(t *testing.T) {
	t.Parallel()
	plain := listen(t, answer(emptyPage))
	secure, _ := listenTLS(t, answer(emptyPage), nil)
	for name, test := range map[string]struct{ url, hint string }{
		"https to plain HTTP": {strings.Replace(plain.URL, "http:", "https:", 1),
			"the server does not use TLS at this port: use its TLS port, or http:// in EXPORT_URL"},
		"https to another server": {"https://" + servers.Answering(t, servers.Say("-ERR unknown command")),
			"the server does not use TLS at this port"},
		"http to TLS, answered": {strings.Replace(secure.URL, "https:", "http:", 1),
			"; if the server requires TLS at this port, use https:// in EXPORT_URL"},
		"http to TLS, with alerts": {"http://" + servers.Answering(t, servers.Say("\x15\x03\x01\x00\x02\x02\x16")),
			"the server uses TLS at this port: use https:// in EXPORT_URL"},
	} {
		_, err := fetchAll(t, connect(t, config(t, map[string]string{"EXPORT_URL": test.url})), bridge.Position{})
		if f := wantFault(t, err); !strings.Contains(f.Hint, test.hint) {
			t.Errorf("%s: %v (%s), want %q", name, f, f.Hint, test.hint)
		}
	}
}
