package ops_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/ops"
	"exportbridge/bridge/ops/door"
)

// oidcConfig accepts tokens of the issuer besides named tokens.
func oidcConfig(p people, issuer *servers.Issuer) ops.Config {
	cfg := p.config()
	cfg.OIDC = door.DefaultOIDC()
	cfg.OIDC.Issuer, cfg.OIDC.Audience = issuer.URL(), "kafka"
	cfg.OIDC.ReadRoles, cfg.OIDC.ActRoles = []string{"viewer"}, []string{"operator", "admin"}
	return cfg
}

type claims = map[string]any

func sign(issuer *servers.Issuer, header, claims claims) string {
	issuer.Lock()
	defer issuer.Unlock()
	return issuer.Sign(header, claims)
}

// symmetric signs the claims of a token with a text as the secret.
func symmetric(token string, secret []byte) string {
	parts := strings.Split(token, ".")
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","kid":"1"}`)) + "." + parts[1]
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// TestOIDCLogin attacks a server that accepts tokens of an issuer.
func TestOIDCLogin(t *testing.T) {
	t.Parallel()
	issuer, other, p := servers.StartIssuer(t, false), servers.StartIssuer(t, false), newPeople(t)
	const status, wrong, refused = "GET /api/v1/status", "the token is wrong", "the token is not accepted"
	// Tokens whose times are close to a limit are signed when they are sent: a test may take long.
	const behind, early = "from a clock that is behind", "not valid yet"
	closely := map[string]func(time.Time) claims{
		behind: func(now time.Time) claims { return claims{"exp": now.Add(-30 * time.Second).Unix()} },
		early:  func(now time.Time) claims { return claims{"nbf": now.Add(2 * time.Minute).Unix()} },
	}
	viewer, operator := claims{"roles": []string{"viewer"}}, claims{"roles": "operator"}
	with := func(more claims) string {
		all := claims{"roles": []string{"operator"}}
		maps.Copy(all, more)
		return sign(issuer, nil, all)
	}
	head := func(header claims) string { return sign(issuer, header, operator) }
	right := sign(issuer, nil, operator)
	parts := strings.Split(right, ".")
	encode := base64.RawURLEncoding.EncodeToString
	forged := sign(other, claims{"kid": "1"}, claims{"iss": issuer.URL(), "roles": "operator"})
	now := time.Now()
	der := must.Get(x509.MarshalPKIXPublicKey(issuer.Public()))(t)
	for _, tc := range []struct {
		name, line, token string
		code              int
		text              string
	}{
		{"read", status, sign(issuer, nil, viewer), 200, ""},
		{"read as one who may act", status, right, 200, ""},
		{"act", pausePath, right, 200, ""},
		{"a named token", status, p.reader, 200, ""},
		{"one of several audiences", status, with(claims{"aud": []string{"other", "kafka"}}), 200, ""},
		{"no key id", status, head(claims{"kid": nil}), 200, ""},
		{"the clock of the issuer is ahead", status, with(claims{"nbf": now.Add(30 * time.Second).Unix()}), 200, ""},
		{"the clock of the issuer is behind", status, behind, 200, ""},

		{"1 alg none", status, encode([]byte(`{"alg":"none"}`)) + "." + parts[1] + ".", 401, wrong},
		{"2 alg none with a signature", status, encode([]byte(`{"alg":"none"}`)) + "." + parts[1] + "." + parts[2], 401, wrong},
		{"3 alg None", status, encode([]byte(`{"alg":"None"}`)) + "." + parts[1] + ".", 401, wrong},
		{"4 HS256 with the public key", status,
			symmetric(right, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), 401, wrong},
		{"5 HS256 with the modulus", status, symmetric(right, issuer.Public().N.Bytes()), 401, wrong},
		{"6 HS256 without a secret", status, symmetric(right, nil), 401, wrong},
		{"7 no signature", status, parts[0] + "." + parts[1] + ".", 401, wrong},
		{"8 another token's signature", status, parts[0] + "." + parts[1] + "." + strings.Split(sign(issuer, nil, viewer), ".")[2], 401, wrong},
		{"9 changed claims", status, parts[0] + "." + encode([]byte(`{"roles":"admin"}`)) + "." + parts[2], 401, wrong},
		{"10 signed by another issuer's key", status, forged, 401, wrong},
		{"11 a token of another issuer", status, sign(other, nil, operator), 401, wrong},
		{"12 its key in the header", status, withKey(t, issuer), 401, wrong},
		{"13 an address of keys in the header", status, sign(other, claims{"jku": other.KeysURL(), "kid": "9"}, claims{"iss": issuer.URL(), "roles": "operator"}), 401, wrong},
		{"14 a critical header", status, head(claims{"crit": []string{"x"}, "x": 1}), 401, wrong},
		{"15 a key for another algorithm", status, head(claims{"alg": "PS256"}), 401, wrong},
		{"16 wrong audience", status, with(claims{"aud": "another"}), 401, refused},
		{"17 an audience that begins so", status, with(claims{"aud": "kafka2"}), 401, refused},
		{"18 no audience", status, with(claims{"aud": nil}), 401, refused},
		{"19 wrong issuer", status, with(claims{"iss": "https://evil.example"}), 401, refused},
		{"20 the issuer with a slash", status, with(claims{"iss": issuer.URL() + "/"}), 401, refused},
		{"21 no issuer", status, with(claims{"iss": nil}), 401, refused},
		{"22 expired", status, with(claims{"exp": now.Add(-2 * time.Minute).Unix()}), 401, "the token expired at 20"},
		{"23 no expiry", status, with(claims{"exp": nil}), 401, "expired"},
		{"24 an expiry in words", status, with(claims{"exp": "tomorrow"}), 401, refused},
		{"25 not valid yet", status, early, 401, "not valid yet"},
		{"26 a huge token", status, with(claims{"x": strings.Repeat("x", 64<<10)}), 401, wrong},
		{"27 the token in the query", status + "?access_token=" + right, "", 401, "a token is required"},
		{"28 JSON in place of a token", status, fmt.Sprintf(`{"protected":%q,"payload":%q,"signature":%q}`, parts[0], parts[1], parts[2]), 401, wrong},
		{"29 five parts", status, right + "." + parts[1] + "." + parts[2], 401, wrong},
		{"30 two dots", status, "..", 401, wrong},
		{"31 no role", status, with(claims{"roles": nil}), 403, "gives bridge no role"},
		{"32 another role", status, with(claims{"roles": []any{"operators", 1, nil, []string{"operator"}}}), 403, "no role"},
		{"33 two roles in one text", status, with(claims{"roles": "x operator"}), 403, "no role"},
		{"34 roles as names", status, with(claims{"roles": claims{"operator": true}}), 403, "no role"},
		{"35 acts with the role read", pausePath, sign(issuer, nil, viewer), 403, "bridge has the role read"},
		{"36 no name", status, with(claims{"sub": nil}), 401, "the claim sub"},
		{"37 a name with a line", status, with(claims{"sub": "bridge\nwho=alice"}), 401, "the claim sub"},
		{"38 a name that is no text", status, with(claims{"sub": []string{"bridge"}}), 401, refused},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(oidcConfig(p, issuer))
			if times := closely[tc.token]; times != nil {
				tc.token = with(times(time.Now()))
			}
			a := ask{line: tc.line, peer: loginPeer, header: bearer(tc.token)}
			if tc.line == pausePath {
				a.body = anyReason
			}
			if tc.token == "" {
				a.header = nil
			}
			w := s.do(a)
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.text) {
				t.Errorf("%d %s, want %d with %q", w.Code, w.Body, tc.code, tc.text)
			}
			if acted := len(s.control.orders) > 0; acted != (tc.name == "act") {
				t.Errorf("acted: %v", acted)
			}
			if tc.code != 200 && tc.token != ".." && tc.token != "" && strings.Contains(w.Body.String(), tc.token) {
				t.Errorf("the answer tells the token: %s", w.Body)
			}
		})
	}
}

// withKey is a token whose header has the key that signed it.
func withKey(t *testing.T, issuer *servers.Issuer) string {
	t.Helper()
	other := servers.StartIssuer(t, false)
	number := func(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }
	key := other.Public()
	return sign(other, claims{"kid": "1", "jwk": claims{"kty": "RSA", "n": number(key.N), "e": number(big.NewInt(int64(key.E)))}},
		claims{"iss": issuer.URL(), "roles": "operator"})
}
