package ops

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"

	"exportbridge/bridge"
)

const (
	// samplePause is the minimum time between two samples of a stream.
	samplePause = 200 * time.Millisecond
	// maxSample bounds a shown value, in bytes.
	maxSample = 16 << 10
)

// Sample is a published event. ID, KeyHash and Value may name a person: clients get them only
// if HTTP_SHOW_EVENTS is set.
type Sample struct {
	Stream string `json:"stream"`
	// Time is the record's timestamp; Type, ID and Origin are from the record's headers.
	Time time.Time `json:"time"`
	Type string    `json:"type,omitempty"`
	ID   string    `json:"id,omitempty"`
	// Key is the record's key. The Sampler sets KeyHash, which distinguishes keys within
	// this process.
	Key       string `json:"-"`
	KeyHash   string `json:"key_hash,omitempty"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Origin    string `json:"origin,omitempty"`
	// Value is the event, truncated to 16 KiB.
	Value string `json:"value,omitempty"`
}

// Sampler sends samples of the published events of a stream to the clients that follow the
// stream, five a second at most. It is a bridge.Observer and sends a sample when its batch
// is committed. All methods may be called concurrently. Without clients each costs one
// atomic load. A nil Sampler has no samples.
type Sampler struct {
	values bool // values, ids and hashes of keys may be shown
	salt   []byte

	following atomic.Int32              // the number of clients
	mu        sync.RWMutex              // guards streams
	streams   map[string]*streamSampler // by stream, those with followers
}

// streamSampler has the next sample of one stream, and its followers.
type streamSampler struct {
	mu        sync.Mutex // guards all below
	last      time.Time  // when one was taken
	pending   *Sample    // not committed yet
	followers map[chan Sample]struct{}
}

// NewSampler returns a Sampler. values exposes the values of events, their ids and hashes
// of their keys.
func NewSampler(values bool) *Sampler {
	return &Sampler{values: values, salt: []byte(rand.Text()), streams: make(map[string]*streamSampler)}
}

// of returns the sampler of a stream, nil if no client follows the stream.
func (s *Sampler) of(stream string) *streamSampler {
	if s.following.Load() == 0 {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.streams[stream]
}

// Offer takes a sample if one is due. It calls make only for a sample; make leaves Value
// empty unless values is true.
func (s *Sampler) Offer(stream string, make func(values bool) Sample) {
	l := s.of(stream)
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.last) < samplePause {
		return
	}
	sample := make(s.values)
	sample.Stream, sample.Value = stream, cut(sample.Value, maxSample)
	if sample.KeyHash = s.hash(sample.Key); !s.values {
		sample.ID, sample.KeyHash, sample.Value = "", "", ""
	}
	l.last, l.pending = now, &sample
}

// hash distinguishes keys. The salt never leaves the process, so that nobody can test a
// guessed key.
func (s *Sampler) hash(key string) string {
	if key == "" {
		return ""
	}
	mac := hmac.New(sha256.New, s.salt)
	mac.Write([]byte(key))
	return hex.EncodeToString(mac.Sum(nil)[:6])
}

// Observe implements bridge.Observer.
func (s *Sampler) Observe(o bridge.Observation) {
	switch o.What {
	case bridge.ObserveCommit:
		s.settle(o.Stream, true)
	case bridge.ObserveTransaction:
		if o.Code != "committed" {
			s.settle(o.Stream, false)
		}
	case bridge.ObserveRetry:
		s.settle(o.Stream, false)
	}
}

// settle sends the pending sample of a stream, or drops it if its transaction may
// have been aborted.
func (s *Sampler) settle(stream string, committed bool) {
	l := s.of(stream)
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	sample := l.pending
	l.pending = nil
	if sample == nil || !committed {
		return
	}
	for c := range l.followers {
		select {
		case c <- *sample:
		default: // a slow client misses it
		}
	}
}

// follow returns a channel of samples of a stream until leave is called; nil if stream is
// empty.
func (s *Sampler) follow(stream string) (next <-chan Sample, leave func()) {
	if s == nil || stream == "" {
		return nil, func() {}
	}
	c := make(chan Sample, backlog)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.streams[stream]
	if l == nil {
		l = &streamSampler{followers: make(map[chan Sample]struct{})}
		s.streams[stream] = l
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.followers[c] = struct{}{}
	s.following.Add(1)
	return c, func() {
		s.following.Add(-1)
		s.mu.Lock()
		defer s.mu.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if delete(l.followers, c); len(l.followers) == 0 {
			delete(s.streams, stream)
		}
	}
}
