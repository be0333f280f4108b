package exportsim

import (
	"math"
	"sync"
	"time"
)

// limiter allows a number of requests a second, and as many at once.
type limiter struct {
	every   time.Duration // between two requests; 0 is no limit
	advance time.Duration // how far ahead of its turn a request may come

	mu   sync.Mutex
	turn time.Time // of the next request; guarded by mu
}

// newLimiter returns a limiter for a rate in requests per second; 0 is no limit.
func newLimiter(rate float64) *limiter {
	if rate == 0 {
		return &limiter{}
	}
	every := time.Duration(min(float64(time.Second)/rate, float64(time.Hour)))
	return &limiter{every: every, advance: time.Duration(math.Ceil(rate)-1) * every}
}

// take allows one request and returns 0, or returns how long to wait for the next try.
func (l *limiter) take() time.Duration {
	if l.every == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.turn.Before(now) {
		l.turn = now
	}
	if early := l.turn.Sub(now) - l.advance; early > 0 {
		return early
	}
	l.turn = l.turn.Add(l.every)
	return 0
}

// left returns how many requests are allowed now. The duration is the time until one is, or
// if some are, until all are.
func (l *limiter) left() (int, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ahead := max(0, time.Until(l.turn))
	if ahead > l.advance {
		return 0, ahead - l.advance
	}
	return int((l.advance-ahead)/l.every) + 1, ahead
}
