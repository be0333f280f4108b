package keyring

import (
	"fmt"
	"strings"
	"sync"

	"exportbridge/bridge/seal"
)

// Pool lets the streams and jobs of a process share the Ring of a topic. The zero value is
// ready for use; it may be used concurrently.
type Pool struct {
	mu    sync.Mutex // guards all below
	rings map[string]*shared
}

type shared struct {
	*Ring
	users int
}

// user is one use of a Ring.
type user struct {
	*Ring
	leave func()
}

// Close implements seal.Keys: the last one closes the Ring.
func (u *user) Close() { u.leave() }

// Use returns the keys of a topic.
func (p *Pool) Use(cfg Config) seal.Keys {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := fmt.Sprint(strings.Join(cfg.Kafka.Brokers, ","), " ", cfg.Topic, " ", cfg.Master)
	s := p.rings[name]
	if s == nil {
		s = &shared{Ring: New(cfg)}
		if p.rings == nil {
			p.rings = make(map[string]*shared)
		}
		p.rings[name] = s
	}
	s.users++
	return &user{s.Ring, sync.OnceFunc(func() { p.leave(name, s) })}
}

func (p *Pool) leave(name string, s *shared) {
	p.mu.Lock()
	s.users--
	last := s.users == 0
	if last {
		delete(p.rings, name)
	}
	p.mu.Unlock()
	if last {
		s.Ring.Close()
	}
}
