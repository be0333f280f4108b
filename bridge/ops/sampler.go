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

// Sample is a published event. Only if HTTP_SHOW_EVENTS is set, clients get its ID,
// KeyHash and Value, which may name a person.
type Sample struct {
	Stream string `json:"stream"`
	// Time is the record's; Type, ID and Origin are from its headers.
	Time time.Time `json:"time"`
	Type string    `json:"type,omitempty"`
	ID   string    `json:"id,omitempty"`
	// Key is the record's key. The Sampler sets KeyHash, which distinguishes the keys of
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
	values bool // may be shown, as may ids and hashes of keys
	salt   []byte

	following atomic.Int32     // the number of clients
	mu        sync.RWMutex     // guards lanes
	lanes     map[string]*lane // by stream, those with followers
}

// lane is the next sample of one stream, and who follows it.
type lane struct {
	mu        sync.Mutex // guards all below
	last      time.Time  // when one was taken
	pending   *Sample    // not committed yet
	followers map[chan Sample]struct{}
}

// NewSampler returns a Sampler. values exposes the values of events, their ids and hashes
// of their keys.
func NewSampler(values bool) *Sampler {
	return &Sampler{values: values, salt: []byte(rand.Text()), lanes: make(map[string]*lane)}
}

// lane returns the lane of a stream, nil if no client follows the stream.
func (s *Sampler) lane(stream string) *lane {
	if s.following.Load() == 0 {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.lanes[stream]
}

// Offer takes a sample if one is due. Only then it calls make, which leaves Value
// empty unless values is true.
func (s *Sampler) Offer(stream string, make func(values bool) Sample) {
	l := s.lane(stream)
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

// hash distinguishes keys. Its salt is unknown outside the process: nobody can guess a key
// and compare.
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
	l := s.lane(stream)
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
		default: // there is a next one
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
	l := s.lanes[stream]
	if l == nil {
		l = &lane{followers: make(map[chan Sample]struct{})}
		s.lanes[stream] = l
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
			delete(s.lanes, stream)
		}
	}
}
