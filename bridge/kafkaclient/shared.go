package kafkaclient

import (
	"sync"
	"time"
)

// sharedIdle is how long a Shared keeps its client without a user. Pages ask every five
// seconds.
const sharedIdle = 10 * time.Second

// Shared lends one client to callers with the same brokers and credentials. The zero value
// is ready; a nil Shared opens a client for each caller. Open may be called concurrently.
type Shared struct {
	mu     sync.Mutex // guards all below
	client *Client    // nil if none is open
	users  int
	idle   *time.Timer // closes the client; nil before the first release
}

// Open returns the client, which it opens with cfg if none is open. The caller must call
// release, once, instead of Close. The client is closed ten seconds after the last release.
func (s *Shared) Open(cfg *Config) (client *Client, release func(), err error) {
	if s == nil {
		if client, err = cfg.Open(); err != nil {
			return nil, nil, err
		}
		return client, client.Close, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		if s.client, err = cfg.Open(); err != nil {
			return nil, nil, err
		}
	}
	s.users++
	return s.client, s.release, nil
}

func (s *Shared) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	if s.idle == nil {
		s.idle = time.AfterFunc(sharedIdle, s.close)
	}
	s.idle.Reset(sharedIdle)
}

// close closes the client if nobody uses it.
func (s *Shared) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 && s.client != nil {
		s.client.Close()
		s.client = nil
	}
}
