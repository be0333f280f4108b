package keyring

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/seal"
)

const (
	// rewrapBatch is about the number of keys in a transaction. Others wait for its end.
	rewrapBatch = 500
	// rewrapTimeout is after how long Kafka aborts the transaction of a process that has died.
	rewrapTimeout = 10 * time.Second
)

// Rewrapping says what Rewrap finds, and has done.
type Rewrapping struct {
	// Newest is the id of the last master key, which wraps.
	Newest string `json:"newest"`
	// Keys counts the data keys, Records the records that Kafka still has of them, both by the id of the
	// master key that they need. A record is needed until Kafka has compacted it away.
	Keys    map[string]int `json:"keys"`
	Records map[string]int `json:"records"`
	// Rewrapped counts the keys that were wrapped again. Deleted counts those of forgotten
	// subjects, which Forget has not deleted.
	Rewrapped int `json:"rewrapped"`
	Deleted   int `json:"deleted"`
}

// rewrap is a call of Rewrap.
type rewrap struct {
	*topic
	Rewrapping
	// keys are the data keys of subjects, in the order of their records.
	keys      map[seal.Name][]*seal.Record
	forgotten map[seal.Name]bool
}

// Rewrap wraps all data keys with the last master key, or shows what it would do. Bridges may run,
// and Forget too: a key that it deletes stays deleted. It may be repeated; a second call ends the
// first. Errors are bridge.Faults.
func Rewrap(ctx context.Context, cfg Config, execute bool) (Rewrapping, error) {
	w, err := cfg.openRewrap(ctx, execute)
	if err != nil {
		return Rewrapping{}, err
	}
	defer w.client.Close()
	if err = w.read(ctx, 0); err == nil && execute {
		err = w.all(ctx)
	}
	for _, keys := range w.keys {
		for _, k := range keys {
			w.Keys[k.Master]++
		}
	}
	return w.Rewrapping, err
}

// openRewrap connects. The caller closes the client.
func (c Config) openRewrap(ctx context.Context, execute bool) (*rewrap, error) {
	c.Make = nil
	w := &rewrap{keys: make(map[seal.Name][]*seal.Record), forgotten: make(map[seal.Name]bool),
		Rewrapping: Rewrapping{Newest: c.Master.Last(), Keys: make(map[string]int), Records: make(map[string]int)}}
	var opts []kgo.Opt
	if execute {
		opts = append(opts, kgo.TransactionalID(c.TransactionalID), kgo.TransactionTimeout(rewrapTimeout))
	}
	var err error
	if w.topic, err = c.open(ctx, c.Kafka.CanKeepKeys, opts...); err != nil || !execute {
		return w, err
	}
	if _, _, err = w.client.ProducerID(ctx); err != nil { // it aborts the transaction of one that has died
		err = w.fault(fmt.Errorf("take the transactional id %s: %w", c.TransactionalID, err))
		w.client.Close()
	}
	return w, err
}

// read reads up to an offset, exclusive, and at least to the present end.
func (w *rewrap) read(ctx context.Context, to int64) error {
	end, err := w.end(ctx)
	if err != nil {
		return err
	}
	return w.to(ctx, max(to, end), w.adopt)
}

// adopt applies a record as compaction does: the last one of a key counts, in its place.
func (w *rewrap) adopt(_ *kgo.Record, f *seal.Record) {
	switch {
	case f == nil:
		return
	case f.Forgotten != nil:
		w.forgotten[f.Name] = true
		return
	}
	keys := slices.DeleteFunc(w.keys[f.Name], func(k *seal.Record) bool { return k.ID == f.ID })
	if f.Secret != nil {
		w.Records[f.Master]++
		keys = append(keys, f)
	}
	w.keys[f.Name] = keys
}

// all wraps until nothing is left to do.
func (w *rewrap) all(ctx context.Context) error {
	var again []*kgo.Record
	for {
		found, of := w.next()
		records := slices.Concat(found, again)
		if len(records) == 0 {
			if records = w.roll(); len(records) > 0 { // a former topic has no bridge that rolls it
				_, _, err := w.commit(ctx, records, nil)
				return err
			}
			return nil
		}
		end, done, err := w.commit(ctx, records, of)
		if err == nil {
			err = w.read(ctx, end) // it waits for the end of the transaction
		}
		if err != nil {
			return err
		}
		if again = nil; !done {
			again = w.deleted(records, of)
			continue
		}
		for _, r := range found {
			if len(r.Value) > 0 {
				w.Rewrapped++
			} else {
				w.Deleted++
			}
		}
	}
}

// next returns records for a transaction, and their subjects. It has all keys of a subject, in their
// order: processes use the first one, also after compaction.
func (w *rewrap) next() (records []*kgo.Record, of map[seal.Name]bool) {
	of = make(map[seal.Name]bool)
	for name, keys := range w.keys {
		old := func(k *seal.Record) bool { return k.Master != w.Newest || w.forgotten[name] }
		if !slices.ContainsFunc(keys, old) {
			continue
		}
		of[name] = true
		for _, k := range keys {
			r := &kgo.Record{Key: seal.RecordKey(name, k.ID)}
			if !w.forgotten[name] { // else no value: a tombstone
				r.Value = w.cfg.Master.Wrap(r.Key, k.Secret)
			}
			records = append(records, r)
		}
		if len(records) >= rewrapBatch {
			break
		}
	}
	return records, of
}

// commit publishes records in a transaction. It commits only if nobody has published of the
// subjects between what was read and the last of the records: behind a mark or a tombstone, a
// record would bring the key back. One that comes later deletes the key, whatever its value.
func (w *rewrap) commit(
	ctx context.Context, records []*kgo.Record, of map[seal.Name]bool,
) (end int64, done bool, err error) {
	if err = w.client.BeginTransaction(); err != nil {
		return 0, false, w.fault(err)
	}
	end, err = publish(ctx, w.client, w.cfg.Topic, records)
	if err == nil {
		done, err = w.undisturbed(ctx, end, records, of)
	}
	// A crash up to here leaves a transaction that Kafka aborts.
	ended := w.client.EndTransaction(ctx, kgo.TransactionEndTry(done))
	if ended != nil {
		ended = w.fault(fmt.Errorf("end the transaction of %s: %w", w.cfg.TransactionalID, ended))
	}
	return end, done, errors.Join(err, ended)
}

// undisturbed reports whether all records of subjects up to an offset were read before, or are those
// given.
func (w *rewrap) undisturbed(
	ctx context.Context, end int64, records []*kgo.Record, of map[seal.Name]bool,
) (bool, error) {
	own := make(map[int64]bool)
	for _, r := range records {
		own[r.Offset] = true
	}
	now := *w.topic // where reading goes on, with open transactions
	now.log = &kafkaclient.PartitionLog{Log: w.client.Log(w.cfg.Topic, w.log.ID()), Partition: w.log.Partition}
	now.log.Uncommitted, now.log.Patience = true, stallLimit
	others := false
	err := now.to(ctx, end, func(r *kgo.Record, f *seal.Record) {
		others = others || f != nil && of[f.Name] && !own[r.Offset]
	})
	return err == nil && !others, err
}

// deleted returns tombstones for the records of an aborted transaction whose keys are deleted by
// now: who reads what is not committed has read them after the tombstones.
func (w *rewrap) deleted(records []*kgo.Record, of map[seal.Name]bool) (again []*kgo.Record) {
	there := make(map[string]bool)
	for name := range of {
		for _, k := range w.keys[name] {
			there[string(seal.RecordKey(name, k.ID))] = true
		}
	}
	for _, r := range records {
		if !there[string(r.Key)] {
			again = append(again, &kgo.Record{Key: r.Key})
		}
	}
	return again
}
