package servers

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The client that an Issuer knows.
const (
	IssuerClient = "bridge client"
	IssuerSecret = "s3cr:t/+%"
)

// Issuer is an OAuth2 and OpenID Connect server of a test: it issues tokens by the client
// credentials grant, and has the keys that verify them. Its fields may be changed under Lock.
type Issuer struct {
	sync.Mutex
	// Audience is that of tokens.
	Audience string
	// Life is that of tokens.
	Life time.Duration
	// Answer, if not nil, answers in place of a token.
	Answer http.HandlerFunc
	// Issued are the forms of the requests that got a token.
	Issued []map[string][]string
	// Asked counts the requests for the discovery document.
	Asked atomic.Int64
	// Discovered, if not nil, answers them.
	Discovered http.HandlerFunc

	number int64
	server *httptest.Server
	key    *rsa.PrivateKey
	keyID  int
}

// issuers counts those of the process.
var issuers atomic.Int64

// StartIssuer starts one for the length of the test, with TLS if secure. Its tokens are for
// the audience kafka, for an hour.
func StartIssuer(t testing.TB, secure bool) *Issuer {
	t.Helper()
	i := &Issuer{Audience: "kafka", Life: time.Hour, number: issuers.Add(1)}
	i.Rotate()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token/", i.token)
	mux.HandleFunc("GET /keys", i.keys)
	mux.HandleFunc("GET /.well-known/openid-configuration", i.discover)
	i.server = httptest.NewUnstartedServer(mux)
	i.server.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not trust it
	if secure {
		i.server.StartTLS()
	} else {
		i.server.Start()
	}
	t.Cleanup(i.server.Close)
	return i
}

// TokenURL is where it issues tokens. No other Issuer of the process has it, also not one
// that later gets the same port: clients keep the token of a URL.
func (i *Issuer) TokenURL() string { return fmt.Sprintf("%s/token/%d", i.server.URL, i.number) }

// URL names it.
func (i *Issuer) URL() string { return i.server.URL }

// KeysURL is where it has its keys.
func (i *Issuer) KeysURL() string { return i.server.URL + "/keys" }

// CA is the certificate of a secure one, in PEM.
func (i *Issuer) CA() string { return string(encodePEM("CERTIFICATE", i.server.Certificate().Raw)) }

// Count returns how many tokens it has issued.
func (i *Issuer) Count() int {
	i.Lock()
	defer i.Unlock()
	return len(i.Issued)
}

func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	i.Lock()
	defer i.Unlock()
	if i.Answer != nil {
		i.Answer(w, r)
		return
	}
	user, secret, _ := r.BasicAuth() // both escaped, RFC 6749, section 2.3.1
	if user != "bridge+client" || secret != "s3cr%3At%2F%2B%25" || r.FormValue("grant_type") != "client_credentials" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"error":"invalid_client"}`)
		return
	}
	i.Issued = append(i.Issued, r.PostForm)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"access_token": i.Token(), "token_type": "Bearer", "expires_in": int(i.Life.Seconds()),
	})
}

// Token returns a token, a JWT, without a request. The caller has the lock.
func (i *Issuer) Token() string { return i.Sign(nil, nil) }

// Sign returns a token with headers and claims in place of the usual ones, nil for none. The
// caller has the lock.
func (i *Issuer) Sign(headers, claims map[string]any) string {
	now := time.Now()
	text := part(map[string]any{"alg": "RS256", "typ": "JWT", "kid": strconv.Itoa(i.keyID)}, headers) + "." +
		part(map[string]any{
			"iss": i.server.URL, "sub": "bridge", "aud": i.Audience, "jti": fmt.Sprint(now.UnixNano()),
			"iat": now.Unix(), "exp": now.Add(i.Life).Unix(),
		}, claims)
	digest := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, digest[:])
	if err != nil {
		panic(err) // the key was made here
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// part encodes a part of a token.
func part(members, changed map[string]any) string {
	for name, value := range changed {
		if members[name] = value; value == nil {
			delete(members, name)
		}
	}
	text, _ := json.Marshal(members) // texts, numbers and lists
	return base64.RawURLEncoding.EncodeToString(text)
}

// Rotate replaces the key. The caller has the lock.
func (i *Issuer) Rotate() {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err) // the system has no random numbers
	}
	i.key, i.keyID = key, i.keyID+1
}

// Public is the key that verifies tokens. The caller has the lock.
func (i *Issuer) Public() *rsa.PublicKey { return &i.key.PublicKey }

func (i *Issuer) discover(w http.ResponseWriter, r *http.Request) {
	i.Lock()
	defer i.Unlock()
	if i.Asked.Add(1); i.Discovered != nil {
		i.Discovered(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.server.URL, "jwks_uri": i.KeysURL()})
}

func (i *Issuer) keys(w http.ResponseWriter, _ *http.Request) {
	i.Lock()
	defer i.Unlock()
	number := func(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]any{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": strconv.Itoa(i.keyID),
		"n": number(i.key.N), "e": number(big.NewInt(int64(i.key.E))),
	}}})
}
