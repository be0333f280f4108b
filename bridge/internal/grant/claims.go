package grant

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// lastExpiry bounds a JWT's exp, in seconds: a larger one is none.
const lastExpiry = 1 << 40

// Claims are those of a JWT that its servers check.
type Claims struct {
	Issuer   string  `json:"iss"`
	Audience any     `json:"aud"` // a text or a list
	Expiry   float64 `json:"exp"` // in seconds since 1970; 0 without one
}

// ReadClaims returns the claims of a token, without verifying them; nil if it is no JWT.
func ReadClaims(token string) *Claims {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil
	}
	var c Claims
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &c) != nil {
		return nil
	}
	return &c
}

// Ends is when the token expires; zero if that is unknown. nil has no end.
func (c *Claims) Ends() time.Time {
	if c == nil || c.Expiry <= 0 || c.Expiry > lastExpiry {
		return time.Time{}
	}
	return time.Unix(int64(c.Expiry), 0)
}
