package kafkaclient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"exportbridge/bridge"
)

// The SASL mechanisms, as Kafka names them.
const (
	saslPlain    = "PLAIN"
	saslScram256 = "SCRAM-SHA-256"
	saslScram512 = "SCRAM-SHA-512"
	saslOAuth    = "OAUTHBEARER"
	saslMSK      = "AWS_MSK_IAM"
)

var mechanisms = []string{"", saslPlain, saslScram256, saslScram512, saslOAuth, saslMSK}

// SASL configures how connections log in. Without a mechanism they do not.
type SASL struct {
	SASLMechanism   string        `env:"KAFKA_SASL_MECHANISM" values:"PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER,AWS_MSK_IAM" desc:"SASL mechanism; empty for no authentication"`
	SASLUsername    string        `env:"KAFKA_SASL_USERNAME" desc:"user name for PLAIN and SCRAM; client ID for OAUTHBEARER with KAFKA_SASL_OAUTH_TOKEN_URL" example:"exportbridge"`
	SASLPassword    bridge.Secret `env:"KAFKA_SASL_PASSWORD" secret:"yes" desc:"password; for OAUTHBEARER the client secret, or without KAFKA_SASL_OAUTH_TOKEN_URL the token"`
	OAuthTokenURL   string        `env:"KAFKA_SASL_OAUTH_TOKEN_URL" desc:"URL that issues tokens for OAUTHBEARER, by the client credentials grant" example:"https://login.example.com/oauth/token"`
	OAuthScopes     []string      `env:"KAFKA_SASL_OAUTH_SCOPES" desc:"scopes of the token" example:"kafka"`
	OAuthParams     []string      `env:"KAFKA_SASL_OAUTH_PARAMS" secret:"yes" desc:"further parameters of the token request" example:"audience=kafka"`
	OAuthExtensions []string      `env:"KAFKA_SASL_OAUTH_EXTENSIONS" desc:"SASL extensions sent with the token" example:"logicalCluster=lkc-12345,identityPoolId=pool-abcd"`
	OAuthTLSCA      string        `env:"KAFKA_SASL_OAUTH_TLS_CA" desc:"trusted CA certificates (PEM) of the token URL; empty for the system's"`
	SASLInsecure    bool          `env:"KAFKA_SASL_INSECURE" desc:"allow PLAIN and OAUTHBEARER without TLS, in clear text, and AWS_MSK_IAM without TLS"`
	// SASLPasswordFile is the file that SASLPassword was read from, if any. It is reloaded at
	// every authentication, so that tokens can be rotated. OAuthTLSCAFile is that of
	// OAuthTLSCA, which is reloaded for every request of a token.
	SASLPasswordFile, OAuthTLSCAFile string
}

const (
	// loginTimeout bounds the request for a token or for credentials, so that its failure,
	// not AttemptTimeout, ends an attempt to connect.
	loginTimeout = 5 * time.Second
	// betweenReloads is the least time between two reloads of what brokers refuse: most often
	// it is refused again.
	betweenReloads = time.Minute
)

// loginError is why there is nothing to log in with: no broker was asked. It hides its cause
// from kgo, which would take it for the broker's.
type loginError struct {
	class      bridge.Class
	code, hint string
	retryAfter time.Duration
	err        error
}

func (e *loginError) Error() string { return e.err.Error() }

// Temporary tells kgo whether to retry.
func (e *loginError) Temporary() bool { return e.class != bridge.Permanent }

func (e *loginError) explain(f *bridge.Fault) {
	f.Class, f.Code, f.Hint, f.RetryAfter = e.class, e.code, e.hint, e.retryAfter
	if e.class == bridge.Permanent {
		f.Reason = bridge.ReasonAuth
	}
}

// mechanism returns how connections log in, and what is called when a broker refuses a login.
func (s *SASL) mechanism() (m sasl.Mechanism, refused func()) {
	scramAuth := func(context.Context) (scram.Auth, error) {
		pass, err := s.password()
		return scram.Auth{User: s.SASLUsername, Pass: pass}, err
	}
	switch s.SASLMechanism {
	case saslScram256:
		return scram.Sha256(scramAuth), func() {}
	case saslScram512:
		return scram.Sha512(scramAuth), func() {}
	case saslOAuth:
		source := s.tokens()
		return oauthLogin{s, source}, source.refusedLogin
	case saslMSK:
		return mskLogin{}, msk.refused
	}
	return plain.Plain(func(context.Context) (plain.Auth, error) {
		pass, err := s.password()
		return plain.Auth{User: s.SASLUsername, Pass: pass}, err
	}), func() {}
}

// password returns the current password, so that new connections use a rotated one.
func (s *SASL) password() (string, error) {
	password, err := bridge.Reread(s.SASLPassword.Reveal(), s.SASLPasswordFile)
	if err != nil {
		return "", &loginError{class: bridge.Permanent, code: "password", hint: "check KAFKA_SASL_PASSWORD_FILE",
			err: fmt.Errorf("read KAFKA_SASL_PASSWORD_FILE: %w", err)}
	}
	if s.SASLPasswordFile != "" && strings.TrimSpace(password) == "" { // while it is replaced
		return "", &loginError{class: bridge.Transient, code: "password",
			hint: "write the password, token or secret into the file of KAFKA_SASL_PASSWORD_FILE",
			err:  errors.New("read KAFKA_SASL_PASSWORD_FILE: the file is empty")}
	}
	return password, nil
}

// loginHint is the remedy for a login that brokers refuse.
func (s *SASL) loginHint() string {
	const expects = "compare the token's audience, issuer and scope with what the brokers expect"
	switch {
	case s.SASLMechanism == saslMSK:
		return "allow kafka-cluster:Connect to the AWS identity, and check this machine's clock and AWS_REGION"
	case s.SASLMechanism == saslOAuth && s.OAuthTokenURL != "":
		return expects + "; check KAFKA_SASL_OAUTH_SCOPES, KAFKA_SASL_OAUTH_PARAMS and KAFKA_SASL_OAUTH_EXTENSIONS"
	case s.SASLMechanism == saslOAuth:
		return "renew the token in KAFKA_SASL_PASSWORD; " + expects
	}
	return "check KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD"
}

// Login describes how connections log in, without secrets: the mechanism, and who, or where a
// token or credentials come from. It is empty without SASL.
func (s *SASL) Login() string {
	var from string
	switch {
	case s.SASLMechanism == "":
		return ""
	case s.SASLMechanism == saslMSK:
		from = "credentials from " + msk.source()
	case s.SASLMechanism != saslOAuth:
		from = "user " + s.SASLUsername
	case s.OAuthTokenURL != "":
		from = "token of client " + s.SASLUsername + " from " + tokenHost(s.OAuthTokenURL)
	case s.SASLPasswordFile != "":
		from = "token from KAFKA_SASL_PASSWORD_FILE"
	default:
		from = "token from KAFKA_SASL_PASSWORD"
	}
	return s.SASLMechanism + " (" + from + ")"
}

func (s *SASL) validate(p *bridge.Problems, tls bool) {
	p.OneOf("KAFKA_SASL_MECHANISM", s.SASLMechanism, mechanisms...)
	s.validateOAuth(p)
	switch s.SASLMechanism {
	case "":
		p.Check(s.SASLUsername == "" && s.SASLPassword == "", "KAFKA_SASL_USERNAME",
			"or KAFKA_SASL_PASSWORD is set without a mechanism, for example KAFKA_SASL_MECHANISM=SCRAM-SHA-512")
		return
	case saslMSK:
		s.validateMSK(p, tls)
		return
	case saslOAuth:
		s.validateClient(p)
	default:
		p.Check(s.SASLPassword != "" || s.SASLPasswordFile != "", "KAFKA_SASL_PASSWORD",
			"is empty; for a file set KAFKA_SASL_PASSWORD_FILE=/etc/kafka/password")
		p.Check(s.SASLUsername != "", "KAFKA_SASL_USERNAME", "is empty, for example exportbridge")
	}
	if !strings.HasPrefix(s.SASLMechanism, "SCRAM-") && !tls && !s.SASLInsecure {
		p.Add(bridge.Problemf("KAFKA_SASL_MECHANISM", "is %s, which sends the login in clear text; set "+
			"KAFKA_TLS_ENABLED=true, or KAFKA_SASL_INSECURE=true to allow it", s.SASLMechanism))
	}
}

// validateMSK checks the settings beside AWS_MSK_IAM, whose login is a signed request.
func (s *SASL) validateMSK(p *bridge.Problems, tls bool) {
	for _, v := range []struct{ name, value string }{
		{"KAFKA_SASL_USERNAME", s.SASLUsername}, {"KAFKA_SASL_PASSWORD", s.SASLPassword.Reveal()},
	} {
		p.Check(v.value == "", v.name, "is set, but AWS_MSK_IAM takes credentials from AWS "+
			"(AWS_ACCESS_KEY_ID and others); unset %s", v.name)
	}
	p.Check(tls || s.SASLInsecure, "KAFKA_TLS_ENABLED",
		"is false, but AWS_MSK_IAM requires TLS; set KAFKA_TLS_ENABLED=true")
}

// validateClient checks the settings of the client that requests tokens, or the token.
func (s *SASL) validateClient(p *bridge.Problems) {
	secret := "token"
	if s.OAuthTokenURL != "" {
		secret = "client secret"
		p.Check(s.SASLUsername != "", "KAFKA_SASL_USERNAME",
			"is empty: set it to the client ID for KAFKA_SASL_OAUTH_TOKEN_URL")
	}
	p.Check(s.SASLPassword != "" || s.SASLPasswordFile != "", "KAFKA_SASL_PASSWORD", "is empty: set it to the %s; "+
		"for a file set KAFKA_SASL_PASSWORD_FILE=/etc/kafka/password", secret)
}

// refusal is the error of a login that a broker refuses. kgo's mechanisms report a refused
// login as a protocol error.
func refusal(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{kerr.SaslAuthenticationFailed}, args...)...)
}
