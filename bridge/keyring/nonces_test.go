package keyring

import (
	"testing"
	"time"

	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/seal"
)

// TestNonces: kept nonces are those that are derived, few are kept, and none of a forgotten subject.
func TestNonces(t *testing.T) {
	t.Parallel()
	r := New(Config{Kafka: kafkaclient.DefaultConfig()})
	defer r.Close()
	name := seal.Name{1}
	for i := range nonceLimit + 1 {
		k := held{id: seal.KeyID{1, byte(i), byte(i >> 8)}, secret: seal.Secret{byte(i), byte(i >> 8)}}
		if got := r.noncesOf(&k); got != r.noncesOf(&k) || len(r.nonces) > nonceLimit ||
			i%1000 == 0 && got != *k.secret.Nonces() {
			t.Fatalf("key %d has other nonces, or %d are kept", i, len(r.nonces))
		}
		r.keys[name] = k
	}
	if len(r.nonces) != 1 {
		t.Errorf("%d are kept", len(r.nonces))
	}
	r.adopt([]*seal.Record{{Name: name, Forgotten: new(time.Now())}}, 1)
	if len(r.nonces) != 0 {
		t.Error("those of a forgotten subject are kept")
	}
}
