package exportapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"exportbridge/bridge"
)

// Limits are what the clients of a process share by their API key, or if they have none
// by their URL, static headers and parameters, and client certificate: a rate limit, and
// the delay that the API requests with a 429. The zero value is ready for use; it may be
// used concurrently.
//
// Streams of the same key together have the highest of their RateLimits, and each has its
// own. Clients with Beside set together have half of it, so that the streams keep the
// other half.
type Limits struct {
	mu    sync.Mutex           // guards byKey
	byKey map[string]*keyLimit // or by what stands for one
}

// of returns the limit that a client shares, with its own.
func (l *Limits) of(cfg *Config, own rate.Limit) *turns {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := "key " + strings.Join([]string{cfg.User, cfg.OAuth2ClientID, cfg.APIKey.Reveal()}, " ")
	if cfg.APIKey == "" { // what else tells tenants apart
		id = strings.Join([]string{"url", cfg.URL, cfg.Headers.Reveal(), cfg.Params.Reveal(), cfg.TLSCert}, "\x00")
	}
	k := l.byKey[id]
	if k == nil {
		if l.byKey == nil {
			l.byKey = make(map[string]*keyLimit)
		}
		k = &keyLimit{all: rate.NewLimiter(rate.Inf, 1), beside: rate.NewLimiter(rate.Inf, 1)}
		l.byKey[id] = k
	}
	if cfg.Beside {
		return &turns{key: k, limits: []*rate.Limiter{rate.NewLimiter(own, 1), k.beside, k.all}}
	}
	k.highest = max(k.highest, own)
	half := k.highest / 2
	if k.highest == rate.Inf {
		half = rate.Inf
	}
	k.all.SetLimit(k.highest)
	k.beside.SetLimit(half)
	return &turns{key: k, limits: []*rate.Limiter{rate.NewLimiter(own, 1), k.all}}
}

// keyLimit is the limit of an API key.
type keyLimit struct {
	all, beside *rate.Limiter
	highest     rate.Limit // of the streams; guarded by Limits.mu

	mu   sync.Mutex // guards till
	till time.Time  // the API requested to send nothing before
}

// hold makes all clients of the key wait.
func (k *keyLimit) hold(wait time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if till := time.Now().Add(wait); till.After(k.till) {
		k.till = till
	}
}

// held returns the fault of a request that would be too early, or nil. It is returned
// rather than waited for, so that the stream shows why it waits.
func (k *keyLimit) held() *bridge.Fault {
	k.mu.Lock()
	defer k.mu.Unlock()
	left := time.Until(k.till)
	if left <= 0 {
		return nil
	}
	return &bridge.Fault{
		Class: bridge.Throttled, Code: codeThrottled, RetryAfter: left, Hint: hintThrottled, Unsent: true,
		Err: fmt.Errorf("no request for %s: the API asked the clients with this key to wait", left.Round(time.Second)),
	}
}

// turns are the turns of a client's requests.
type turns struct {
	key    *keyLimit
	limits []*rate.Limiter // waited for in this order
}

// limited reports whether requests may have to wait.
func (t *turns) limited() bool {
	for _, l := range t.limits {
		if l.Limit() != rate.Inf {
			return true
		}
	}
	return false
}

// wait waits for the turn of a request.
func (t *turns) wait(ctx context.Context) *bridge.Fault {
	if fault := t.key.held(); fault != nil {
		return fault
	}
	if t.limited() {
		defer bridge.Waiting(ctx)()
	}
	for _, l := range t.limits {
		if err := l.Wait(ctx); err != nil {
			// Wait also refuses when ctx would end before the turn comes.
			return &bridge.Fault{Code: codeTimeout, Unsent: true, Err: errors.New("rate-limit wait exceeds the deadline"), Hint: "check EXPORT_RATE_LIMIT"}
		}
	}
	return t.key.held() // it may have begun
}
