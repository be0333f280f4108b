package keyring

import (
	"errors"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/seal"
)

// TestReaderFallsBehind: a Reader that cannot read the topic, here for want of a new master key, does
// not know who is forgotten. It opens no value, however often it is asked.
func TestReaderFallsBehind(t *testing.T) {
	t.Parallel()
	cfg := rewrapConfig(t)
	old := cfg
	old.Master = masters(t, 1)
	ring := New(old)
	defer ring.Close()
	keys := must.Get(ring.Of([]string{"anna"}))(t)
	value := strings.Trim(string(keys[0].Append(nil, "/email", []byte("1"))), `"`)
	reader := must.Get(NewReader(t.Context(), old))(t)
	defer reader.Close()
	idsOf(t, cfg, "bert") // wrapped by m2
	must.Get(Forget(t.Context(), cfg, "anna", true))(t)
	reader.read = time.Now().Add(-2 * refreshInterval)
	for range 2 {
		if plain, err := reader.Open(t.Context(), "/email", value); err == nil || errors.Is(err, seal.ErrForgotten) {
			t.Errorf("%s, %v: want that the master key is missing", plain, err)
		}
	}
}
