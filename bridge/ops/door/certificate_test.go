package door_test

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/ops/door"
)

// A changed pair of files is used. While the pair is broken, the old one stays in use, which
// is reported once.
func TestCertificateFollowsItsFiles(t *testing.T) {
	t.Parallel()
	read := func(path string) string {
		text := must.Get(os.ReadFile(path))(t)
		return string(text)
	}
	var certs, keys [2]string
	for i := range certs {
		made := must.Get(servers.WriteCertificates(t.TempDir()))(t)
		certs[i], keys[i] = read(made.ServerCert), read(made.ServerKey)
	}
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		pair := door.Pair{Cert: certs[0], Key: bridge.Secret(keys[0])}
		pair.CertFile, pair.KeyFile = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
		var log bytes.Buffer
		c := must.Get(door.NewCertificate(pair, slog.New(slog.NewTextHandler(&log, nil))))(t)
		go c.Watch(t.Context())
		used := func() string {
			now := must.Get(c.Config(nil).GetCertificate(nil))(t)
			for i := range certs {
				known, _ := tls.X509KeyPair([]byte(certs[i]), []byte(keys[i]))
				if bytes.Equal(known.Certificate[0], now.Certificate[0]) {
					return certs[i]
				}
			}
			return "neither"
		}
		for _, step := range []struct {
			name, cert, key string
			want            string
			said            string
		}{
			{"as it was", certs[0], keys[0], certs[0], ""},
			{"rotated", certs[1], keys[1], certs[1], "certificate replaced"},
			{"with the key of another", certs[0], keys[1], certs[1], "HTTP_TLS_CERT unusable"},
			{"back", certs[0], keys[0], certs[0], "certificate replaced"},
			{"cut short", certs[1][:100], keys[1], certs[0], "HTTP_TLS_CERT unusable"},
			{"without a file", "", "", certs[0], ""}, // still the same failure
			{"corrected", certs[1], keys[1], certs[1], "certificate replaced"},
		} {
			log.Reset()
			for path, text := range map[string]string{pair.CertFile: step.cert, pair.KeyFile: step.key} {
				if os.Remove(path); text == "" {
					continue
				}
				must.Do(t, os.WriteFile(path, []byte(text), 0o600))
			}
			<-time.After(time.Minute)
			synctest.Wait()
			if used() != step.want {
				t.Errorf("%s: another certificate is in use", step.name)
			}
			n := strings.Count(log.String(), "\n")
			if !strings.Contains(log.String(), step.said) || (n != 1) != (step.said == "") {
				t.Errorf("%s: logs %q, want %q once", step.name, log.String(), step.said)
			}
			if strings.Contains(log.String(), "PRIVATE") {
				t.Errorf("%s: the log has the key", step.name)
			}
		}
	})
}

// The files are not written at once: what is corrected by the next reading is not reported.
func TestCertificateBetweenTwoWrites(t *testing.T) {
	t.Parallel()
	made := must.Get(servers.WriteCertificates(t.TempDir()))(t)
	cert, _ := os.ReadFile(made.ServerCert)
	key, _ := os.ReadFile(made.ServerKey)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		pair := door.Pair{
			Cert: string(cert), Key: bridge.Secret(key), CertFile: made.ServerCert, KeyFile: made.ServerKey,
		}
		c := must.Get(door.NewCertificate(pair, slog.New(slog.NewTextHandler(&log, nil))))(t)
		go c.Watch(t.Context())
		other, _ := os.ReadFile(made.ClientKey)
		for _, k := range [][]byte{other, key} {
			must.Do(t, os.WriteFile(made.ServerKey, k, 0o600))
			<-time.After(5*time.Second + time.Millisecond)
			synctest.Wait()
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if log.Len() > 0 {
			t.Errorf("logs %s", &log)
		}
	})
}
