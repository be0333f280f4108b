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
func (c *Config) mechanism() (m sasl.Mechanism, refused func()) {
	scramAuth := func(context.Context) (scram.Auth, error) {
		pass, err := c.password()
		return scram.Auth{User: c.SASLUsername, Pass: pass}, err
	}
	switch c.SASLMechanism {
	case saslScram256:
		return scram.Sha256(scramAuth), func() {}
	case saslScram512:
		return scram.Sha512(scramAuth), func() {}
	case saslOAuth:
		source := c.tokens()
		return oauthLogin{c, source}, source.refusedLogin
	case saslMSK:
		return mskLogin{}, msk.refused
	}
	return plain.Plain(func(context.Context) (plain.Auth, error) {
		pass, err := c.password()
		return plain.Auth{User: c.SASLUsername, Pass: pass}, err
	}), func() {}
}

// password returns the current password: connections use a rotated one.
func (c *Config) password() (string, error) {
	password, err := bridge.Reread(c.SASLPassword.Reveal(), c.SASLPasswordFile)
	if err != nil {
		return "", &loginError{class: bridge.Permanent, code: "password", hint: "check KAFKA_SASL_PASSWORD_FILE",
			err: fmt.Errorf("read KAFKA_SASL_PASSWORD_FILE: %w", err)}
	}
	if c.SASLPasswordFile != "" && strings.TrimSpace(password) == "" { // while it is replaced
		return "", &loginError{class: bridge.Transient, code: "password",
			hint: "write the password, token or secret into the file of KAFKA_SASL_PASSWORD_FILE",
			err:  errors.New("read KAFKA_SASL_PASSWORD_FILE: the file is empty")}
	}
	return password, nil
}

// loginHint is the remedy for a login that brokers refuse.
func (c *Config) loginHint() string {
	const expects = "compare the token's audience, issuer and scope with what the brokers expect"
	switch {
	case c.SASLMechanism == saslMSK:
		return "allow kafka-cluster:Connect to the AWS identity, and check this machine's clock and AWS_REGION"
	case c.SASLMechanism == saslOAuth && c.OAuthTokenURL != "":
		return expects + "; check KAFKA_SASL_OAUTH_SCOPES, KAFKA_SASL_OAUTH_PARAMS and KAFKA_SASL_OAUTH_EXTENSIONS"
	case c.SASLMechanism == saslOAuth:
		return "renew the token in KAFKA_SASL_PASSWORD; " + expects
	}
	return "check KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD"
}

// Login describes how connections log in, without secrets: the mechanism, and who, or where a
// token or credentials come from. It is empty without SASL.
func (c *Config) Login() string {
	var from string
	switch {
	case c.SASLMechanism == "":
		return ""
	case c.SASLMechanism == saslMSK:
		from = "credentials from " + msk.source()
	case c.SASLMechanism != saslOAuth:
		from = "user " + c.SASLUsername
	case c.OAuthTokenURL != "":
		from = "token of client " + c.SASLUsername + " from " + tokenHost(c.OAuthTokenURL)
	case c.SASLPasswordFile != "":
		from = "token from KAFKA_SASL_PASSWORD_FILE"
	default:
		from = "token from KAFKA_SASL_PASSWORD"
	}
	return c.SASLMechanism + " (" + from + ")"
}

func (c *Config) validateSASL(p *bridge.Problems) {
	p.OneOf("KAFKA_SASL_MECHANISM", c.SASLMechanism, mechanisms...)
	c.validateOAuth(p)
	switch c.SASLMechanism {
	case "":
		p.Check(c.SASLUsername == "" && c.SASLPassword == "", "KAFKA_SASL_USERNAME",
			"or KAFKA_SASL_PASSWORD is set without a mechanism, for example KAFKA_SASL_MECHANISM=SCRAM-SHA-512")
		return
	case saslMSK:
		c.validateMSK(p)
		return
	case saslOAuth:
		c.validateClient(p)
	default:
		p.Check(c.SASLPassword != "" || c.SASLPasswordFile != "", "KAFKA_SASL_PASSWORD",
			"is empty; for a file set KAFKA_SASL_PASSWORD_FILE=/etc/kafka/password")
		p.Check(c.SASLUsername != "", "KAFKA_SASL_USERNAME", "is empty, for example exportbridge")
	}
	if !strings.HasPrefix(c.SASLMechanism, "SCRAM-") && !c.TLSEnabled && !c.SASLInsecure {
		p.Add(bridge.Problemf("KAFKA_SASL_MECHANISM", "is %s, which sends the login in clear text; set "+
			"KAFKA_TLS_ENABLED=true, or KAFKA_SASL_INSECURE=true to allow it", c.SASLMechanism))
	}
}

// validateMSK checks the settings beside AWS_MSK_IAM, whose login is a signed request.
func (c *Config) validateMSK(p *bridge.Problems) {
	for _, v := range []struct{ name, value string }{
		{"KAFKA_SASL_USERNAME", c.SASLUsername}, {"KAFKA_SASL_PASSWORD", c.SASLPassword.Reveal()},
	} {
		p.Check(v.value == "", v.name, "is set, but AWS_MSK_IAM takes credentials from AWS "+
			"(AWS_ACCESS_KEY_ID and others); unset %s", v.name)
	}
	p.Check(c.TLSEnabled || c.SASLInsecure, "KAFKA_TLS_ENABLED",
		"is false, but AWS_MSK_IAM requires TLS; set KAFKA_TLS_ENABLED=true")
}

// validateClient checks who requests tokens, or the token.
func (c *Config) validateClient(p *bridge.Problems) {
	secret := "token"
	if c.OAuthTokenURL != "" {
		secret = "client secret"
		p.Check(c.SASLUsername != "", "KAFKA_SASL_USERNAME",
			"is empty: set it to the client ID for KAFKA_SASL_OAUTH_TOKEN_URL")
	}
	p.Check(c.SASLPassword != "" || c.SASLPasswordFile != "", "KAFKA_SASL_PASSWORD", "is empty: set it to the %s; "+
		"for a file set KAFKA_SASL_PASSWORD_FILE=/etc/kafka/password", secret)
}

// refusal is the error of a login that a broker refuses. kgo's mechanisms report a refused
// login as a protocol error.
func refusal(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{kerr.SaslAuthenticationFailed}, args...)...)
}
