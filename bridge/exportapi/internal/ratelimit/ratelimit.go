// Package ratelimit makes the clients of an API key share its rate limit, and the delay that
// the API requests of one of them.
package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"exportbridge/bridge"
)

// Code and Hint are those of the bridge.Fault of a limit: a 429, or a request that was not
// sent because of the delay that another one's requested.
const (
	Code = "429"
	Hint = "wait for the requested delay; to lower the request rate set EXPORT_RATE_LIMIT, for example 1/s"
)

// Limits are the limits by API key. The zero value is ready for use; it may be used
// concurrently.
//
// Streams of the same key together have the highest of their limits, and each has its
// own. Clients beside the streams together have half of it, so that the streams keep the
// other half.
type Limits struct {
	mu    sync.Mutex           // guards byKey
	byKey map[string]*keyLimit // or by what stands for one
}

// Of returns the turns of a client that shares the limit of a key, and has its own. beside
// is set for one that is no stream.
func (l *Limits) Of(key string, own rate.Limit, beside bool) *Turns {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.byKey[key]
	if k == nil {
		if l.byKey == nil {
			l.byKey = make(map[string]*keyLimit)
		}
		k = &keyLimit{all: rate.NewLimiter(rate.Inf, 1), beside: rate.NewLimiter(rate.Inf, 1)}
		l.byKey[key] = k
	}
	if beside {
		return &Turns{key: k, limits: []*rate.Limiter{rate.NewLimiter(own, 1), k.beside, k.all}}
	}
	k.highest = max(k.highest, own)
	half := k.highest / 2
	if k.highest == rate.Inf {
		half = rate.Inf
	}
	k.all.SetLimit(k.highest)
	k.beside.SetLimit(half)
	return &Turns{key: k, limits: []*rate.Limiter{rate.NewLimiter(own, 1), k.all}}
}

// keyLimit is the limit of an API key.
type keyLimit struct {
	all, beside *rate.Limiter
	highest     rate.Limit // of the streams; guarded by Limits.mu

	mu   sync.Mutex // guards till
	till time.Time  // the API requested to send nothing before
}

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
		Class: bridge.Throttled, Code: Code, RetryAfter: left, Hint: Hint, Unsent: true,
		Err: fmt.Errorf("no request for %s: the API asked the clients with this key to wait", left.Round(time.Second)),
	}
}

// Turns are the turns of a client's requests.
type Turns struct {
	key    *keyLimit
	limits []*rate.Limiter // waited for in this order
}

// Hold makes all clients of the key wait.
func (t *Turns) Hold(wait time.Duration) { t.key.hold(wait) }

// Limited reports whether requests may have to wait.
func (t *Turns) Limited() bool {
	for _, l := range t.limits {
		if l.Limit() != rate.Inf {
			return true
		}
	}
	return false
}

// Wait waits for the turn of a request.
func (t *Turns) Wait(ctx context.Context) *bridge.Fault {
	if fault := t.key.held(); fault != nil {
		return fault
	}
	if t.Limited() {
		defer bridge.Waiting(ctx)()
	}
	for _, l := range t.limits {
		if err := l.Wait(ctx); err != nil {
			// Wait also refuses when ctx would end before the turn comes.
			return &bridge.Fault{Code: "timeout", Unsent: true, Err: errors.New("rate-limit wait exceeds the deadline"),
				Hint: "check EXPORT_RATE_LIMIT"}
		}
	}
	return t.key.held() // it may have begun
}
