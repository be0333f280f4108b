package exportapi_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"strings"
	"testing"

	"exportbridge/bridge"
)

// TestCertificateRefused: the server demands another client certificate, or one
// at all.
func TestCertificateRefused(t *testing.T) {
	t.Parallel()
	cert, key := selfSigned(t, "stranger")
	for name, vars := range map[string]map[string]string{"none": {}, "refused": {"EXPORT_TLS_CERT": cert, "EXPORT_TLS_KEY": key}} {
		server := httptest.NewUnstartedServer(answer(emptyPage))
		server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool()}
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		t.Cleanup(server.Close)
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		for _, tokens := range []bool{false, true} {
			all := map[string]string{"EXPORT_URL": server.URL}
			if tokens {
				all = oauth2Vars(server.URL)
			}
			all["EXPORT_TLS_CA"] = string(ca)
			maps.Copy(all, vars)
			_, err := fetchAll(t, connect(t, config(t, all)), bridge.Position{})
			f := wantFault(t, err)
			if f.Class != bridge.Transient || f.Code != "tls" || !strings.Contains(f.Hint, "EXPORT_TLS_CERT and EXPORT_TLS_KEY") || strings.Contains(f.Hint, "EXPORT_OAUTH2_TOKEN_URL") != tokens {
				t.Errorf("%s, token request %t: %v %s: %v (%s)", name, tokens, f.Class, f.Code, f, f.Hint)
			}
		}
	}
}

// TestTokenServerUnknown: the certificate authority of the server that issues
// tokens is not trusted.
func TestTokenServerUnknown(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(answer(emptyPage))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	_, err := fetchAll(t, connect(t, config(t, oauth2Vars(server.URL))), bridge.Position{})
	if f := wantFault(t, err); f.Code != "tls" || !strings.Contains(f.Hint, "check EXPORT_OAUTH2_TOKEN_URL") || !strings.Contains(f.Hint, "EXPORT_TLS_CA") {
		t.Errorf("%s: %v (%s)", f.Code, f, f.Hint)
	}
}
