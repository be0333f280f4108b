package door

import (
	"context"
	"crypto/rsa"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"exportbridge/bridge"
)

const (
	// keysInterval is how often the keys are fetched. A withdrawn key is accepted until the
	// next fetch.
	keysInterval = 5 * time.Minute
	// keysPause is the shortest time between two attempts, for all callers together: any
	// client can send tokens with an unknown key.
	keysPause = 5 * time.Second
	// keysRetry is the time between attempts while they fail.
	keysRetry = 10 * time.Second
	// keysTimeout bounds an attempt, which takes two requests.
	keysTimeout = 5 * time.Second
	// maxDocument bounds a response of the issuer, in bytes.
	maxDocument = 1 << 20
	// maxRSA bounds an RSA key, in bits.
	maxRSA = 8 << 10
)

// algorithms are the algorithms with a public key. They exclude "none", and HMAC with the
// public key as the secret.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512, jose.PS256, jose.PS384, jose.PS512, jose.EdDSA,
}

var algorithmNames = func() (names []string) {
	for _, a := range algorithms {
		names = append(names, string(a))
	}
	return names
}()

// Issuer verifies the tokens of an OpenID Connect issuer. It may be used concurrently.
type Issuer struct {
	cfg  OIDC
	log  *slog.Logger
	http *http.Client
	turn chan struct{} // held during an attempt to fetch keys

	// tried is the end of the last attempt, and err its error. Both are owned by the
	// holder of turn.
	tried time.Time
	err   error

	mu   sync.Mutex // guards keys
	keys []jose.JSONWebKey
}

// NewIssuer returns the issuer of valid settings, nil without an issuer. It makes no
// request.
func NewIssuer(cfg OIDC, log *slog.Logger) *Issuer {
	if cfg.Issuer == "" {
		return nil
	}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conf, err := cfg.tls().Config()
		if err != nil {
			return nil, err
		}
		return (&tls.Dialer{Config: conf}).DialContext(ctx, network, addr)
	}
	return &Issuer{cfg: cfg, log: log, turn: make(chan struct{}, 1), http: &http.Client{
		Transport: &http.Transport{DialTLSContext: dial, DisableKeepAlives: true},
		// Keys are fetched only from the URL that the issuer names. A redirect could lead
		// to a host without TLS.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Watch fetches the keys regularly until ctx ends.
func (i *Issuer) Watch(ctx context.Context) {
	for ctx.Err() == nil {
		pause := keysInterval
		if i.fetch(ctx, ctx) != nil {
			pause = keysRetry
		}
		bridge.Sleep(ctx, pause)
	}
}

func (i *Issuer) known() []jose.JSONWebKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys
}

// fetch fetches the keys, until asking ends, and returns the error of the last attempt. If
// another attempt was made shortly before, fetch makes none. ctx ends the wait for the
// attempt of another caller. After a failure the last keys stay in use.
func (i *Issuer) fetch(ctx, asking context.Context) error {
	select {
	case i.turn <- struct{}{}:
		defer func() { <-i.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !i.tried.IsZero() && time.Since(i.tried) < keysPause {
		return i.err
	}
	limited, cancel := context.WithTimeout(asking, keysTimeout)
	defer cancel()
	keys, err := i.ask(limited)
	if asking.Err() != nil { // the server stops
		return asking.Err()
	}
	before := i.err
	i.tried, i.err = time.Now(), err
	switch {
	case i.err == nil:
		i.mu.Lock()
		i.keys = keys
		i.mu.Unlock()
		if before != nil {
			i.log.Info("keys of HTTP_OIDC_ISSUER read again", "issuer", i.cfg.Issuer)
		}
	case before == nil:
		i.log.Error("keys of HTTP_OIDC_ISSUER unreadable", "issuer", i.cfg.Issuer, "error", i.err.Error(),
			"hint", "check HTTP_OIDC_ISSUER, HTTP_OIDC_TLS_CA, DNS and the firewall; the issuer is asked again, "+
				"and keys that were read before stay in use")
	}
	return i.err
}

// ask fetches the keys that the issuer's discovery document names.
func (i *Issuer) ask(ctx context.Context) ([]jose.JSONWebKey, error) {
	var document struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	from := strings.TrimSuffix(i.cfg.Issuer, "/") + "/.well-known/openid-configuration"
	if err := i.get(ctx, from, &document); err != nil {
		return nil, err
	}
	if document.Issuer != i.cfg.Issuer {
		return nil, fmt.Errorf("%s is of the issuer %.200q", from, document.Issuer)
	}
	if u, err := url.Parse(document.Keys); err != nil || !bridge.SecureURL(u) {
		return nil, fmt.Errorf("%s: jwks_uri %.200q is no https URL", from, document.Keys)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := i.get(ctx, document.Keys, &set); err != nil {
		return nil, err
	}
	var keys []jose.JSONWebKey
	for _, text := range set.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(text, &key) == nil && verifies(&key) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s has no public key for signatures", document.Keys)
	}
	return keys, nil
}

// verifies reports whether a key is a public key for signatures. It rejects a long RSA key,
// which takes seconds per token: any client can send tokens for it.
func verifies(key *jose.JSONWebKey) bool {
	modulus, isRSA := key.Key.(*rsa.PublicKey)
	return key.Valid() && key.IsPublic() && (key.Use == "" || key.Use == "sig") &&
		(!isRSA || modulus.N.BitLen() <= maxRSA)
}

func (i *Issuer) get(ctx context.Context, from string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return err
	}
	resp, err := i.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d", from, resp.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxDocument)).Decode(into); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	return nil
}

// attempt is the verification of one signature. It implements oidc.KeySet.
type attempt struct {
	keys    []jose.JSONWebKey
	unknown bool // the token has no key id, or no key has it: a newer key may fit
	signed  bool
}

var errSignature = errors.New("the signature is wrong")

// VerifySignature implements oidc.KeySet.
func (a *attempt) VerifySignature(_ context.Context, token string) ([]byte, error) {
	jws, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return nil, err
	}
	id := jws.Signatures[0].Header.KeyID
	a.unknown = true
	for _, key := range a.keys {
		if id != "" && key.KeyID != id {
			continue
		}
		if payload, err := jws.Verify(key); err == nil {
			a.signed, a.unknown = true, false
			return payload, nil
		}
		a.unknown = id == ""
	}
	return nil, errSignature
}
