package keyring

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/seal"
)

// Forgetting says what Forget finds, and has done.
type Forgetting struct {
	// Keys counts the data keys of the subject that the topic had, Deleted those deleted.
	Keys    int `json:"keys"`
	Deleted int `json:"deleted"`
	// Forgotten is when the subject was marked as forgotten; nil if it is not.
	Forgotten *time.Time `json:"forgotten,omitempty"`
}

// Forget marks a subject as forgotten and deletes its keys, or shows what it would do. It may be
// repeated. A key that another process makes at the same time is either before the mark, and
// deleted here, or after the mark, and never used. Errors are bridge.Faults.
func Forget(ctx context.Context, cfg Config, subject string, execute bool) (f Forgetting, err error) {
	cfg.Make = nil
	t, err := cfg.open(ctx, cfg.Kafka.CanKeepKeys)
	if err != nil {
		return f, err
	}
	defer t.client.Close()
	name := cfg.Master.Name(subject)
	keys := make(map[seal.KeyID]bool)
	visit := func(_ *kgo.Record, found *seal.Record) {
		switch {
		case found == nil || found.Name != name:
		case found.Forgotten != nil:
			f.Forgotten = found.Forgotten
		case found.Secret == nil:
			delete(keys, found.ID)
		default:
			keys[found.ID] = true
		}
	}
	end, err := t.end(ctx)
	if err == nil {
		err = t.to(ctx, end, visit)
	}
	if f.Keys = len(keys); err != nil || !execute {
		return f, err
	}
	if f.Forgotten == nil {
		key, value := cfg.Master.Forget(name, time.Now())
		if end, err = publish(ctx, t.client, cfg.Topic, []*kgo.Record{{Key: key, Value: value}}); err != nil {
			return f, err
		}
		// From here on no new key is used. A crash leaves the keys: the next call deletes them.
		if err = t.to(ctx, end, visit); err != nil {
			return f, err
		}
	}
	f.Keys = len(keys)
	var gone []*kgo.Record
	for id := range keys {
		gone = append(gone, &kgo.Record{Key: seal.RecordKey(name, id)}) // no value: a tombstone
	}
	if len(gone) == 0 { // a former topic has no bridge that rolls it
		_, err = publish(ctx, t.client, cfg.Topic, t.roll())
		return f, err
	}
	if _, err = publish(ctx, t.client, cfg.Topic, gone); err == nil {
		f.Deleted = len(gone)
	}
	return f, err
}
