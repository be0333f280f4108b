package kafkatest

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"exportbridge/bridge"
)

// AsFault checks the class and the reason of a Fault, and returns it.
func AsFault(t *testing.T, err error, class bridge.Class, reason bridge.Reason) *bridge.Fault {
	t.Helper()
	f, ok := errors.AsType[*bridge.Fault](err)
	if !ok {
		t.Fatalf("error %v is no fault", err)
	}
	if f.Class != class || f.Reason != reason {
		t.Fatalf("fault %v has class %d, reason %q; want %d, %q", f, f.Class, f.Reason, class, reason)
	}
	if f.Code == "" {
		t.Errorf("fault %v has no code", f)
	}
	return f
}

// Reports collects reports about Kafka. The zero value is ready for use.
type Reports struct {
	mu   sync.Mutex // guards seen
	seen []error
}

// Add adds a report.
func (r *Reports) Add(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, err)
}

// Forget drops all reports so far.
func (r *Reports) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = nil
}

// Seen returns all reports.
func (r *Reports) Seen() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]error(nil), r.seen...)
}

// Await waits until the newest report suits. It allows for a busy machine.
func (r *Reports) Await(t *testing.T, what string, suits func(error) bool) error {
	t.Helper()
	deadline := time.After(Patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		seen := r.Seen()
		var last error
		if n := len(seen); n > 0 {
			last = seen[n-1]
		}
		if len(seen) > 0 && suits(last) {
			return last
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("no report of %s within %s; last of %d: %v", what, Patience, len(seen), last)
		}
	}
}

// Mentions returns a function that accepts an error with all the words.
func Mentions(words ...string) func(error) bool {
	return func(err error) bool {
		if err == nil {
			return false
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				return false
			}
		}
		return true
	}
}

// IsNil accepts the report of brokers that answer.
func IsNil(err error) bool { return err == nil }
