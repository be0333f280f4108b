package exportsim

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// authenticate checks the credentials of a request. If they are wrong, it returns the
// refusal and not ok.
func (h *Handler) authenticate(r *http.Request) (answer, bool) {
	f := &h.pages.form
	if h.config.APIKey == "" || f.Auth == none {
		return answer{}, true
	}
	given, want := r.Header.Get(f.KeyHeader), h.config.APIKey
	switch {
	case f.Auth == authBasic:
		var user string
		user, given, _ = r.BasicAuth()
		given, want = user+":"+given, f.User+":"+want
		given = strings.TrimPrefix(given, ":") // empty without credentials
	case f.Auth == authOAuth2:
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if given, want = token, token; !ok || !h.validToken(token, time.Now()) {
			want = ""
		}
	case f.KeyQuery != "":
		given = r.URL.Query().Get(f.KeyQuery)
	case f.KeyPrefix != "":
		want = f.KeyPrefix + " " + want
	}
	invalid := http.StatusUnauthorized
	if f.Auth == authKey && f.Error == "" {
		invalid = http.StatusForbidden
	}
	switch {
	case given == "":
		return h.problem(http.StatusUnauthorized, "unauthorized", "The request has no API key."), false
	case subtle.ConstantTimeCompare([]byte(given), []byte(want)) != 1:
		return h.problem(invalid, "forbidden", "The API key is not valid."), false
	}
	return answer{}, true
}

// serveToken is the token endpoint of OAuth 2.0 for the grant client_credentials. It takes
// the client from the header or from the form.
func (h *Handler) serveToken(w http.ResponseWriter, r *http.Request) {
	client, secret, ok := r.BasicAuth() // both are escaped (RFC 6749, 2.3.1)
	client, _ = url.QueryUnescape(client)
	secret, _ = url.QueryUnescape(secret)
	if !ok {
		client, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	status, reply := http.StatusBadRequest, map[string]any{"error": "invalid_request"}
	now := time.Now()
	switch {
	case r.Method != http.MethodPost:
	case r.PostFormValue("grant_type") != "client_credentials":
		reply["error"] = "unsupported_grant_type"
	case h.pages.form.Audience != "" && r.PostFormValue("audience") != h.pages.form.Audience:
		status, reply["error"] = http.StatusForbidden, "access_denied"
	case client != h.pages.form.User || h.config.APIKey != "" &&
		subtle.ConstantTimeCompare([]byte(secret), []byte(h.config.APIKey)) != 1:
		status, reply["error"] = http.StatusUnauthorized, "invalid_client"
	default:
		status = http.StatusOK
		reply = map[string]any{
			"access_token": h.token(now), "token_type": "Bearer", "expires_in": int(h.config.TokenTTL / time.Second),
		}
	}
	body, _ := json.Marshal(reply) // strings and a number always encode
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone needs no answer
}

// token returns a token that every Handler with the same key accepts until it expires.
func (h *Handler) token(issued time.Time) string {
	at := strconv.FormatInt(issued.UnixMilli(), 10)
	sum := hmac.New(sha256.New, []byte("token "+h.config.APIKey))
	sum.Write([]byte(at))
	return at + "." + hex.EncodeToString(sum.Sum(nil))
}

func (h *Handler) validToken(token string, now time.Time) bool {
	at, _, _ := strings.Cut(token, ".")
	millis, err := strconv.ParseInt(at, 10, 64)
	issued := time.UnixMilli(millis)
	return err == nil && hmac.Equal([]byte(token), []byte(h.token(issued))) && now.Sub(issued) < h.config.TokenTTL
}

// tellLimit sets the headers that describe the rate limit. The headers of the draft have
// the seconds until the reset, the others its time.
func (h *Handler) tellLimit(header http.Header) {
	prefix := h.pages.form.LimitHeaders
	if prefix == "" || h.config.RateLimit == 0 {
		return
	}
	left, wait := h.limiter.left()
	limit := int(h.limiter.advance/h.limiter.every) + 1
	reset := int64((wait + time.Second - 1) / time.Second)
	if prefix == "RateLimit" {
		window := (time.Duration(limit)*h.limiter.every + time.Second - 1) / time.Second
		header.Set("RateLimit-Policy", fmt.Sprintf(`"default";q=%d;w=%d`, limit, window))
		header.Set("RateLimit", fmt.Sprintf(`"default";r=%d;t=%d`, left, reset))
		return
	}
	if strings.HasPrefix(prefix, "X-") {
		reset = h.pages.world.clock().Add(wait + time.Second - 1).Unix()
	}
	header.Set(prefix+"Limit", strconv.Itoa(limit))
	header.Set(prefix+"Remaining", strconv.Itoa(left))
	header.Set(prefix+"Reset", strconv.FormatInt(reset, 10))
}
