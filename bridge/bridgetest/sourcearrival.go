package bridgetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"exportbridge/bridge"
)

// MaxArriving is how many bodies a Source may have on their way at once.
const MaxArriving = 3

// arrival is a body on its way.
type arrival struct {
	page  *bridge.Page
	body  []byte
	ctx   context.Context // of the request, until end
	end   context.CancelFunc
	due   time.Time       // when its last byte is here
	rest  <-chan struct{} // closed when the rest may come, nil for at once
	fault error           // what ends it in the middle
}

// wait waits for the end of the body.
func (a *arrival) wait() error {
	if a.rest != nil {
		select {
		case <-a.rest:
		case <-a.ctx.Done():
			return a.ctx.Err()
		}
	}
	if err := wait(a.ctx, time.Until(a.due)); err != nil {
		return err
	}
	return a.fault
}

// deliver hands a page out: before its body has arrived where that is allowed,
// and else when it has.
func (s *Source) deliver(ctx context.Context, p *bridge.Page, a *arrival) (*bridge.Page, error) {
	a.ctx, a.end = context.WithCancel(ctx)
	slow := a.rest != nil || s.export.Transfer > 0
	if slow && p.At.Cursor != "" && !p.Tail() && len(p.Body) >= bridge.SmallBody {
		a.page, a.body = p, p.Body
		p.Body, p.ArrivedAt = nil, time.Time{}
		s.arriving.add(a)
		return p, nil
	}
	defer a.end()
	if err := a.wait(); err != nil {
		p.Release()
		return nil, fmt.Errorf("fetch page: %w", err)
	}
	p.ArrivedAt = time.Now() // later than newPage said
	return p, nil
}

// arrive takes in what is on its way of the page's body.
func (s *Source) arrive(p *bridge.Page) error {
	a := s.arriving.of(p)
	if a == nil {
		return nil
	}
	err := a.wait()
	s.arriving.forget(p)
	p.Body = a.body
	if err != nil {
		return fmt.Errorf("fetch page: %w", err)
	}
	p.Size, p.ArrivedAt = int64(len(p.Body)), time.Now()
	return nil
}

// arrivals are the bodies on their way, in order. Its methods may be called
// concurrently.
type arrivals struct {
	mu   sync.Mutex // guards list
	list []*arrival
}

func (l *arrivals) add(a *arrival) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, a)
}

// makeRoom waits until another body may be on its way.
func (l *arrivals) makeRoom() {
	l.mu.Lock()
	oldest := slices.Clone(l.list)
	l.mu.Unlock()
	for ; len(oldest) >= MaxArriving; oldest = oldest[1:] {
		_ = oldest[0].wait() // Decode will tell
	}
}

// of returns what is on its way of the page, or nil.
func (l *arrivals) of(p *bridge.Page) *arrival {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.list {
		if a.page == p {
			return a
		}
	}
	return nil
}

// forget ends what is on its way of the page.
func (l *arrivals) forget(p *bridge.Page) {
	if a := l.of(p); a != nil {
		a.end()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.list = slices.DeleteFunc(l.list, func(b *arrival) bool { return a == b })
	}
}
