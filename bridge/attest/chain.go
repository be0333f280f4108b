package attest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/kafkaclient"
)

// Chain has the records of a stream.
type Chain struct {
	// Records are ordered by Seq.
	Records []Link `json:"records"`
	// Deletes is true if the topic deletes records by its settings, or has deleted some.
	// Then the first records can be missing although nobody changed the chain.
	Deletes bool `json:"deletes"`
	// unread are the places of the values that are no record.
	unread []Break
}

// Link is a Record as the topic has it.
type Link struct {
	Record
	// Hash is the hash of the record's value, which the next record has as Previous.
	Hash string `json:"hash"`
}

// Break is a place where a chain is broken.
type Break struct {
	// Seq is the number of a record, 0 if it is unknown.
	Seq  int64  `json:"seq,omitempty"`
	Text string `json:"text"`
}

// Log reads a topic, read_committed, by the contract of kafkaclient.Log.
type Log interface {
	kafkaclient.Reader
	Bounds(ctx context.Context) (map[int32]kafkaclient.Span, error)
}

// Read reads all records of a stream.
func Read(ctx context.Context, l Log, stream string) (*Chain, error) {
	spans, err := l.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	c := &Chain{Records: []Link{}} // in JSON, none is []
	for _, span := range spans {
		c.Deletes = c.Deletes || span.From > 0
	}
	err = l.Read(ctx, spans, func(r *kgo.Record) error {
		if string(r.Key) != stream {
			return nil
		}
		found, err := decode(r.Value)
		if err != nil || found == nil || found.Stream != stream {
			c.unread = append(c.unread, Break{0, fmt.Sprintf("partition %d offset %d has no record of the stream",
				r.Partition, r.Offset)})
			return nil
		}
		c.Records = append(c.Records, Link{*found, Hash(r.Value)})
		return nil
	})
	slices.SortStableFunc(c.Records, func(a, b Link) int { return cmp.Compare(a.Seq, b.Seq) })
	return c, err
}

// Begins returns why the chain begins later than with record 1, empty if it does not.
func (c *Chain) Begins() string {
	if !c.Deletes || len(c.Records) == 0 || c.Records[0].Seq == 1 {
		return ""
	}
	r := &c.Records[0]
	return fmt.Sprintf("the chain begins with record %d, at %s: the topic has deleted the records before it", r.Seq,
		r.From.Format(time.RFC3339))
}

// Check returns where the chain is broken. Records that the topic has deleted before the first
// one break nothing, see Begins. head is the value of the mark of the last record
// before Read, nil if there is no mark: it shows whether the last records are missing.
func (c *Chain) Check(head []byte) []Break {
	all := slices.Clone(c.unread)
	add := func(seq int64, format string, args ...any) {
		all = append(all, Break{seq, fmt.Sprintf(format, args...)})
	}
	var before *Link
	for i := range c.Records {
		r := &c.Records[i]
		want := int64(1)
		if before != nil {
			want = before.Seq + 1
		} else if c.Deletes {
			want = r.Seq
		}
		switch {
		case r.Seq < want:
			add(r.Seq, "record %d is there more than once", r.Seq)
			continue
		case r.Seq == want+1:
			add(want, "record %d is missing", want)
		case r.Seq > want:
			add(want, "records %d to %d are missing", want, r.Seq-1)
		case before != nil && r.Previous != before.Hash:
			add(before.Seq, "record %d has the hash %.12s, but record %d says %.12q: one of them was changed",
				before.Seq, before.Hash, r.Seq, r.Previous)
		case before == nil && r.Seq == 1 && r.Previous != "":
			add(r.Seq, "record %d says that it is not the first one", r.Seq)
		}
		begins := r.From
		if r.NotComparedFrom != nil {
			begins = *r.NotComparedFrom
		}
		if before != nil && r.Seq == want && !begins.Equal(before.To) {
			add(r.Seq, "record %d begins at %s, but record %d ends at %s", r.Seq, r.From.Format(time.RFC3339),
				before.Seq, before.To.Format(time.RFC3339))
		}
		before = r
	}
	return append(all, c.checkHead(head)...)
}

// checkHead compares the chain with the mark of its last record.
func (c *Chain) checkHead(value []byte) []Break {
	head, err := decode(value)
	switch {
	case err != nil:
		return []Break{{0, "the mark of the last record cannot be read: " + err.Error()}}
	case head == nil && len(c.Records) == 0:
		return nil
	case head == nil:
		return []Break{{0, "the mark of the last record is missing: records after the last one may be missing too"}}
	}
	i := slices.IndexFunc(c.Records, func(l Link) bool { return l.Seq == head.Seq })
	switch {
	case i < 0:
		return []Break{{head.Seq, fmt.Sprintf("record %d, which was the last one, is missing", head.Seq)}}
	case c.Records[i].Hash != Hash(value):
		return []Break{{head.Seq, fmt.Sprintf("record %d was changed: it differs from its mark", head.Seq)}}
	}
	return nil
}

// Between returns the records whose periods overlap a range, in milliseconds since the
// epoch; a bound of 0 is no bound.
func (c *Chain) Between(from, to int64) []Link {
	return slices.DeleteFunc(slices.Clone(c.Records), func(l Link) bool {
		return from != 0 && l.To.UnixMilli() <= from || to != 0 && l.From.UnixMilli() >= to
	})
}

// Uncovered returns the parts of a range that the chain does not cover. The bounds are
// those of Between.
func (c *Chain) Uncovered(from, to int64) []Break {
	found := c.Between(from, to)
	instant := func(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }
	var all []Break
	switch {
	case len(found) == 0:
		return []Break{{0, "no period of the range is attested"}}
	case from != 0 && found[0].From.UnixMilli() > from:
		all = append(all, Break{0, fmt.Sprintf("nothing is attested from %s to %s", instant(from),
			found[0].From.Format(time.RFC3339))})
	}
	for i := range found {
		r := &found[i]
		if at := r.NotComparedFrom; at != nil && (i > 0 || from == 0) {
			all = append(all, Break{r.Seq, fmt.Sprintf("nothing is attested from %s to %s: the events there have other ids and "+
				"cannot be compared", at.UTC().Format(time.RFC3339), r.From.Format(time.RFC3339))})
		}
	}
	if last := found[len(found)-1]; to != 0 && last.To.UnixMilli() < to {
		all = append(all, Break{0, fmt.Sprintf("nothing is attested from %s to %s", last.To.Format(time.RFC3339),
			instant(to))})
	}
	return all
}
