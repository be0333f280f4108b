package kafkaclient_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkaclient"
)

// oauthConfig logs in with tokens of the issuer, if there is one.
func oauthConfig(brokers []string, issuer *servers.Issuer) kafkaclient.Config {
	c := kafkaclient.DefaultConfig()
	c.Brokers, c.SASLMechanism, c.SASLInsecure = brokers, "OAUTHBEARER", true
	if issuer != nil {
		c.OAuthTokenURL, c.OAuthParams, c.OAuthScopes = issuer.TokenURL(), []string{"audience=kafka"}, []string{"a", "b"}
		c.SASLUsername, c.SASLPassword = servers.IssuerClient, servers.IssuerSecret
	}
	return c
}

// login opens a client and has it log in.
func login(t *testing.T, c *kafkaclient.Config) *bridge.Fault {
	t.Helper()
	must.Do(t, c.Validate())
	client := must.Get(c.Open())(t)
	defer client.Close()
	ctx := kafkatest.Context(t)
	if err := client.Ping(ctx); err != nil {
		return client.Explain(err, "")
	}
	return nil
}

// TestTokenIsShared: clients that log in at the same time cause one request for a token,
// with the parameters of the settings, and send its extensions.
func TestTokenIsShared(t *testing.T) {
	t.Parallel()
	issuer, cluster := servers.StartIssuer(t, false), servers.EmbeddedKafka(t)
	var first atomic.Value
	cluster.Logins(func(sent []byte, _ *kmsg.SASLAuthenticateResponse) { first.Store(string(sent)) })
	cfg := oauthConfig(cluster.ListenAddrs(), issuer)
	cfg.OAuthExtensions = []string{"logicalCluster=lkc-1", "identityPoolId=pool-2"}
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			if f := login(t, &cfg); f != nil {
				t.Error(f)
			}
		})
	}
	clients.Wait()
	if n := issuer.Count(); n != 1 {
		t.Errorf("%d tokens were requested", n)
	}
	if form := issuer.Issued[0]; fmt.Sprint(form) != "map[audience:[kafka] grant_type:[client_credentials] scope:[a b]]" {
		t.Errorf("requested with %v", form)
	}
	if sent, _ := first.Load().(string); !strings.HasPrefix(sent, "n,,\x01auth=Bearer ey") ||
		!strings.HasSuffix(sent, "\x01identityPoolId=pool-2\x01logicalCluster=lkc-1\x01\x01") {
		t.Errorf("sent %q", sent)
	}
}

// TestTokenIsRefused: the broker's answer to a refused token names the login, not the
// network, and the next login has another token.
func TestTokenIsRefused(t *testing.T) {
	t.Parallel()
	issuer, cluster := servers.StartIssuer(t, false), servers.EmbeddedKafka(t)
	issuer.Audience = "another"
	var refuse atomic.Bool
	var sent sync.Map
	cluster.Logins(func(first []byte, answer *kmsg.SASLAuthenticateResponse) {
		sent.Store(string(first), true)
		if refuse.Load() {
			answer.SASLAuthBytes = []byte(`{"status":"invalid_token","scope":"kafka"}`)
		}
	})
	refuse.Store(true)
	cfg := oauthConfig(cluster.ListenAddrs(), issuer)
	f := login(t, &cfg)
	if f == nil {
		t.Fatal("logged in")
	}
	kafkatest.AsFault(t, f, bridge.Permanent, bridge.ReasonAuth)
	for _, word := range []string{"refused the token", "invalid_token", `requires the scope kafka`, `audience "another"`, cluster.ListenAddrs()[0]} {
		if !strings.Contains(f.Error(), word) {
			t.Errorf("%v does not have %s", f, word)
		}
	}
	if !strings.Contains(f.Hint, "KAFKA_SASL_OAUTH_PARAMS") || strings.Contains(f.Hint, "KAFKA_BROKERS") {
		t.Errorf("hint %q", f.Hint)
	}
	sent.Range(func(first, _ any) bool {
		token := strings.TrimSuffix(strings.TrimPrefix(first.(string), "n,,\x01auth=Bearer "), "\x01\x01")
		for part := range strings.SplitSeq(token, ".") {
			if strings.Contains(f.Error()+f.Hint, part) {
				t.Errorf("%v shows the token", f)
			}
		}
		return true
	})
	if f := login(t, &cfg); f == nil || issuer.Count() != 2 {
		t.Errorf("%v, %d tokens", f, issuer.Count())
	}
	refuse.Store(false)
	if f := login(t, &cfg); f != nil || issuer.Count() != 2 { // one a minute
		t.Errorf("%v, %d tokens", f, issuer.Count())
	}
}

// TestNoToken: what the token endpoint says is named, with the settings to check, and
// without the secret.
func TestNoToken(t *testing.T) {
	t.Parallel()
	say := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.Header().Set("Location", "https://example.com/")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		class  bridge.Class
		reason bridge.Reason
		says   string
		hint   string
	}{
		"wrong secret": {say(401, `{"error":"invalid_client","error_description":"no such\nclient"}`), bridge.Permanent, bridge.ReasonAuth,
			"401 invalid_client no such client", "KAFKA_SASL_PASSWORD"},
		"repeats the secret": {say(400, `{"error":"invalid_client","error_description":"`+servers.IssuerSecret+`"}`), bridge.Permanent,
			bridge.ReasonAuth, "repeats KAFKA_SASL_PASSWORD", "KAFKA_SASL_USERNAME"},
		"overloaded": {say(503, ""), bridge.Transient, "", "503", "operator of the token endpoint"},
		"throttled":  {say(429, ""), bridge.Transient, "", "429", "operator of the token endpoint"},
		"redirect":   {say(302, ""), bridge.Permanent, bridge.ReasonAuth, "302", "KAFKA_SASL_OAUTH_TOKEN_URL"},
		"a page":     {say(200, "<html>"), bridge.Permanent, bridge.ReasonAuth, "oauth2: ", "KAFKA_SASL_OAUTH_TOKEN_URL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			issuer := servers.StartIssuer(t, false)
			issuer.Answer = test.answer
			cluster := servers.EmbeddedKafka(t)
			cluster.Logins(func([]byte, *kmsg.SASLAuthenticateResponse) { t.Error("logs in without a token") })
			cfg := oauthConfig(cluster.ListenAddrs(), issuer)
			f := login(t, &cfg)
			if f == nil {
				t.Fatal("logged in")
			}
			kafkatest.AsFault(t, f, test.class, test.reason)
			if !strings.Contains(f.Error(), test.says) || !strings.Contains(f.Hint, test.hint) || strings.Contains(f.Error(), servers.IssuerSecret) {
				t.Errorf("%v, hint %q; want %q, hint %q", f, f.Hint, test.says, test.hint)
			}
			if want := test.class == bridge.Transient; (f.RetryAfter > 0) != want || f.RetryAfter > 7*time.Second {
				t.Errorf("retry after %s", f.RetryAfter)
			}
		})
	}
}

// TestTokenOverTLS: the CA of the token URL is a setting, whose file is read again.
func TestTokenOverTLS(t *testing.T) {
	t.Parallel()
	issuer, cluster := servers.StartIssuer(t, true), servers.EmbeddedKafka(t)
	cluster.Logins(func([]byte, *kmsg.SASLAuthenticateResponse) {})
	cfg := oauthConfig(cluster.ListenAddrs(), issuer)
	if f := login(t, &cfg); f == nil || !strings.Contains(f.Hint, "KAFKA_SASL_OAUTH_TLS_CA") || strings.Contains(f.Hint, "KAFKA_TLS_CA") {
		t.Fatalf("%v, %+v", f, f)
	}
	other := servers.StartIssuer(t, true) // of another certificate with the same key
	cfg.OAuthTLSCA, cfg.OAuthTLSCAFile = other.CA(), filepath.Join(t.TempDir(), "ca.pem")
	if f := login(t, &cfg); f == nil || !strings.Contains(f.Error(), "KAFKA_SASL_OAUTH_TLS_CA_FILE") {
		t.Fatalf("without the file: %v", f)
	}
	must.Do(t, os.WriteFile(cfg.OAuthTLSCAFile, []byte(issuer.CA()), 0o600))
	kafkatest.Eventually(t, "log in with the file", func() (bool, error) { // a failure holds for a second
		f := login(t, &cfg)
		return f == nil, nil
	})
}

// TestValidateLogin names the settings that do not go together.
func TestValidateLogin(t *testing.T) {
	t.Parallel()
	oauth := func(c *kafkaclient.Config) {
		c.TLSEnabled, c.SASLMechanism, c.SASLUsername, c.SASLPassword = true, "OAUTHBEARER", "u", "p"
		c.OAuthTokenURL = "https://login.example.com/t"
	}
	for name, test := range map[string]struct {
		set  []func(*kafkaclient.Config)
		want []string
	}{
		"good": {[]func(*kafkaclient.Config){oauth, func(c *kafkaclient.Config) {
			c.OAuthParams, c.OAuthExtensions = []string{"audience=a=b"}, []string{"logicalCluster=lkc-1"}
		}}, nil},
		"in clear": {[]func(*kafkaclient.Config){oauth, func(c *kafkaclient.Config) { c.OAuthTokenURL = "http://login.example.com/t" }},
			[]string{"KAFKA_SASL_OAUTH_TOKEN_URL"}},
		"a password in the URL": {[]func(*kafkaclient.Config){oauth, func(c *kafkaclient.Config) { c.OAuthTokenURL = "https://a:b@login.example.com/t" }},
			[]string{"KAFKA_SASL_OAUTH_TOKEN_URL"}},
		"no client": {[]func(*kafkaclient.Config){oauth, func(c *kafkaclient.Config) { c.SASLUsername, c.SASLPassword = "", "" }},
			[]string{"KAFKA_SASL_USERNAME", "KAFKA_SASL_PASSWORD"}},
		"lists": {[]func(*kafkaclient.Config){oauth, func(c *kafkaclient.Config) {
			c.OAuthParams, c.OAuthExtensions = []string{"a", "scope=x"}, []string{"a", "auth=x", "a1=b", "a=\x01"}
		}}, []string{"KAFKA_SASL_OAUTH_EXTENSIONS", "KAFKA_SASL_OAUTH_EXTENSIONS", "KAFKA_SASL_OAUTH_EXTENSIONS",
			"KAFKA_SASL_OAUTH_EXTENSIONS", "KAFKA_SASL_OAUTH_PARAMS", "KAFKA_SASL_OAUTH_PARAMS"}},
		"no token URL": {[]func(*kafkaclient.Config){oauth, func(c *kafkaclient.Config) { c.OAuthTokenURL, c.OAuthScopes = "", []string{"a"} }},
			[]string{"KAFKA_SASL_OAUTH_TOKEN_URL"}},
		"another mechanism": {[]func(*kafkaclient.Config){oauth, func(c *kafkaclient.Config) { c.SASLMechanism = "PLAIN" }},
			[]string{"KAFKA_SASL_OAUTH_TOKEN_URL"}},
		"MSK": {[]func(*kafkaclient.Config){func(c *kafkaclient.Config) { c.TLSEnabled, c.SASLMechanism = true, "AWS_MSK_IAM" }}, nil},
		"MSK with a password": {[]func(*kafkaclient.Config){func(c *kafkaclient.Config) {
			c.SASLMechanism, c.SASLPassword = "AWS_MSK_IAM", "p"
		}}, []string{"KAFKA_SASL_PASSWORD", "KAFKA_TLS_ENABLED"}},
		"MSK with a user": {[]func(*kafkaclient.Config){func(c *kafkaclient.Config) {
			c.TLSEnabled, c.SASLMechanism, c.SASLUsername = true, "AWS_MSK_IAM", "u"
		}}, []string{"KAFKA_SASL_USERNAME"}},
		"extensions of another mechanism": {[]func(*kafkaclient.Config){oauth, func(c *kafkaclient.Config) {
			c.SASLMechanism, c.OAuthTokenURL, c.OAuthExtensions = "PLAIN", "", []string{"a=b"}
		}}, []string{"KAFKA_SASL_OAUTH_EXTENSIONS"}},
	} {
		c := kafkaclient.DefaultConfig()
		for _, set := range test.set {
			set(&c)
		}
		var got []string
		var problems bridge.Problems
		problems.Add(c.Validate())
		for _, p := range problems {
			got = append(got, p.Variable)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, problems, test.want)
		}
	}
}

// TestLogin describes logins without their secrets.
func TestLogin(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]kafkaclient.SASL{
		"":                         {},
		"SCRAM-SHA-512 (user ann)": {SASLMechanism: "SCRAM-SHA-512", SASLUsername: "ann", SASLPassword: "hunter2"},
		"OAUTHBEARER (token from KAFKA_SASL_PASSWORD)":      {SASLMechanism: "OAUTHBEARER", SASLPassword: "hunter2"},
		"OAUTHBEARER (token from KAFKA_SASL_PASSWORD_FILE)": {SASLMechanism: "OAUTHBEARER", SASLPassword: "hunter2", SASLPasswordFile: "f"},
		"OAUTHBEARER (token of client ann from login.example.com:8443)": {SASLMechanism: "OAUTHBEARER", SASLUsername: "ann",
			SASLPassword: "hunter2", OAuthTokenURL: "https://login.example.com:8443/token?key=hunter2"},
	} {
		if got := c.Login(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
