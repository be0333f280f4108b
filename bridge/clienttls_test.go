package bridge_test

import (
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// TestEmptyCAFile: a CA file that is being replaced may be empty. The system's authorities
// do not stand in for it.
func TestEmptyCAFile(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(nil)
	server.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	c := bridge.ClientTLS{Prefix: "KAFKA_TLS", CA: ca, CAFile: filepath.Join(t.TempDir(), "ca.pem")}
	for text, valid := range map[string]bool{ca: true, "": false, "\n": false, " \n": false, "not PEM": false, ca[:50]: false} {
		must.Do(t, os.WriteFile(c.CAFile, []byte(text), 0o600))
		conf, err := c.Config()
		file, named := errors.AsType[*bridge.TLSFileError](err)
		switch {
		case valid && (err != nil || conf.RootCAs == nil):
			t.Errorf("%q: %v", text, err)
		case !valid && (!named || file.Variable != "KAFKA_TLS_CA" || conf != nil):
			t.Errorf("%q: settings %t, %v", text, conf != nil, err)
		}
	}
	if conf, err := (bridge.ClientTLS{}).Config(); err != nil || conf.RootCAs != nil {
		t.Errorf("without a CA: %v", err)
	}
}
