package keyring

import (
	"slices"
	"sync"

	"exportbridge/bridge/seal"
)

// Pool lets the streams and jobs of a process share the Ring of a topic if they connect to Kafka
// in the same way. The zero value is ready for use; it may be used concurrently.
type Pool struct {
	mu    sync.Mutex // guards all below
	rings []*shared
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
	same := func(s *shared) bool {
		return s.cfg.Topic == cfg.Topic && s.cfg.Master.String() == cfg.Master.String() && s.cfg.Kafka.Alike(&cfg.Kafka)
	}
	at := slices.IndexFunc(p.rings, same)
	if at < 0 {
		at = len(p.rings)
		p.rings = append(p.rings, &shared{Ring: New(cfg)})
	}
	s := p.rings[at]
	s.users++
	return &user{s.Ring, sync.OnceFunc(func() { p.leave(s) })}
}

func (p *Pool) leave(s *shared) {
	p.mu.Lock()
	s.users--
	last := s.users == 0
	if last {
		p.rings = slices.DeleteFunc(p.rings, func(each *shared) bool { return each == s })
	}
	p.mu.Unlock()
	if last {
		s.Ring.Close()
	}
}
