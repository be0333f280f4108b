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
	m, size := other.Take() // another client takes from the same memory
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

// A client that has caught up neither takes nor keeps the memory of large pages.
func TestQuietLeavesMemory(t *testing.T) { //nolint:paralleltest // the memory is the process's
	Trim()
	Trim()
	var busy, quiet Pages
	const large = 1 << 20
	busy.Measure(large)
	quiet.Measure(large)
	for range 2 {
		busy.Give(Page{Body: make([]byte, large, 2*large), Events: make([]bridge.Event, 3)}, 3)
	}
	m, size := quiet.Take()
	body := m.Room(size)
	if cap(body) < large {
		t.Fatalf("room for %d bytes", cap(body))
	}
	quiet.Measure(100)
	quiet.Give(Page{Body: body, Events: m.Events}, 3)
	quiet.Give(Page{Body: make([]byte, 100)}, 3)
	busy.Give(Page{Body: make([]byte, large, 2*large)}, 3)
	if m, size := quiet.Take(); size > 200 || cap(m.Body) >= large {
		t.Errorf("takes %d bytes and expects %d, want little after a small page", cap(m.Body), size)
	}
	if m, _ := busy.Take(); cap(m.Body) != 2*large {
		t.Errorf("left %d bytes to a client with large pages", cap(m.Body))
	}
	quiet.Measure(large)
	if _, size := quiet.Take(); size < large {
		t.Errorf("expects %d bytes after a large page", size)
	}
}
