package door

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"exportbridge/bridge"
)

// ByOIDC means that an OpenID Connect issuer signed the caller's token.
const ByOIDC Method = "oidc"

const (
	// maxJWT bounds a token in bytes: a longer one is not accepted.
	maxJWT = 8 << 10
	// clockSkew is how far the clocks of the issuer and of this machine may differ.
	clockSkew = time.Minute
)

// OIDC selects the tokens of an OpenID Connect issuer that the server accepts. Without
// Issuer it accepts none.
type OIDC struct {
	Issuer    string   `env:"HTTP_OIDC_ISSUER" desc:"accept bearer tokens (JWT) that this OpenID Connect issuer has signed; reading then requires a token" example:"https://login.example.com"`
	Audience  string   `env:"HTTP_OIDC_AUDIENCE" desc:"audience (aud) that a token of HTTP_OIDC_ISSUER must have" example:"exportbridge"`
	RoleClaim string   `env:"HTTP_OIDC_ROLE_CLAIM" desc:"claim of those tokens with the owner's roles: text or a list, a path with dots in nested claims; the texts in scope and scp are lists with spaces" example:"realm_access.roles"`
	ReadRoles []string `env:"HTTP_OIDC_READ_ROLES" desc:"values of HTTP_OIDC_ROLE_CLAIM whose owners may read" example:"bridge-viewer"`
	ActRoles  []string `env:"HTTP_OIDC_ACT_ROLES" desc:"values of HTTP_OIDC_ROLE_CLAIM whose owners may read and act" example:"bridge-operator"`
	NameClaim string   `env:"HTTP_OIDC_NAME_CLAIM" desc:"claim of those tokens with the owner's name for history and audit log; choose one that users cannot change" example:"email"`
	TLSCA     string   `env:"HTTP_OIDC_TLS_CA" desc:"trusted CA certificates (PEM) of HTTP_OIDC_ISSUER; empty for the system's"`
	TLSCAFile string   // the file of TLSCA, or empty: each connection reads it again
}

// DefaultOIDC returns the defaults.
func DefaultOIDC() OIDC { return OIDC{RoleClaim: "roles", NameClaim: "sub"} }

func (o *OIDC) tls() bridge.ClientTLS {
	return bridge.ClientTLS{Prefix: "HTTP_OIDC_TLS", CA: o.TLSCA, CAFile: o.TLSCAFile}
}

// Validate returns all problems of the settings.
func (o *OIDC) Validate() error {
	const issuer = "HTTP_OIDC_ISSUER"
	var p bridge.Problems
	if o.Issuer == "" {
		unset := DefaultOIDC()
		p.Check(o.Audience+o.TLSCA == "" && len(o.ReadRoles)+len(o.ActRoles) == 0 &&
			(o.RoleClaim == "" || o.RoleClaim == unset.RoleClaim) && (o.NameClaim == "" || o.NameClaim == unset.NameClaim),
			issuer, "is not set, but another setting HTTP_OIDC_ is; set it, for example https://login.example.com")
		return p.Err()
	}
	u, err := url.Parse(o.Issuer)
	p.Check(err == nil && bridge.SecureURL(u) && u.User == nil && u.RawQuery == "" && u.Fragment == "", issuer,
		"must be an https URL without user, query and fragment; http only on this machine, "+
			"for example https://login.example.com")
	p.Check(o.Audience != "", "HTTP_OIDC_AUDIENCE", "is required with %s, for example exportbridge", issuer)
	p.Check(o.RoleClaim != "", "HTTP_OIDC_ROLE_CLAIM", "is required with %s, for example roles", issuer)
	p.Check(o.NameClaim != "", "HTTP_OIDC_NAME_CLAIM", "is required with %s, for example sub", issuer)
	p.Check(len(o.ReadRoles)+len(o.ActRoles) > 0, "HTTP_OIDC_READ_ROLES",
		"or HTTP_OIDC_ACT_ROLES is required with %s: without them nobody may read", issuer)
	p.Check(!slices.Contains(slices.Concat(o.ReadRoles, o.ActRoles), ""), "HTTP_OIDC_READ_ROLES",
		"and HTTP_OIDC_ACT_ROLES must have no empty value")
	p.Add(o.tls().Validate())
	return p.Err()
}

// ErrNoKeys means that the keys of the issuer are not known, so that its tokens cannot be
// verified.
var ErrNoKeys = errors.New("the keys of HTTP_OIDC_ISSUER are not known")

// RefusedError means that the issuer signed a token, but the settings do not accept it.
type RefusedError struct {
	Who  Identity // the owner that the token names without a role; otherwise the zero Identity
	Hint string
	err  error
}

// Error implements error.
func (e *RefusedError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.err }

// Identify returns the owner of a token. The name is empty if the issuer did not sign the
// token. A nil Issuer has signed none. The error is ErrNoKeys, a *RefusedError, or that of
// ctx.
func (i *Issuer) Identify(ctx context.Context, token string) (Identity, error) {
	if i == nil || len(token) > maxJWT {
		return Identity{}, nil
	}
	a := &attempt{keys: i.known()}
	verified, err := i.verify(ctx, a, token)
	if a.unknown {
		// fetch logs its error. A client that disconnects does not end an attempt for
		// others.
		_ = i.fetch(ctx, context.WithoutCancel(ctx))
		if ctx.Err() != nil {
			return Identity{}, ctx.Err()
		}
		a = &attempt{keys: i.known()}
		verified, err = i.verify(ctx, a, token)
	}
	switch {
	case a.unknown && len(a.keys) == 0:
		return Identity{}, ErrNoKeys
	case !a.signed:
		return Identity{}, nil
	case err != nil:
		return Identity{}, &RefusedError{err: explain(err), Hint: "get a new token for HTTP_OIDC_AUDIENCE"}
	}
	return i.cfg.owner(verified)
}

// verify checks signature, issuer, audience and times. It applies clockSkew to a token that
// is not valid yet, because the tolerance of the package is five minutes.
func (i *Issuer) verify(ctx context.Context, a *attempt, token string) (map[string]any, error) {
	verified, err := oidc.NewVerifier(i.cfg.Issuer, a, &oidc.Config{
		ClientID: i.cfg.Audience, SupportedSigningAlgs: algorithmNames,
		Now: func() time.Time { return time.Now().Add(-clockSkew) },
	}).Verify(ctx, token)
	if err != nil {
		return nil, err
	}
	var claims map[string]any
	if err := verified.Claims(&claims); err != nil {
		return nil, err
	}
	if from, ok := claims["nbf"].(float64); ok && from > float64(time.Now().Add(clockSkew).Unix()) {
		return nil, errors.New("the token is not valid yet")
	}
	return claims, nil
}

// explain says, in terms of the settings, what a token of the issuer lacks.
func explain(err error) error {
	if expired, ok := errors.AsType[*oidc.TokenExpiredError](err); ok {
		return fmt.Errorf("the token expired at %s", expired.Expiry.UTC().Format(time.RFC3339))
	}
	return fmt.Errorf("the token is not accepted: %s", strings.TrimPrefix(err.Error(), "oidc: "))
}

// ownerPattern has the characters of e-mail addresses and of subjects. It excludes
// characters that break a line, or hide a part of it.
var ownerPattern = regexp.MustCompile(`^[a-zA-Z0-9_-][a-zA-Z0-9._@+|:/-]{0,127}$`)

// owner returns the owner that the claims of a verified token name.
func (o *OIDC) owner(claims map[string]any) (Identity, error) {
	name, _ := claim(claims, o.NameClaim).(string)
	who := Identity{Name: name, By: ByOIDC}
	verified, told := claims["email_verified"]
	switch {
	case !ownerPattern.MatchString(name):
		return Identity{}, &RefusedError{Hint: "choose another claim in HTTP_OIDC_NAME_CLAIM", err: fmt.Errorf(
			"the claim %s of the token is not a letter or digit, then up to 127 letters, digits, and . _ @ + | : / -",
			o.NameClaim)}
	case o.NameClaim == "email" && told && verified != true && verified != "true":
		return Identity{}, &RefusedError{Hint: "verify the address at HTTP_OIDC_ISSUER",
			err: errors.New("the e-mail address in the token is not verified")}
	}
	roles := listed(claim(claims, o.RoleClaim), o.RoleClaim)
	has := func(role string) bool { return slices.Contains(roles, role) }
	switch {
	case slices.ContainsFunc(o.ActRoles, has):
		who.Role = Act
	case slices.ContainsFunc(o.ReadRoles, has):
		who.Role = Read
	default:
		return Identity{}, &RefusedError{Who: who, Hint: "check HTTP_OIDC_ROLE_CLAIM, HTTP_OIDC_READ_ROLES and " +
			"HTTP_OIDC_ACT_ROLES", err: fmt.Errorf("the claim %s of the token gives %s no role", o.RoleClaim, name)}
	}
	return who, nil
}

// claim returns a claim by its name, or by a path with dots; nil if there is none. The
// names on the path can have dots too, as names of clients do.
func claim(claims any, path string) any {
	object, _ := claims.(map[string]any)
	if value, ok := object[path]; ok {
		return value
	}
	for at := range path {
		if path[at] == '.' {
			if value := claim(object[path[:at]], path[at+1:]); value != nil {
				return value
			}
		}
	}
	return nil
}

// listed returns the texts of a claim. The texts of scopes are separated by spaces (RFC
// 9068 and others). For other claims, a text with a space is one value.
func listed(value any, name string) []string {
	switch value := value.(type) {
	case string:
		if name == "scope" || name == "scp" {
			return strings.Fields(value)
		}
		return []string{value}
	case []any:
		var all []string
		for _, each := range value {
			if text, ok := each.(string); ok {
				all = append(all, text)
			}
		}
		return all
	}
	return nil
}
