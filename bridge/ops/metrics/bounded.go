package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// mostValues is the maximum number of values of a label besides the expected ones.
	// Servers choose some values.
	mostValues = 20
	// longestValue is the maximum length of a value, in bytes.
	longestValue = 50
	// otherValue replaces all further values.
	otherValue = "other"
)

// bounded is a counter with one label beside the stream, which has a bounded number of
// values. Its methods may be called concurrently.
type bounded struct {
	streams
	vec  *prometheus.CounterVec
	seen *seen
}

// seen are the values of a label so far.
type seen struct {
	mu     sync.RWMutex // guards values
	values map[string]bool
	most   int
}

func (m *Metrics) bounded(s scope, name, help, label string, expected ...string) bounded {
	b := bounded{m.streams(s), m.counterVec(name, help, label),
		&seen{values: make(map[string]bool), most: len(expected) + mostValues}}
	for _, value := range expected {
		b.seen.values[value] = true
	}
	if s == always && !m.perStream {
		expected = expected[:1]
	}
	m.start(s, func(stream string) {
		for _, value := range expected {
			b.vec.WithLabelValues(stream, value)
		}
	})
	return b
}

func (b bounded) inc(stream, value string) { b.add(stream, value, 1) }

// add adds n, which makes the series unless n is 0.
func (b bounded) add(stream, value string, n int) {
	if n != 0 {
		b.vec.WithLabelValues(b.label(stream), b.seen.admit(value)).Add(float64(n))
	}
}

// admit returns the value, or otherValue if it is no word or exceeds the bound.
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

// isWord reports whether a value is short and consists of a-z, 0-9, - and _.
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
