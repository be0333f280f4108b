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

// The client that an Issuer accepts.
const (
	IssuerClient = "bridge client"
	IssuerSecret = "s3cr:t/+%"
)

// Issuer is an OAuth2 and OpenID Connect server for tests. It issues tokens by the client
// credentials grant, and publishes the keys that verify them. Its fields may be changed
// under Lock.
type Issuer struct {
	sync.Mutex
	// Audience is the audience of the tokens.
	Audience string
	// Life is how long a token is valid.
	Life time.Duration
	// Answer, if not nil, answers the requests for tokens.
	Answer http.HandlerFunc
	// Issued has the forms of the requests that got a token.
	Issued []map[string][]string
	// Asked counts the requests for the discovery document.
	Asked atomic.Int64
	// Discovered, if not nil, answers the requests for the discovery document.
	Discovered http.HandlerFunc

	number int64
	server *httptest.Server
	key    *rsa.PrivateKey
	keyID  int
}

// issuers counts the Issuers of the process.
var issuers atomic.Int64

// StartIssuer starts an Issuer, which the end of the test closes. secure selects TLS. The
// tokens have the audience kafka, and are valid for an hour.
func StartIssuer(t testing.TB, secure bool) *Issuer {
	t.Helper()
	i := &Issuer{Audience: "kafka", Life: time.Hour, number: issuers.Add(1)}
	i.Rotate()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token/", i.token)
	mux.HandleFunc("GET /keys", i.keys)
	mux.HandleFunc("GET /.well-known/openid-configuration", i.discover)
	i.server = httptest.NewUnstartedServer(mux)
	i.server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that do not trust it would fill the log
	if secure {
		i.server.StartTLS()
	} else {
		i.server.Start()
	}
	t.Cleanup(i.server.Close)
	return i
}

// TokenURL returns the URL that issues tokens. Clients keep the token of a URL, so no two
// Issuers of the process have the same URL, even on the same port.
func (i *Issuer) TokenURL() string { return fmt.Sprintf("%s/token/%d", i.server.URL, i.number) }

// URL returns the issuer's URL.
func (i *Issuer) URL() string { return i.server.URL }

// KeysURL returns the URL of the keys.
func (i *Issuer) KeysURL() string { return i.server.URL + "/keys" }

// CA returns the certificate of a secure Issuer in PEM.
func (i *Issuer) CA() string { return string(encodePEM("CERTIFICATE", i.server.Certificate().Raw)) }

// Count returns the number of issued tokens.
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
	user, secret, _ := r.BasicAuth() // the client escapes both: RFC 6749, section 2.3.1
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

// Token returns a token, a JWT, without a request. The caller holds the lock.
func (i *Issuer) Token() string { return i.Sign(nil, nil) }

// Sign returns a token. headers and claims, if not nil, replace the usual ones. The caller
// holds the lock.
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
		panic(err) // the key is valid
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
	text, _ := json.Marshal(members) // texts, numbers and lists always encode
	return base64.RawURLEncoding.EncodeToString(text)
}

// Rotate replaces the key. The caller holds the lock.
func (i *Issuer) Rotate() {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err) // the system has no random numbers
	}
	i.key, i.keyID = key, i.keyID+1
}

// Public returns the key that verifies tokens. The caller holds the lock.
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
