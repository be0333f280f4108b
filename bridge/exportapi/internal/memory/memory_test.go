package memory

import (
	"testing"

	"exportbridge/bridge"
)

func TestMemoryComesBack(t *testing.T) { //nolint:paralleltest // the memory is the process's
	var s, other Pages
	s.Measure(1 << 20)
	other.Measure(1 << 20)
	first := Page{Body: make([]byte, 10, 2<<20), Events: make([]bridge.Event, 3, 10)}
	first.Events[2].Raw = []byte("x")
	s.Give(first, 3)
	s.Give(Page{Body: make([]byte, 10, 1<<10)}, 3)
	s.Give(Page{Body: make([]byte, 10, 5<<20)}, 3) // a giant
	s.Give(Page{Events: make([]bridge.Event, 10, 10*smallPage)}, 3)
	m, size := other.Take() // another client has the same memory
	if cap(m.Body) != 2<<20 || len(m.Body) != 0 || cap(m.Events) != 10 || m.Events[:3][2].Raw != nil {
		t.Errorf("got %d bytes, %d events, want the first, which fits, cleared", cap(m.Body), cap(m.Events))
	}
	if size < 1<<20 {
		t.Errorf("expects %d bytes, want those of the last page and some", size)
	}
	if m, _ := s.Take(); cap(m.Body) != 1<<10 {
		t.Errorf("got %d bytes, want the small page", cap(m.Body))
	}
	if m, _ := s.Take(); m.Body != nil {
		t.Error("the giant stayed")
	}
	s.Give(first, 3)
	Trim()
	Trim()
	if m, _ := s.Take(); m.Body != nil {
		t.Error("what nobody needed stayed")
	}
}
