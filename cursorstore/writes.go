package cursorstore

import (
	"errors"
	"sync"
	"time"

	"exportbridge/bridge"
)

// rejectedFor is how long a rejected write counts. The owner of a stream writes each
// second; another process may not write again for a long time.
const rejectedFor = 10 * time.Second

// writes has the last rejected write of each stream whose server answers reads. In a cluster,
// each stream can be on another server.
type writes struct {
	mu       sync.Mutex // guards rejected
	rejected map[string]rejection
}

type rejection struct {
	fault *bridge.Fault
	at    time.Time
}

// health returns the error of the stream's server after an operation. A read that
// succeeds does not clear a rejected write.
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

// taken notes that the server accepted a write, and reports whether it rejected one before.
func (w *writes) taken(stream string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, rejected := w.rejected[stream]
	delete(w.rejected, stream)
	return rejected
}
