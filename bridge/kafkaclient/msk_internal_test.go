package kafkaclient

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
)

// fakeAWS stands in for the services of AWS that give credentials, for secretKey, which end
// after life.
type fakeAWS struct {
	*httptest.Server
	life    time.Duration
	fetched atomic.Int32
}

const (
	accessKey    = "AKIDEXAMPLE"
	secretKey    = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	sessionToken = "session/token+1=="
)

// startAWS starts one, and takes all AWS settings of the machine away from the test.
func startAWS(t *testing.T, life time.Duration) *fakeAWS {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	none := filepath.Join(t.TempDir(), "none")
	for name, value := range map[string]string{
		"HOME": none, "AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none, "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_REGION": "eu-west-1",
	} {
		t.Setenv(name, value)
	}
	reset := func() { msk.provider, msk.from = nil, "" }
	reset()
	t.Cleanup(reset)
	a := &fakeAWS{life: life}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{$}", a.sts)
	mux.HandleFunc("GET /pod", a.pod)
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds"))
		fmt.Fprint(w, "imds-token")
	})
	mux.HandleFunc("GET /latest/meta-data/iam/", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("X-Aws-Ec2-Metadata-Token") != "imds-token":
			w.WriteHeader(http.StatusUnauthorized) // only IMDSv2
		case strings.HasSuffix(r.URL.Path, "/"):
			fmt.Fprint(w, "bridge-role")
		default:
			a.give(w)
		}
	})
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	return a
}

func (a *fakeAWS) end() string { return time.Now().Add(a.life).UTC().Format(time.RFC3339) }

func (a *fakeAWS) give(w http.ResponseWriter) {
	a.fetched.Add(1)
	json.NewEncoder(w).Encode(map[string]string{
		"Code": "Success", "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z", "AccessKeyId": accessKey,
		"SecretAccessKey": secretKey, "Token": sessionToken, "Expiration": a.end(),
	})
}

// pod is the agent of EKS Pod Identity, and of a container of ECS.
func (a *fakeAWS) pod(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "pod-token" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	a.give(w)
}

// sts is AssumeRoleWithWebIdentity.
func (a *fakeAWS) sts(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("Action") != "AssumeRoleWithWebIdentity" || r.FormValue("WebIdentityToken") != "web-token" ||
		r.FormValue("RoleArn") != "arn:aws:iam::123456789012:role/bridge" {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>not this role</Message></Error></ErrorResponse>`)
		return
	}
	a.fetched.Add(1)
	fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>
<Credentials><AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>%s</SessionToken><Expiration>%s</Expiration></Credentials>
<AssumedRoleUser><Arn>arn:aws:sts::123456789012:assumed-role/bridge/s</Arn><AssumedRoleId>A:s</AssumedRoleId></AssumedRoleUser>
</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, accessKey, secretKey, sessionToken, a.end())
}

// mskBrokers stands in for Amazon MSK: it lets in who signed with secretKey.
func mskBrokers(t *testing.T) *servers.Cluster {
	t.Helper()
	cluster := servers.EmbeddedKafka(t)
	cluster.Logins(func(first []byte, answer *kmsg.SASLAuthenticateResponse) {
		answer.SASLAuthBytes = []byte(`{"version":"2020_10_22","request-id":"1"}`)
		if err := verifySigned(first, time.Now()); err != nil {
			t.Log(err)
			answer.SASLAuthBytes = nil
			answer.ErrorCode, answer.ErrorMessage = kerr.SaslAuthenticationFailed.Code, new("[1]: Access denied")
		}
	})
	return cluster
}

// verifySigned verifies a login as the specification of AWS Signature Version 4 for query
// parameters and the README of aws-msk-iam-auth say.
func verifySigned(first []byte, now time.Time) error {
	var f map[string]string
	if err := json.Unmarshal(first, &f); err != nil {
		return err
	}
	signedAt, err := time.Parse("20060102T150405Z", f["x-amz-date"])
	if err != nil || now.Sub(signedAt).Abs() > time.Minute {
		return fmt.Errorf("signed at %s: %w", f["x-amz-date"], err)
	}
	day := signedAt.Format("20060102")
	scope := day + "/eu-west-1/kafka-cluster/aws4_request"
	for name, want := range map[string]string{
		"version": "2020_10_22", "host": "127.0.0.1", "user-agent": "exportbridge", "action": "kafka-cluster:Connect",
		"x-amz-algorithm": "AWS4-HMAC-SHA256", "x-amz-credential": accessKey + "/" + scope, "x-amz-signedheaders": "host",
		"x-amz-expires": "300",
	} {
		if f[name] != want {
			return fmt.Errorf("%s is %q, want %q", name, f[name], want)
		}
	}
	query := url.Values{}
	for _, name := range []string{"Action", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-Security-Token", "X-Amz-SignedHeaders"} {
		if value, ok := f[strings.ToLower(name)]; ok {
			query.Set(name, value)
		}
	}
	sum := func(text string) string { s := sha256.Sum256([]byte(text)); return hex.EncodeToString(s[:]) }
	request := "GET\n/\n" + query.Encode() + "\nhost:127.0.0.1\n\nhost\n" + sum("")
	key := []byte("AWS4" + secretKey)
	for _, text := range []string{day, "eu-west-1", "kafka-cluster", "aws4_request", "AWS4-HMAC-SHA256\n" + f["x-amz-date"] + "\n" + scope + "\n" + sum(request)} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(text))
		key = mac.Sum(nil)
	}
	if hex.EncodeToString(key) != f["x-amz-signature"] {
		return errors.New("another signature")
	}
	return nil
}

// mskLogIn logs in with a new client.
func mskLogIn(t *testing.T, brokers []string) (*Config, *bridge.Fault) {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Brokers, cfg.SASLMechanism, cfg.SASLInsecure = brokers, "AWS_MSK_IAM", true
	must.Do(t, cfg.Validate())
	client := must.Get(cfg.Open())(t)
	defer client.Close()
	if err := client.Ping(t.Context()); err != nil {
		return &cfg, client.Explain(err, "")
	}
	return &cfg, nil
}

// writeSecret writes a file of a test and returns its path.
func writeSecret(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestMSKCredentials: each source of AWS's default chain gives credentials, which are
// fetched once until they are about to end.
func TestMSKCredentials(t *testing.T) {
	for name, test := range map[string]struct {
		set    func(t *testing.T, a *fakeAWS)
		source string
		// The fetches of three logins, with credentials of an hour and with such that are about
		// to end.
		long, short int32
	}{
		"environment": {func(t *testing.T, _ *fakeAWS) {
			t.Setenv("AWS_ACCESS_KEY_ID", accessKey)
			t.Setenv("AWS_SECRET_ACCESS_KEY", secretKey)
		}, "Env", 0, 0},
		"profile": {func(t *testing.T, _ *fakeAWS) {
			t.Setenv("AWS_PROFILE", "bridge")
			t.Setenv("AWS_SHARED_CREDENTIALS_FILE", writeSecret(t, "[bridge]\naws_access_key_id = "+accessKey+"\naws_secret_access_key = "+secretKey+"\n"))
		}, "SharedConfig", 0, 0},
		"web identity": {func(t *testing.T, a *fakeAWS) {
			t.Setenv("AWS_ENDPOINT_URL_STS", a.URL)
			t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/bridge")
			t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", writeSecret(t, "web-token"))
		}, "WebIdentity", 1, 3},
		"pod identity": {func(t *testing.T, a *fakeAWS) {
			t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", a.URL+"/pod")
			t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", writeSecret(t, "pod-token"))
		}, "CredentialsEndpoint", 1, 3},
		"instance": {func(t *testing.T, a *fakeAWS) {
			t.Setenv("AWS_EC2_METADATA_DISABLED", "")
			t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", a.URL) // replaces credentials late: they are used to their end
		}, "EC2Role", 1, 1},
	} {
		for life, fetches := range map[time.Duration]int32{time.Hour: test.long, credentialsLead - time.Minute: test.short} {
			t.Run(fmt.Sprint(name, " ", life), func(t *testing.T) {
				a, cluster := startAWS(t, life), mskBrokers(t)
				test.set(t, a)
				for range 3 {
					cfg, f := mskLogIn(t, cluster.ListenAddrs())
					if f != nil {
						t.Fatal(f)
					}
					if login := cfg.Login(); !strings.HasPrefix(login, "AWS_MSK_IAM (credentials from "+test.source) {
						t.Errorf("login %s", login)
					}
				}
				if n := a.fetched.Load(); n != fetches {
					t.Errorf("fetched %d times, want %d", n, fetches)
				}
			})
		}
	}
}

// TestMSKRefused: a refused login is one, the causes are named, no secret is, and the files
// of AWS are read again.
func TestMSKRefused(t *testing.T) {
	startAWS(t, time.Hour)
	cluster := mskBrokers(t)
	const wrong = "wrongwrongwrongwrong"
	profile := func(secret string) string {
		return "[default]\naws_access_key_id = " + accessKey + "\naws_secret_access_key = " + secret + "\n"
	}
	file := writeSecret(t, profile(wrong))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	_, f := mskLogIn(t, cluster.ListenAddrs())
	if f == nil || f.Class != bridge.Permanent || f.Reason != bridge.ReasonAuth || !strings.Contains(f.Hint, "kafka-cluster:Connect") ||
		!strings.Contains(f.Error(), "Access denied") || strings.Contains(f.Error()+f.Hint, wrong) {
		t.Fatalf("%v, %+v", f, f)
	}
	must.Do(t, os.WriteFile(file, []byte(profile(secretKey)), 0o600))
	if _, f = mskLogIn(t, cluster.ListenAddrs()); f == nil {
		t.Error("the file was read again within a minute")
	}
	msk.loaded = msk.loaded.Add(-betweenReloads)
	msk.refused()
	if _, f = mskLogIn(t, cluster.ListenAddrs()); f != nil {
		t.Errorf("with the new file: %v", f)
	}
}

// TestMSKNothing: without credentials, and without a region, the settings are named.
func TestMSKNothing(t *testing.T) {
	a, cluster := startAWS(t, time.Hour), mskBrokers(t)
	_, f := mskLogIn(t, cluster.ListenAddrs())
	if f == nil || f.Class != bridge.Transient || f.Code != "credentials" || !strings.Contains(f.Hint, "AWS_ACCESS_KEY_ID") {
		t.Fatalf("%v, %+v", f, f)
	}
	t.Setenv("AWS_ENDPOINT_URL_STS", a.URL)
	t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/other")
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", writeSecret(t, "web-token"))
	msk.provider = nil
	if _, f = mskLogIn(t, cluster.ListenAddrs()); f == nil || !strings.Contains(f.Error(), "not this role") || strings.Contains(f.Error(), "web-token") {
		t.Errorf("another role: %v", f)
	}
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "")
	t.Setenv("AWS_ACCESS_KEY_ID", accessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secretKey)
	t.Setenv("AWS_REGION", "")
	msk.provider = nil
	if _, f = mskLogIn(t, cluster.ListenAddrs()); f == nil || f.Class != bridge.Permanent || !strings.Contains(f.Hint, "AWS_REGION") {
		t.Errorf("without a region: %v", f)
	}
}

// TestMSKRights: each right that is asked for is a statement of an IAM policy.
func TestMSKRights(t *testing.T) {
	cfg := Config{SASL: SASL{SASLMechanism: "AWS_MSK_IAM"}}
	for right, want := range map[string]string{
		cfg.GrantLogin():      `["kafka-cluster:Connect","kafka-cluster:WriteDataIdempotently"] cluster/<cluster>/*`,
		cfg.GrantWrite("a.b"): `["kafka-cluster:WriteData","kafka-cluster:DescribeTopic"] topic/<cluster>/*/a.b`,
		cfg.GrantRead("a"):    `["kafka-cluster:ReadData","kafka-cluster:DescribeTopic","kafka-cluster:DescribeTopicDynamicConfiguration"] topic/<cluster>/*/a`,
		cfg.GrantCreate("a"):  `["kafka-cluster:CreateTopic"] topic/<cluster>/*/a`,
		cfg.Grant("--operation Read --operation Describe --resource-pattern-type prefixed --group g."): `["kafka-cluster:AlterGroup",` +
			`"kafka-cluster:DescribeGroup"] group/<cluster>/*/g.*`,
		cfg.Grant("--operation Write --operation Describe --transactional-id x"): `["kafka-cluster:AlterTransactionalId",` +
			`"kafka-cluster:DescribeTransactionalId"] transactional-id/<cluster>/*/x`,
		cfg.Grant("--operation Describe --operation Read --topic a"): `["kafka-cluster:DescribeTopic","kafka-cluster:ReadData"] topic/<cluster>/*/a`,
		cfg.Grant("--operation Describe --group a --group b"):        `["kafka-cluster:DescribeGroup"] group/<cluster>/*/a group/<cluster>/*/b`,
	} {
		var s struct {
			Effect           string
			Action, Resource []string
		}
		if err := json.Unmarshal([]byte(right), &s); err != nil {
			t.Fatalf("%s: %v", right, err)
		}
		actions := `["` + strings.Join(s.Action, `","`) + `"]`
		resources := strings.ReplaceAll(strings.Join(s.Resource, " "), "arn:aws:kafka:<region>:<account>:", "")
		if got := actions + " " + resources; s.Effect != "Allow" || got != want {
			t.Errorf("%s: got %s, want %s", right, got, want)
		}
	}
}
