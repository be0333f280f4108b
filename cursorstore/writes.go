package cursorstore

import (
	"errors"
	"sync"
	"time"

	"exportbridge/bridge"
)

// rejectedFor is how long a rejected write counts. Who runs a stream writes each
// second; who does not may not write again for long.
const rejectedFor = 10 * time.Second

// writes are the last writes that a server rejected which answers reads, by stream:
// in a cluster another stream can be on another server.
type writes struct {
	mu       sync.Mutex // guards rejected
	rejected map[string]rejection
}

type rejection struct {
	fault *bridge.Fault
	at    time.Time
}

// health is what the outcome of an operation says about the stream's server: a read
// says nothing about writes.
func (w *writes) health(stream string, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch r, ok := w.rejected[stream]; {
	case errors.Is(err, ErrWrites):
		if w.rejected == nil {
			w.rejected = make(map[string]rejection)
		}
		w.rejected[stream] = rejection{bridge.FaultOf(err), time.Now()}
	case err != nil && !isForeign(err):
	case ok && time.Since(r.at) < rejectedFor:
		return r.fault
	default:
		return nil
	}
	return err
}

// taken notes that the server took a write, and reports whether it rejected one
// before.
func (w *writes) taken(stream string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, rejected := w.rejected[stream]
	delete(w.rejected, stream)
	return rejected
}
