// Package ratelimit shares a rate limit, and the delay that the API requests, among the clients
// of an API key.
package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"exportbridge/bridge"
)

// Code and Hint belong to the bridge.Fault of a 429, and of a request that was not sent
// because the delay of an earlier 429 lasts.
const (
	Code = "429"
	Hint = "wait for the requested delay; to lower the request rate set EXPORT_RATE_LIMIT, for example 1/s"
)

// Limits has the limits by API key. The zero value is ready for use, and may be used
// concurrently.
//
// All streams of a key together have the highest of their limits, and each stream has its
// own limit. Clients beside the streams have half of the common limit together, so that the
// streams keep the other half. A client counts until it leaves.
type Limits struct {
	mu    sync.Mutex           // guards byKey, and users and streams of each
	byKey map[string]*keyLimit // by the key, or by what replaces it
}

// Of returns the turns of a client that shares the limit of a key and has its own limit.
// beside is set for a client that is not a stream. Each client calls Leave once.
func (l *Limits) Of(key string, own rate.Limit, beside bool) *Turns {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.byKey[key]
	if k == nil {
		if l.byKey == nil {
			l.byKey = make(map[string]*keyLimit)
		}
		k = &keyLimit{all: rate.NewLimiter(rate.Inf, 1), beside: rate.NewLimiter(rate.Inf, 1),
			streams: make(map[rate.Limit]int)}
		l.byKey[key] = k
	}
	k.users++
	t := &Turns{of: l, key: k, own: own, beside: beside}
	if beside {
		t.limits = []*rate.Limiter{rate.NewLimiter(own, 1), k.beside, k.all}
		return t
	}
	t.limits = []*rate.Limiter{rate.NewLimiter(own, 1), k.all}
	k.streams[own]++
	k.share()
	return t
}

// keyLimit is the limit of an API key.
type keyLimit struct {
	all, beside *rate.Limiter
	users       int                // guarded by Limits.mu
	streams     map[rate.Limit]int // how many have each limit; guarded by Limits.mu

	mu   sync.Mutex // guards till
	till time.Time  // no request may be sent before this time
}

// share sets the common limits by those of the streams. Without streams they stay: in a reload,
// old streams may leave before new ones come. The caller holds Limits.mu.
func (k *keyLimit) share() {
	if len(k.streams) == 0 {
		return
	}
	highest := slices.Max(slices.Collect(maps.Keys(k.streams)))
	half := highest / 2
	if highest == rate.Inf {
		half = rate.Inf
	}
	k.all.SetLimit(highest)
	k.beside.SetLimit(half)
}

// held returns the fault of a request that would be too early, or nil. It does not wait, so
// that the stream shows the reason.
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

// Turns delays the requests of one client.
type Turns struct {
	of     *Limits
	key    *keyLimit
	own    rate.Limit
	beside bool
	limits []*rate.Limiter // waited for in this order
}

// Leave ends the share of the client in the limit. It is the last call.
func (t *Turns) Leave() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	k := t.key
	k.users--
	if !t.beside {
		if k.streams[t.own]--; k.streams[t.own] == 0 {
			delete(k.streams, t.own)
		}
		k.share()
	}
	if k.users == 0 {
		// A key without clients stays while it is held: the next client has to wait as well.
		maps.DeleteFunc(t.of.byKey, func(_ string, k *keyLimit) bool { return k.users == 0 && k.held() == nil })
	}
}

// Hold makes all clients of the key wait.
func (t *Turns) Hold(wait time.Duration) {
	t.key.mu.Lock()
	defer t.key.mu.Unlock()
	if till := time.Now().Add(wait); till.After(t.key.till) {
		t.key.till = till
	}
}

// Limited reports whether a request may have to wait.
func (t *Turns) Limited() bool {
	return slices.ContainsFunc(t.limits, func(l *rate.Limiter) bool { return l.Limit() != rate.Inf })
}

// Wait waits until a request may be sent.
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
	return t.key.held() // another client may have got a 429
}
