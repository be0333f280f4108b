package kafkaclient_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
)

// TestOAuthOnKafka logs in to an Apache Kafka that verifies tokens by the keys of their
// issuer: a connection outlives its token, and a token for another audience is refused.
func TestOAuthOnKafka(t *testing.T) {
	t.Parallel()
	servers.NeedReal(t)
	issuer := servers.StartIssuer(t, false)
	k := servers.StartKafka(t, servers.KafkaOptions{SASL: true, Issuer: issuer})
	const life = 14 * time.Second // a token is kept for 10 s at least
	issuer.Life = life
	cfg := oauthConfig(k.SecureAddrs(), issuer)
	client := must.Get(cfg.Open())(t)
	defer client.Close()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for ; time.Since(began) < 2*life; <-tick.C {
		if _, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), client); err != nil {
			t.Fatalf("after %s and %d tokens: %v", time.Since(began), issuer.Count(), err)
		}
	}
	if n, took := issuer.Count(), time.Since(began); n < 2 || n > 1+int(took/(10*time.Second)) {
		t.Errorf("%d tokens in %s", n, took)
	}

	issuer.Lock()
	issuer.Life = time.Hour
	token := issuer.Token()
	issuer.Audience = "another"
	issuer.Unlock()
	file := oauthConfig(k.SecureAddrs(), nil)
	file.SASLPasswordFile = filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(file.SASLPasswordFile, []byte(token+"\n"), 0o600))
	if f := login(t, &file); f != nil {
		t.Errorf("with a token from a file: %v", f)
	}
	other := oauthConfig(k.SecureAddrs(), issuer)
	other.OAuthScopes = nil // a token of its own
	f := login(t, &other)
	if f == nil {
		t.Fatal("logged in with a token for another audience")
	}
	kafkatest.AsFault(t, f, bridge.Permanent, bridge.ReasonAuth)
	if !strings.Contains(f.Error(), "invalid_token") || !strings.Contains(f.Error(), `audience "another"`) ||
		!strings.Contains(f.Error(), k.SecureAddrs()[0]) || !strings.Contains(f.Hint, "audience") {
		t.Errorf("%v, hint %q", f, f.Hint)
	}
}
