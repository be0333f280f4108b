package kafkasink

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// maxIndexed is how many events are remembered: about 300 MB.
const maxIndexed = 5_000_000

// Published reads the stream's events and dead letters in its topics. It
// publishes nothing, and needs no session. Holds is for one goroutine at a
// time; the other methods may be called concurrently.
type Published struct {
	cfg Config
	// searched is where Holds has found nothing, by topic; holdsTime bounds one look.
	searched  map[string]searched
	holdsTime time.Duration
}

// Published returns the reader of the stream's topics.
func (c *Config) Published() *Published {
	return &Published{cfg: *c, searched: make(map[string]searched), holdsTime: holdsTime}
}

// Index implements bridge.PublishedEvents. It reads the topic and that of the dead
// letters read_committed, from record times an hour before from on, since an
// event's record may have been given the time of its publishing. With headers an
// event is known by its record's ce_id, without by the bytes of its value; of a
// dead letter that says neither the hash of the bytes is enough. A record whose
// ce_source names another source than this one does not count. It waits for
// brokers, and for transactions that are open, as long as ctx allows.
func (p *Published) Index(ctx context.Context, from time.Time, source bridge.SourceIdentity) (bridge.PublishedIndex, error) {
	client, err := p.cfg.Open()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	h, err := p.buildIndex(ctx, client, from.Add(-futureLimit), source)
	switch {
	case err == nil:
		return h, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("read the events of %s: %w", p.cfg.Stream, errors.Join(ctx.Err(), client.Trouble()))
	}
	if fault, ok := errors.AsType[*bridge.Fault](err); ok {
		return nil, fault
	}
	return nil, p.cfg.explain(fmt.Errorf("read the events of %s: %w", p.cfg.Stream, err), client)
}

// errIndexTooLarge ends the reading of more than can be remembered.
var errIndexTooLarge = errors.New("too many to tell apart")

func (p *Published) buildIndex(ctx context.Context, client *kafkaclient.Client, from time.Time, source bridge.SourceIdentity) (*publishedIndex, error) {
	h := newPublishedIndex(p.cfg.Headers == headersNone)
	of := sourcesOf(p.cfg, source)
	for _, topic := range p.cfg.Topics().Published() {
		l := client.Log(topic, [16]byte{})
		l.Waiting = p.cfg.Report
		spans, err := spansAfter(ctx, l, from)
		if kafkaclient.IsMissing(err) && topic != p.cfg.Topic {
			continue // no dead letter yet
		}
		if err == nil {
			err = l.Read(ctx, spans, func(r *kgo.Record) error {
				if of.isOthers(r) {
					return nil
				}
				return p.takeHeld(h, r)
			})
		}
		switch {
		case errors.Is(err, errIndexTooLarge):
			return nil, p.cfg.Advise(&bridge.Fault{
				Class: bridge.Permanent, Reason: bridge.ReasonCursor, Code: "overlap",
				Err: fmt.Errorf("topic %s holds more than %d events since %s, %w", p.cfg.Topic, maxIndexed, from.UTC().Format(time.RFC3339), err),
			}, bridge.HintOverlapTooLong)
		case err != nil:
			return nil, p.cfg.unreadable(err, topic)
		}
	}
	p.cfg.Tell(nil)
	return h, nil
}

// takeHeld remembers a record if it is the stream's.
func (p *Published) takeHeld(h *publishedIndex, r *kgo.Record) error {
	switch {
	case !p.isOurs(r):
	case r.Topic == p.cfg.Topic:
		h.add(r)
	default:
		h.addLetter(r)
	}
	if h.len() > maxIndexed {
		return errIndexTooLarge
	}
	return nil
}

// spansAfter returns the spans of a topic from a record time to its current
// end. Records of open transactions, and those after them, are waited for.
func spansAfter(ctx context.Context, l *kafkaclient.Log, from time.Time) (map[int32]kafkaclient.Span, error) {
	starts, err := l.After(ctx, from.UnixMilli())
	if err != nil {
		return nil, err
	}
	ends, err := l.Ends(ctx)
	if err != nil {
		return nil, err
	}
	spans := make(map[int32]kafkaclient.Span)
	for id, start := range starts {
		if start >= 0 {
			spans[id] = kafkaclient.Span{From: start, To: ends[id]}
		}
	}
	return spans, nil
}

// fingerprint names an event where very many are remembered: 16 bytes of the
// SHA-256 of its id or its bytes.
type fingerprint [16]byte

// fingerprintOf returns the fingerprint of an id, or of bytes.
func fingerprintOf(b []byte) fingerprint {
	sum := sha256.Sum256(b)
	return fingerprint(sum[:16])
}

// publishedIndex is what the topics hold.
type publishedIndex struct {
	byValue bool
	// exact: an event is there only with the same bytes, whatever its id.
	exact bool
	// times is how often each name was published, letters how often it is a
	// dead letter. Events of one name have the same bytes, or are one event but
	// for those that share an id: a name in both was a dead letter first and
	// published from that.
	times   map[fingerprint]copies
	letters map[fingerprint]int32
	// forms are the values of letters, and of further records with the value
	// of another under the same id: they tell events apart that share it.
	forms map[form]struct{}
	// nameless are the bytes of dead letters whose id was too long for them.
	nameless map[fingerprint]bool
	id       []byte
}

// copies is how many records an event has, and a sum of the first one's value.
type copies struct {
	n   int32
	sum uint32
}

// form is a value under an id.
type form struct {
	name fingerprint
	sum  uint32
}

func formOf(name fingerprint, value []byte) form {
	return form{name, crc32.Checksum(value, castagnoli)}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func newPublishedIndex(byValue bool) *publishedIndex {
	return &publishedIndex{
		byValue: byValue, times: make(map[fingerprint]copies), letters: make(map[fingerprint]int32),
		forms: make(map[form]struct{}), nameless: make(map[fingerprint]bool),
	}
}

func (h *publishedIndex) len() int {
	return len(h.times) + len(h.letters) + len(h.forms) + len(h.nameless)
}

func (h *publishedIndex) add(r *kgo.Record) {
	name, ok := r.Value, h.byValue
	if !h.byValue {
		name, ok = recordID(r)
	}
	if !ok {
		return
	}
	is := formOf(fingerprintOf(name), r.Value)
	c := h.times[is.name]
	if c.n++; c.n == 1 {
		c.sum = is.sum
	} else if c.sum != is.sum {
		h.forms[is] = struct{}{}
	}
	h.times[is.name] = c
}

func (h *publishedIndex) addLetter(r *kgo.Record) {
	item := r.Value
	sub, ok := ReadSubstitute(r)
	if ok {
		item = nil
	}
	id, ok := recordID(r)
	sum, err := hex.DecodeString(sub.SHA256)
	switch {
	case h.byValue && item != nil:
		h.letters[fingerprintOf(item)]++
	case !h.byValue && ok:
		h.letters[fingerprintOf(id)]++
		h.forms[formOf(fingerprintOf(id), item)] = struct{}{}
	case err != nil || len(sum) != sha256.Size: // it says nothing
	case h.byValue:
		h.letters[fingerprint(sum[:16])]++
	default:
		h.nameless[fingerprint(sum[:16])] = true
	}
}

// recordID returns the id that the headers of a record have.
func recordID(r *kgo.Record) ([]byte, bool) {
	for _, header := range r.Headers {
		if header.Key == HeaderID {
			return header.Value, true
		}
	}
	return nil, false
}

// Match implements bridge.PublishedIndex.
func (h *publishedIndex) Match(e *bridge.Event) bool {
	name := e.Raw
	if !h.byValue {
		h.id = e.AppendRecordID(h.id[:0])
		name = h.id
	}
	p := fingerprintOf(name)
	c := h.times[p]
	there := max(c.n, h.letters[p]) > 0
	switch {
	case there && e.ID == nil:
		h.times[p] = copies{c.n - 1, c.sum}
		h.letters[p]--
	case there && (e.Shared || h.exact):
		is := formOf(p, e.Raw)
		_, there = h.forms[is]
		there = there || c.n > 0 && c.sum == is.sum
	}
	return there || len(h.nameless) > 0 && h.nameless[fingerprintOf(e.Raw)]
}
