package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// mostValues is how many values a label can get beyond those that are
	// expected. Whoever answers our requests chooses some of them.
	mostValues = 20
	// longestValue is the longest of them, in bytes.
	longestValue = 50
	// otherValue stands for all further ones.
	otherValue = "other"
)

// bounded is a counter with one label beside the stream, whose values are
// bounded in number. Its methods may be called concurrently.
type bounded struct {
	vec      *prometheus.CounterVec
	expected []string
	seen     *seen
}

// seen are the values that a label has had.
type seen struct {
	mu     sync.RWMutex // guards values
	values map[string]bool
	most   int
}

func (m *Metrics) bounded(name, help, label string, expected ...string) bounded {
	b := bounded{vec: m.counter(name, help, label), expected: expected, seen: &seen{values: make(map[string]bool), most: len(expected) + mostValues}}
	for _, value := range expected {
		b.seen.values[value] = true
	}
	return b
}

func (b bounded) initialise(stream string) {
	for _, value := range b.expected {
		b.vec.WithLabelValues(stream, value)
	}
}

func (b bounded) inc(stream, value string) { b.add(stream, value, 1) }

func (b bounded) add(stream, value string, n int) {
	b.vec.WithLabelValues(stream, b.seen.admit(value)).Add(float64(n))
}

// admit returns the value, or other where it is one too many or no word.
func (s *seen) admit(value string) string {
	s.mu.RLock()
	known := s.values[value]
	s.mu.RUnlock()
	if known {
		return value
	}
	if !isWord(value) {
		return otherValue
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.values) >= s.most && !s.values[value] {
		return otherValue
	}
	s.values[value] = true
	return value
}

// isWord reports whether a label value is as short and plain as our own.
func isWord(value string) bool {
	for _, c := range []byte(value) {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return value != "" && len(value) <= longestValue
}
