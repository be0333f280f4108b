package memory

import (
	"testing"

	"exportbridge/bridge"
)

func TestMemoryComesBack(t *testing.T) {
	t.Parallel()
	var s Pages
	s.Measure(1 << 20)
	first := Page{Body: make([]byte, 10, 2<<20), Events: make([]bridge.Event, 3, 10)}
	first.Events[2].Raw = []byte("x")
	second := Page{Body: make([]byte, 10, 1<<20)}
	s.Give(first, 3)
	s.Give(second, 3)
	s.Give(Page{Body: make([]byte, 10, 5<<20)}, 3) // a giant
	s.Give(Page{Events: make([]bridge.Event, 10, 10*smallPage)}, 3)
	if m, _ := s.Take(); cap(m.Body) != 1<<20 || len(m.Body) != 0 {
		t.Errorf("got %d bytes, want the last that is no giant", cap(m.Body))
	}
	m, size := s.Take()
	if cap(m.Body) != 2<<20 || cap(m.Events) != 10 || m.Events[:3][2].Raw != nil {
		t.Errorf("got %d bytes, %d events, want the first, cleared", cap(m.Body), cap(m.Events))
	}
	if size < 1<<20 {
		t.Errorf("expects %d bytes, want those of the last page and some", size)
	}
	if m, _ := s.Take(); m.Body != nil {
		t.Error("the giant stayed")
	}
	for range 2 * keptBuffers {
		s.Give(Page{Body: make([]byte, 1)}, 3)
	}
	if len(s.free) != keptBuffers {
		t.Errorf("keeps %d", len(s.free))
	}
}
