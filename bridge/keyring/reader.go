package keyring

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/seal"
)

// refreshInterval is how long a Reader may use a key after it was deleted.
const refreshInterval = 10 * time.Second

// Reader decrypts values for a consumer. One goroutine uses it.
type Reader struct {
	topic     *topic
	keys      map[seal.KeyID]dataKey
	forgotten map[seal.Name]bool
	read      time.Time
}

// dataKey is a data key of a subject.
type dataKey struct {
	name   seal.Name
	secret seal.Secret
}

// NewReader reads all keys of the topic, about 100 bytes of memory each. It needs the permission
// to read the topic. The caller closes it. Errors are bridge.Faults.
func NewReader(ctx context.Context, cfg Config) (*Reader, error) {
	cfg.Make = nil
	t, err := cfg.open(ctx, cfg.canRead)
	if err != nil {
		return nil, err
	}
	r := &Reader{topic: t, keys: make(map[seal.KeyID]dataKey), forgotten: make(map[seal.Name]bool)}
	if err := r.refresh(ctx); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close closes the connections.
func (r *Reader) Close() { r.topic.client.Close() }

// refresh reads what was added.
func (r *Reader) refresh(ctx context.Context) error {
	began := time.Now()
	end, err := r.topic.end(ctx)
	if err != nil {
		return err
	}
	err = r.topic.to(ctx, end, func(_ *kgo.Record, f *seal.Record) {
		switch {
		case f == nil:
		case f.Forgotten != nil: // its keys follow, or were deleted while nothing was read
			r.forgotten[f.Name] = true
		case f.Secret == nil:
			delete(r.keys, f.ID)
		default:
			r.keys[f.ID] = dataKey{f.Name, *f.Secret}
		}
	})
	if err == nil {
		r.read = began
	}
	return err
}

// Open returns the JSON text that was encrypted. value is the text of the string in its place,
// pointer is as in EVENT_ENCRYPT. The errors seal.ErrForgotten and seal.ErrNotSealed may be
// wrapped; others are bridge.Faults, or mean a wrong pointer or a changed value.
func (r *Reader) Open(ctx context.Context, pointer, value string) ([]byte, error) {
	sealed, err := seal.Parse(value)
	if err != nil {
		return nil, err
	}
	key, known := r.keys[sealed.Key]
	if !known || time.Since(r.read) > refreshInterval { // a key is there before its values
		if err := r.refresh(ctx); err != nil {
			return nil, err
		}
		key, known = r.keys[sealed.Key]
	}
	if !known || r.forgotten[key.name] {
		return nil, fmt.Errorf("the topic %s has no key of the value: %w", r.topic.cfg.Topic, seal.ErrForgotten)
	}
	return sealed.Open(pointer, &key.secret)
}
