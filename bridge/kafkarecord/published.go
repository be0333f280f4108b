package kafkarecord

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// FutureLimit bounds record timestamps in the future. Kafka 4 rejects later ones by
// default.
const FutureLimit = time.Hour

// maxIndexed is the number of remembered events: about 300 MB.
const maxIndexed = 5_000_000

// Config selects the records to read. Its Topics are those of events and dead letters.
type Config struct {
	kafkaclient.Config
	// Stream is the value of the header eb-stream.
	Stream string
	Topics kafkaclient.Topics
	Naming Naming
	// Unnamed is set if records have no headers. Part is set if the stream is a part of
	// another stream, whose records are not its own.
	Unnamed, Part bool
	// Redacted names the rules for private data, empty for none.
	Redacted string
}

// SameIDs reports whether records have the same ids under two rules, given by their names.
func SameIDs(a, b string) bool {
	return a == b || !strings.HasSuffix(a, bridge.IDsChanged) && !strings.HasSuffix(b, bridge.IDsChanged)
}

// Published reads the stream's events and dead letters in its topics. It publishes nothing,
// and needs no session. One goroutine at a time may call Holds. The other methods may be
// called concurrently.
type Published struct {
	// LookTime bounds one Holds; 30 s by default.
	LookTime time.Duration

	cfg Config
	// searched are the parts of each topic where Holds has found nothing.
	searched map[string]searched
}

// NewPublished returns the reader of a stream's topics.
func NewPublished(cfg Config) *Published {
	return &Published{cfg: cfg, searched: make(map[string]searched), LookTime: lookTime}
}

// Index implements bridge.PublishedEvents. It reads the topics of events and dead letters
// in read_committed isolation: from the ends in since.Topics on, and from an hour before
// since.Time on, because a record's timestamp may be its publish time. It identifies an
// event by its bytes; an update has other bytes. It omits records that name another stream
// or another source. It waits for brokers and open transactions until ctx ends.
func (p *Published) Index(
	ctx context.Context, since bridge.Since, source bridge.SourceIdentity,
) (bridge.PublishedIndex, error) {
	client, err := p.cfg.Open()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	h, err := p.buildIndex(ctx, client, since, source)
	if err != nil {
		return nil, p.unread(ctx, client, err)
	}
	return h, nil
}

// unread returns why the events could not be read.
func (p *Published) unread(ctx context.Context, client *kafkaclient.Client, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("read the events of %s: %w", p.cfg.Stream, errors.Join(ctx.Err(), client.Trouble()))
	}
	return client.Explain(fmt.Errorf("read the events of %s: %w", p.cfg.Stream, err), p.cfg.Topics.Events)
}

// Covers returns the fault of Index if retention has deleted records that Index has to read
// since then. It reads no records.
func (p *Published) Covers(ctx context.Context, since bridge.Since) error {
	client, err := p.cfg.Open()
	if err != nil {
		return err
	}
	defer client.Close()
	for _, topic := range p.cfg.Topics.OfEvents() {
		if _, err := p.spansSince(ctx, client, client.Log(topic, [16]byte{}), since); err != nil {
			return err
		}
	}
	return nil
}

// errIndexTooLarge ends the reading when there are more events than memory can hold.
var errIndexTooLarge = errors.New("too many to tell apart")

// errOtherIDs ends the reading of records that cannot be compared with items.
var errOtherIDs = errors.New(
	"published under other rules for private data, with ids that the present rules do not make")

func (p *Published) buildIndex(
	ctx context.Context, client *kafkaclient.Client, since bridge.Since, source bridge.SourceIdentity,
) (*publishedIndex, error) {
	h := newPublishedIndex(since.ByKey, p.cfg.Redacted)
	of := p.cfg.Naming.sourcesOf(source)
	topics := p.published(since.Topics)
	if err := client.AgreeOnLeaders(ctx, topics...); err != nil { // a former leader may lack events
		return nil, err
	}
	for _, topic := range topics {
		l := client.Log(topic, [16]byte{})
		l.Waiting = p.cfg.Report
		spans, err := p.spansSince(ctx, client, l, since)
		if kafkaclient.IsMissing(err) && !p.cfg.Topics.HasEvents(topic) {
			continue // the dead-letter topic is missing, or a former topic was deleted
		}
		if letters := p.hasLetters(topic, since.Topics); err == nil {
			err = l.Read(ctx, spans, func(r *kgo.Record) error {
				if of.isOthers(r) {
					return nil
				}
				return p.takeHeld(h, r, letters)
			})
		}
		switch {
		case errors.Is(err, errIndexTooLarge) && since.EndsOnly:
			return nil, bridge.Blockf("look-back", bridge.ReasonConfig, "lower EXPORT_LOOK_BACK, or the range of EXPORT_LATE",
				"topic %s holds more than %d events of the look-back, %w", p.cfg.Topics.Events, maxIndexed, err)
		case errors.Is(err, errOtherIDs):
			return nil, p.cfg.Advise(bridge.Blockf("overlap", bridge.ReasonCursor, "", "topic %s holds events since %s %w",
				topic, bridge.InstantText(since.Time.UnixMilli()), err), bridge.HintOverlapTooLong)
		case errors.Is(err, errIndexTooLarge):
			return nil, p.cfg.Advise(bridge.Blockf("overlap", bridge.ReasonCursor, "",
				"topic %s holds more than %d events since %s, %w", p.cfg.Topics.Events, maxIndexed,
				bridge.InstantText(since.Time.UnixMilli()), err), bridge.HintOverlapTooLong)
		case err != nil:
			return nil, p.cfg.unreadable(err, topic)
		}
	}
	p.cfg.Tell(nil)
	return h, nil
}

// published returns the topics of events and dead letters, and the former ones.
func (p *Published) published(known []bridge.TopicState) []string {
	all := p.cfg.Topics.Published()
	for i := range known {
		if t := &known[i]; !slices.Contains(all, t.Name) {
			all = append(all, t.Name)
		}
	}
	return all
}

// hasLetters reports whether a topic is one of dead letters, or a former one.
func (p *Published) hasLetters(topic string, known []bridge.TopicState) bool {
	was := bridge.FindTopic(known, topic)
	return topic == p.cfg.Topics.DeadLetters || was != nil && was.DeadLetters && !p.cfg.Topics.HasEvents(topic)
}

// takeHeld remembers a record if it belongs to the stream. letters is true for a dead letter.
func (p *Published) takeHeld(h *publishedIndex, r *kgo.Record, letters bool) error {
	switch {
	case !p.isOurs(r):
	case letters:
		h.addLetter(r)
	default:
		h.add(r)
	}
	switch {
	case h.otherIDs:
		return errOtherIDs
	case h.len() > maxIndexed:
		return errIndexTooLarge
	}
	return nil
}

// spansSince returns the spans of a topic to read for an index.
func (p *Published) spansSince(
	ctx context.Context, client *kafkaclient.Client, l *kafkaclient.Log, since bridge.Since,
) (map[int32]kafkaclient.Span, error) {
	if since.EndsOnly {
		return p.spansAfterEnds(ctx, client, l, since.Topics)
	}
	spans, err := spansAfter(ctx, l, since.Time)
	ends, errEnds := knownEnds(ctx, client, l, since.Topics)
	if err := cmp.Or(err, errEnds); err != nil || len(ends) == 0 {
		return spans, err
	}
	for id, span := range spans {
		end := int64(0) // 0 for an added partition
		if int(id) < len(ends) {
			end = ends[id]
		}
		spans[id] = kafkaclient.Span{From: min(span.From, end), To: span.To}
	}
	return spans, nil
}

// knownEnds returns the ends of the log's topic in known. It returns none if they are
// unknown, or if they are those of a former topic of the same name.
func knownEnds(
	ctx context.Context, client *kafkaclient.Client, l *kafkaclient.Log, known []bridge.TopicState,
) ([]int64, error) {
	was := bridge.FindTopic(known, l.Topic())
	if was == nil {
		return nil, nil
	}
	now, err := client.Identify(ctx, l.Topic())
	if err != nil {
		return nil, err
	}
	if state := now[0].State(was.DeadLetters); !was.Same(&state) {
		return nil, nil
	}
	return was.Ends.Offsets(), nil
}

// spansAfterEnds returns the spans of a topic after its ends in known, or the whole topic
// if the ends are unknown. Dead letters may be deleted once they are handled.
func (p *Published) spansAfterEnds(
	ctx context.Context, client *kafkaclient.Client, l *kafkaclient.Log, known []bridge.TopicState,
) (map[int32]kafkaclient.Span, error) {
	bounds, err := l.Bounds(ctx)
	ends, errEnds := l.Ends(ctx)
	from, errFrom := knownEnds(ctx, client, l, known)
	if err := cmp.Or(err, errEnds, errFrom); err != nil {
		return nil, err
	}
	spans := make(map[int32]kafkaclient.Span, len(ends))
	for id, all := range bounds {
		span := kafkaclient.Span{From: all.From, To: max(all.From, ends[id])}
		if int(id) < len(from) && all.From <= from[id] {
			span.From = from[id]
		} else if int(id) < len(from) && p.cfg.Topics.HasEvents(l.Topic()) {
			return nil, bridge.BlockHintf("look-back", bridge.ReasonRetention, bridge.HintLookBack,
				"partition %d of topic %s begins at offset %d, but the events published since offset %d "+
					"must be known: the API may list them again", id, l.Topic(), all.From, from[id])
		}
		if span.From < span.To {
			spans[id] = span
		}
	}
	return spans, nil
}

// spansAfter returns the spans of a topic from an event time to its current end. They begin
// FutureLimit earlier, because the timestamp of a record may be its publish time. A read of
// them waits for open transactions.
func spansAfter(ctx context.Context, l *kafkaclient.Log, from time.Time) (map[int32]kafkaclient.Span, error) {
	starts, err := l.After(ctx, from.Add(-FutureLimit).UnixMilli())
	ends, errEnds := l.Ends(ctx)
	if err := cmp.Or(err, errEnds); err != nil {
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

// fingerprint identifies an event by the first 16 bytes of the SHA-256 of its bytes.
type fingerprint [16]byte

func fingerprintOf(value []byte) fingerprint {
	sum := sha256.Sum256(value)
	return fingerprint(sum[:16])
}

// publishedIndex is the content of the topics, by the bytes of the items. Records have the
// bytes under any setting of BRIDGE_HEADERS and EXPORT_ITEM_ID. The same id with other
// bytes is an update.
type publishedIndex struct {
	// events counts how often each item was published, letters how often it is a dead
	// letter. An item in both was a dead letter first, and was published from there.
	events, letters map[fingerprint]records
	byKey           bool // items are identified by their bridge.ItemKey, not by bytes
	// redacted names the rules for private data. Records under other rules have other bytes
	// for the same item, so their ids identify them. foreign is set if there are such
	// records, otherIDs if their ids differ too.
	redacted          string
	foreign, otherIDs bool
	// encrypted is set if the rules encrypt values. Then ids identify records too, because
	// the values of an item may be replaced now.
	encrypted bool
}

func newPublishedIndex(byKey bool, redacted string) *publishedIndex {
	return &publishedIndex{events: make(map[fingerprint]records), letters: make(map[fingerprint]records), byKey: byKey,
		redacted: redacted, encrypted: strings.Contains(redacted, bridge.ValuesEncrypted)}
}

func (p *publishedIndex) len() int { return len(p.events) + len(p.letters) }

func (p *publishedIndex) add(r *kgo.Record) {
	item, other, keyed := p.item(r)
	count(p.events, item, other, p.sumOf(r, keyed))
}

// records are those of one name. sum is that of their bytes if the name is a key: 0 if it is unknown.
type records struct {
	n   int32
	sum uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumOf returns the sum of a record with a key. It is 0 if the record does not have the bytes that its
// item has today.
func (p *publishedIndex) sumOf(r *kgo.Record, keyed bool) uint32 {
	if rules, _ := headerOf(r, HeaderRedacted); !keyed || string(rules) != p.redacted {
		return 0
	}
	return crc32.Checksum(r.Value, castagnoli)
}

// summed is the name of another record of a key, with other bytes.
func summed(key fingerprint, sum uint32) fingerprint {
	return fingerprintOf(binary.BigEndian.AppendUint32(key[:], sum))
}

// count counts a record by its name, and by its other name if there is one.
func count(in map[fingerprint]records, item, other fingerprint, sum uint32) {
	switch of := in[item]; {
	case of.n == 0:
		in[item] = records{1, sum}
	case of.sum == sum || of.sum == 0:
		in[item] = records{of.n + 1, of.sum}
	case sum == 0:
		in[item] = records{of.n + 1, 0}
	default:
		in[item], in[summed(item, sum)] = records{of.n + 1, of.sum}, records{n: 1}
	}
	if other != (fingerprint{}) {
		in[other] = records{n: in[other].n + 1}
	}
}

// item names the item of a record. keyed is set if the name is not made of the item's
// bytes. A dead letter with a long id has no key, and a record without the headers of
// CloudEvents has none. other is the name, under today's rules, of an item without an id,
// for events that have one now.
func (p *publishedIndex) item(r *kgo.Record) (item, other fingerprint, keyed bool) {
	var id, at, spec, redacted []byte
	for i := range r.Headers {
		switch r.Headers[i].Key {
		case HeaderID:
			id = r.Headers[i].Value
		case HeaderTime:
			at = r.Headers[i].Value
		case HeaderSpecVersion:
			spec = r.Headers[i].Value
		case HeaderRedacted:
			redacted = r.Headers[i].Value
		}
	}
	switch {
	case p.byKey && id != nil && spec != nil:
		return fingerprint(bridge.ItemKeyOf(id, at)), other, true
	case redacted != nil && string(redacted) != p.redacted:
		p.foreign, p.otherIDs = true, p.otherIDs || !SameIDs(string(redacted), p.redacted)
		return fingerprintOf(append([]byte(recordID), id...)), other, true
	case redacted != nil && bridge.SumsOfRecord(id) != nil: // other items can have the same bytes
		return fingerprintOf(append([]byte(recordID), id...)), fingerprintOf(append([]byte(bare), r.Value...)), false
	}
	if redacted != nil && p.encrypted {
		other = fingerprintOf(append([]byte(recordID), id...))
	}
	return fingerprintOf(r.Value), other, false
}

func (p *publishedIndex) addLetter(r *kgo.Record) {
	item, other, keyed := p.item(r)
	sub, ok := ReadSubstitute(r)
	if ok && (!keyed || !p.byKey) { // its sum is the same under any rules
		sum, err := hex.DecodeString(sub.SHA256)
		if err != nil {
			return // nothing identifies the item
		}
		item, other = fingerprint(sum[:16]), fingerprint{}
	}
	count(p.letters, item, other, p.sumOf(r, keyed && !ok))
}

// Match implements bridge.PublishedIndex.
func (p *publishedIndex) Match(e *bridge.Event) bool {
	if p.byKey && p.matchKey(e) || p.match(e, fingerprintOf(e.Raw)) {
		return true
	}
	if e.Sums == nil {
		return false
	}
	plain, keyed := e.Sums.Plain(), e.Sums.Keyed()
	return p.match(e, fingerprint(plain[:16])) || p.match(e, fingerprint(keyed[:16])) ||
		(p.foreign || e.Sums.Replaced || e.ID == nil) && p.matchID(e) ||
		e.ID != nil && p.match(e, fingerprintOf(append([]byte(bare), e.Raw...)))
}

// The prefixes of the names of records by their ids, and of bytes whose item had no id. No
// item begins like these.
const (
	recordID = "\x00id "
	bare     = "\x00bare "
)

// matchKey is Match by the key of the record. Events can share a key: then a record with other bytes is
// another event's. A record whose item's bytes are unknown may be any event's.
func (p *publishedIndex) matchKey(e *bridge.Event) bool {
	key := fingerprint(e.ItemKey())
	if !e.Shared || e.ID == nil || e.Withheld() || e.Sums != nil && e.Sums.Replaced {
		return p.match(e, key) || p.matchWasKey(e)
	}
	sum := crc32.Checksum(e.Raw, castagnoli)
	for _, of := range []records{p.events[key], p.letters[key]} {
		if of.n > 0 && (of.sum == 0 || of.sum == sum) {
			return true
		}
	}
	return p.match(e, summed(key, sum))
}

// matchWasKey is Match by keys of older records: an item without an id had another one before the
// rules for private data, and older versions gave a withheld item without a time the time 0.
func (p *publishedIndex) matchWasKey(e *bridge.Event) bool {
	if e.Sums == nil {
		return false
	}
	was := *e
	if e.Defect == bridge.DefectPrivate && e.Time == bridge.NoTime {
		if was.Time = 0; p.match(e, fingerprint(was.ItemKey())) {
			return true
		}
	}
	was.Time, was.Sums = e.Time, e.Sums.Was()
	return e.ID == nil && p.match(e, fingerprint(was.ItemKey()))
}

// matchID is Match by the id of the record. Events can share an id: each record shows one of them, and from then on
// counts by the bytes of that event, so that the event stays held however often it is listed.
func (p *publishedIndex) matchID(e *bridge.Event) bool {
	name := fingerprintOf(e.AppendRecordID([]byte(recordID)))
	if e.ID == nil {
		return p.match(e, name)
	}
	form := fingerprintOf(e.Raw)
	if e.Withheld() {
		form = fingerprint(e.Form()[:len(form)])
	}
	for _, in := range []map[fingerprint]records{p.events, p.letters} {
		if of := in[name]; of.n > 0 {
			if in[name] = (records{n: of.n - 1}); of.n == 1 {
				delete(in, name) // the number of names stays within maxIndexed
			}
			count(p.events, form, fingerprint{}, 0)
			return true
		}
	}
	return false
}

func (p *publishedIndex) match(e *bridge.Event, item fingerprint) bool {
	event, letter := p.events[item], p.letters[item]
	there := max(event.n, letter.n) > 0
	if there && e.ID == nil {
		p.events[item], p.letters[item] = records{event.n - 1, event.sum}, records{letter.n - 1, letter.sum}
	}
	return there
}
