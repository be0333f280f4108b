package keyring

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/seal"
)

const (
	// patience bounds a call of Of.
	patience = 20 * time.Second
	// retryInterval is the time between two attempts to read the topic after an error.
	retryInterval = time.Second
	// lookInterval is how often a Ring checks whether the topic still keeps the keys.
	lookInterval = 30 * time.Second
	// nonceLimit is the number of keys whose derived nonces are kept: about 1 MB.
	nonceLimit = 10_000
)

// held is the key in use of a subject. A held without an id means that the subject is
// forgotten.
type held struct {
	id     seal.KeyID
	secret seal.Secret
}

// Ring holds the keys of all subjects, and follows the topic. Its methods may be called
// concurrently.
type Ring struct {
	cfg   Config
	look  time.Duration // lookInterval, except in tests
	begin sync.Once
	start func() // begins run, by begin
	stop  context.CancelFunc
	done  chan struct{}

	mu      sync.Mutex // guards all below
	client  *kafkaclient.Client
	keys    map[seal.Name]held
	nonces  map[seal.KeyID]seal.Secret // of keys used lately
	end     int64                      // of what must be read before the ring is used
	next    int64                      // next offset to read
	err     error                      // why the topic is not read
	changed chan struct{}              // closed when something above has changed

	id [16]byte // topic id; owned by run
}

// New returns a Ring. It connects with the first call of Of. The caller closes it.
func New(cfg Config) *Ring {
	if cfg.ReadOnly {
		cfg.Make = nil
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &Ring{cfg: cfg, look: lookInterval, stop: stop, done: make(chan struct{}), keys: make(map[seal.Name]held),
		nonces: make(map[seal.KeyID]seal.Secret), changed: make(chan struct{})}
	r.start = func() { go r.run(ctx) } // ends with Close
	return r
}

// Close implements seal.Keys.
func (r *Ring) Close() {
	r.stop()
	r.begin.Do(func() { close(r.done) }) // unless it has begun
	<-r.done
}

// run follows the topic until ctx ends.
func (r *Ring) run(ctx context.Context) {
	defer close(r.done)
	for ctx.Err() == nil {
		err := r.follow(ctx)
		r.change(func() { r.err, r.client = err, nil })
		bridge.Sleep(ctx, retryInterval)
	}
}

func (r *Ring) change(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
	close(r.changed)
	r.changed = make(chan struct{})
}

// follow reads the topic from its beginning, then what is added. It returns with an error.
func (r *Ring) follow(ctx context.Context) error {
	check := r.cfg.Kafka.CanKeepKeys
	if r.cfg.ReadOnly {
		check = r.cfg.canRead
	}
	t, err := r.cfg.open(ctx, check)
	if err != nil {
		return err
	}
	defer t.client.Close()
	end, err := t.end(ctx)
	if err != nil {
		return err
	}
	if r.id != t.log.ID() && r.id != [16]byte{} {
		return recreated(r.cfg.Topic)
	}
	r.id = t.log.ID()
	r.change(func() {
		clear(r.keys)
		r.client, r.end, r.next, r.err = t.client, end, t.next, nil
	})
	for looked := time.Now(); ; {
		if time.Since(looked) >= r.look {
			if err = t.unfit(ctx, check); err != nil {
				return err
			}
			looked = time.Now()
		}
		var found []*seal.Record
		err = t.step(ctx, func(_ *kgo.Record, f *seal.Record) { found = append(found, f) })
		if err != nil {
			return err
		}
		if t.next != r.next {
			r.change(func() { r.adopt(found, t.next) })
		}
		if r.cfg.ReadOnly {
			continue
		}
		if _, err = publish(ctx, t.client, r.cfg.Topic, t.roll()); err != nil {
			return err
		}
	}
}

// adopt applies records. The key with the lowest offset is in use. All processes agree on
// it, because a caller waits until its own key is read. A key after the mark of a forgotten
// subject is never used. Therefore, forgetting is done once the keys before the mark are
// deleted.
func (r *Ring) adopt(found []*seal.Record, next int64) {
	r.next = next
	for _, f := range found {
		if f == nil {
			continue
		}
		now, known := r.keys[f.Name]
		switch {
		case f.Forgotten != nil:
			r.keys[f.Name] = held{}
			delete(r.nonces, now.id) // by which a guess of a value can be tested
		case f.Secret != nil && !known:
			r.keys[f.Name] = held{f.ID, *f.Secret}
		case f.Secret == nil && now.id == f.ID:
			delete(r.keys, f.Name)
		}
	}
}

// Of implements seal.Keys.
func (r *Ring) Of(subjects []string) ([]*seal.Key, error) {
	r.begin.Do(r.start)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := r.await(ctx, 0)
	if err != nil && (!r.cfg.ReadOnly || !unreadable(err)) {
		return nil, err
	}
	var names []seal.Name
	for _, s := range subjects {
		names = append(names, r.cfg.Master.Name(s))
	}
	keys, unknown := r.find(names)
	if len(unknown) == 0 || r.cfg.ReadOnly {
		return keys, nil
	}
	var records []*kgo.Record
	for _, n := range unknown {
		key, value := r.cfg.Master.Make(n)
		records = append(records, &kgo.Record{Key: key, Value: value})
	}
	// A crash from here on leaves keys without values, which are used from then on.
	end, err := publish(ctx, client, r.cfg.Topic, records)
	if err == nil {
		_, err = r.await(ctx, end)
	}
	if err != nil {
		return nil, err
	}
	if keys, unknown = r.find(names); len(unknown) > 0 {
		return nil, late(r.cfg.Topic, errors.New("a new key was deleted at once"))
	}
	return keys, nil
}

// await waits until the topic is read to an offset, exclusive, and at least to its end of when
// the ring began. It returns the client for records.
func (r *Ring) await(ctx context.Context, end int64) (*kafkaclient.Client, error) {
	for {
		r.mu.Lock()
		client, err, changed := r.client, r.err, r.changed
		read := client != nil && r.next >= max(end, r.end)
		r.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		case read:
			return client, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if client != nil && client.Trouble() != nil {
				return nil, client.Explain(ctx.Err(), r.cfg.Topic)
			}
			return nil, late(r.cfg.Topic, ctx.Err())
		}
	}
}

// unreadable reports whether the topic is missing or may not be read.
func unreadable(err error) bool {
	reason := bridge.FaultOf(err).Reason
	return reason == bridge.ReasonTopic || reason == bridge.ReasonAuth
}

// find returns the keys in use, and the names without one, whose values are withheld.
func (r *Ring) find(names []seal.Name) (keys []*seal.Key, unknown []seal.Name) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range names {
		k, known := r.keys[n]
		switch {
		case !known:
			unknown, keys = append(unknown, n), append(keys, seal.Withheld)
		case k.id == seal.KeyID{}:
			keys = append(keys, seal.Forgotten)
		default:
			nonces := r.noncesOf(&k)
			keys = append(keys, seal.NewKey(k.id, &k.secret, &nonces))
		}
	}
	return keys, unknown
}

// noncesOf derives the nonces of a key, or returns those that it has derived before. The caller
// holds mu.
func (r *Ring) noncesOf(k *held) seal.Secret {
	nonces, known := r.nonces[k.id]
	if !known {
		if len(r.nonces) >= nonceLimit {
			clear(r.nonces)
		}
		nonces = *k.secret.Nonces()
		r.nonces[k.id] = nonces
	}
	return nonces
}
