package kafkasink

import (
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkarecord"
)

// maxHeaders is how many headers an event's record has at most, without those that are rare.
var maxHeaders = len(slices.DeleteFunc(kafkarecord.EventHeaders(), func(h kafkarecord.Header) bool { return h.Rare }))

// builder builds the records of pages. Owned by the Sink's caller.
type builder struct {
	cfg       Config
	constants struct{ specVersion, contentType, stream, live, rewind, redacted kgo.RecordHeader }
	typeOf    string // ce_type, or its part before the event's type
	naming    kafkarecord.Naming

	to    *inflightPage    // the page that build fills
	trace kgo.RecordHeader // of the record's topic, without a key if the page is not traced
	times bridge.EventTimes

	source     bridge.SourceIdentity
	sourceText []byte

	destinations []destination // of the page's events, by Event.Route
}

// destination is a topic of events, the event times that it keeps, and the trace of its
// records.
type destination struct {
	*kafkaclient.Topic
	span  timeRange
	trace kgo.RecordHeader
}

// builtPage is the state of building one page.
type builtPage struct {
	letters *kafkaclient.Topic // nil without a topic of dead letters
	now     time.Time
	receipt bridge.Receipt
}

func newBuilder(cfg Config) builder {
	origin := "live"
	if cfg.Part != nil { // an event has the headers that the stream itself would have given it
		cfg.Stream, origin = cfg.Part.Stream, cfg.Part.Origin
	}
	b := builder{cfg: cfg, naming: cfg.naming()}
	b.constants.specVersion = text(kafkarecord.HeaderSpecVersion, "1.0")
	b.constants.contentType = text(kafkarecord.HeaderContentType, "application/json")
	b.constants.stream = text(kafkarecord.HeaderStream, cfg.Stream)
	b.constants.live = text(kafkarecord.HeaderOrigin, origin)
	b.constants.rewind = text(kafkarecord.HeaderOrigin, "rewind")
	b.constants.redacted = text(kafkarecord.HeaderRedacted, cfg.Redacted)
	switch {
	case cfg.TypePrefix != "":
		b.typeOf = cfg.TypePrefix
	case cfg.Resource == "sessions":
		b.typeOf = "com.croct.session"
	case cfg.Resource == "users":
		b.typeOf = "com.croct.user"
	default:
		b.typeOf = "com.croct.event"
	}
	b.sourceText = []byte(b.naming.Of(bridge.SourceIdentity{}))
	return b
}

// build builds all records of the page in p before any is produced, so that a
// rejected page leaves nothing behind.
func (b *builder) build(p *inflightPage, page *bridge.Page, topics *kafkaclient.Described) (bridge.Receipt, error) {
	now := time.Now()
	b.to = p
	defer func() { b.to = nil }() // it holds the page
	p.reserve(len(page.Events), b.headersPerEvent(page), b.textOf(page))
	made := builtPage{letters: topics.DeadLetters, now: now}
	b.destinations = b.destinations[:0]
	b.addDestination(topics.Events, page, now)
	for _, t := range topics.Routed {
		b.addDestination(t, page, now)
	}
	if page.Source != b.source {
		b.source, b.sourceText = page.Source, []byte(b.naming.Of(page.Source))
	}
	for i := range page.Events {
		if err := b.add(&made, page, &page.Events[i]); err != nil {
			return bridge.Receipt{}, err
		}
	}
	return made.receipt, nil
}

// addDestination adds the topic of the next Event.Route.
func (b *builder) addDestination(t *kafkaclient.Topic, page *bridge.Page, now time.Time) {
	d := destination{Topic: t, span: keptBy(&t.Settings, now)}
	if to := len(b.destinations); to < len(page.Traceparents) && page.Traceparents[to] != "" {
		d.trace = kgo.RecordHeader{Key: kafkarecord.HeaderTraceparent, Value: []byte(page.Traceparents[to])}
	}
	b.destinations = append(b.destinations, d)
}

// headersPerEvent returns the maximum number of headers of a record of the page.
func (b *builder) headersPerEvent(page *bridge.Page) int {
	if b.cfg.Headers == headersNone {
		return 0
	}
	most := maxHeaders
	if b.cfg.Redacted != "" {
		most++
	}
	if len(page.Traceparents) > 0 {
		most++
	}
	for i := range page.Events {
		if page.Events[i].Late > 0 {
			return most + 1
		}
	}
	return most
}

// textOf returns the maximum bytes of the header values that are built for the page.
func (b *builder) textOf(page *bridge.Page) (bytes int) {
	const idAndTime = 64
	for i := range page.Events {
		bytes += len(b.typeOf) + len(page.Events[i].Type) + idAndTime
	}
	return bytes
}

// add builds the record of one event, or its dead letter.
func (b *builder) add(made *builtPage, page *bridge.Page, ev *bridge.Event) error {
	to := &b.destinations[0]
	if int(ev.Route) < len(b.destinations) { // a replay has one topic for all
		to = &b.destinations[ev.Route]
	}
	b.trace = to.trace
	letter := deadLetter{page: page, event: ev, defect: ev.Defect, to: to.Topic}
	if ev.Mismatch != nil {
		made.receipt.Mismatched++
	}
	switch {
	case ev.Route == bridge.RouteDrop:
		made.receipt.Dropped++
		return nil
	case ev.Defect != bridge.DefectNone:
		return b.divert(made, letter)
	case len(ev.Raw) == 0: // would be a tombstone
		letter.defect = bridge.DefectNotObject
		return b.divert(made, letter)
	case ev.Mismatch != nil && b.cfg.DivertsMismatches():
		letter.defect = bridge.DefectMismatch
		return b.divert(made, letter)
	}
	stamp, restamped := made.stamp(b.cfg.Timestamp, to, ev)
	if restamped && b.cfg.OnExpired == stopStream {
		return b.expired(page, ev, to)
	}
	rec := kgo.Record{
		Topic: to.Name, Key: slices.Clip(ev.Key), Value: slices.Clip(ev.Raw),
		Timestamp: stamp, Headers: b.eventHeaders(ev),
	}
	if size := recordSize(&rec); size > to.Settings.MaxMessage {
		letter.defect, letter.size = bridge.DefectTooLarge, size
		return b.divert(made, letter)
	}
	b.to.records = append(b.to.records, rec)
	made.receipt.Published++
	made.receipt.Bytes += int64(len(ev.Raw))
	if restamped {
		made.receipt.Restamped++
	}
	return nil
}

// stamp returns the record's timestamp, and whether it replaces an event time
// that the topic would not retain.
func (b *builtPage) stamp(setting string, to *destination, ev *bridge.Event) (time.Time, bool) {
	switch {
	case setting == timestampPublish || to.Settings.AppendTime || ev.Time == bridge.NoTime:
		return b.now, false
	case to.span.holds(ev.Time):
		return time.UnixMilli(ev.Time), false
	default:
		return b.now, true
	}
}

func (b *builder) expired(page *bridge.Page, ev *bridge.Event, to *destination) error {
	return bridge.Blockf("expired", bridge.ReasonRetention,
		"raise retention.ms of the topic, or set BRIDGE_ON_EXPIRED=publish-time to publish such events with the publish time",
		"%s: time %s is outside the range that topic %s keeps (%s to %s)", nameItem(page, ev),
		bridge.InstantText(ev.Time), to.Name, bridge.InstantText(to.span.from), bridge.InstantText(to.span.to))
}

// eventHeaders returns the headers of an event's record.
func (b *builder) eventHeaders(ev *bridge.Event) []kgo.RecordHeader {
	from := len(b.to.headers)
	switch b.cfg.Headers {
	case headersNone:
		return nil
	case headersMinimal:
		b.to.headers = append(b.to.headers, b.id(ev), b.constants.stream, b.origin(ev))
	default:
		b.to.headers = append(b.to.headers, b.constants.specVersion, b.id(ev),
			kgo.RecordHeader{Key: kafkarecord.HeaderSource, Value: b.sourceText}, b.typeHeader(ev))
		if h, ok := b.timeHeader(ev); ok {
			b.to.headers = append(b.to.headers, h)
		}
		if ev.Subject != nil {
			b.to.headers = append(b.to.headers, kgo.RecordHeader{Key: kafkarecord.HeaderSubject, Value: slices.Clip(ev.Subject)})
		}
		b.to.headers = append(b.to.headers, b.constants.contentType, b.constants.stream, b.origin(ev))
	}
	if b.cfg.Redacted != "" {
		b.to.headers = append(b.to.headers, b.constants.redacted)
	}
	if b.trace.Key != "" {
		b.to.headers = append(b.to.headers, b.trace)
	}
	if ev.Late > 0 {
		late := strconv.AppendInt(nil, ev.Late.Milliseconds(), 10)
		b.to.headers = append(b.to.headers, kgo.RecordHeader{Key: kafkarecord.HeaderLate, Value: late})
	}
	return b.to.headers[from:len(b.to.headers):len(b.to.headers)]
}

func (b *builder) id(ev *bridge.Event) kgo.RecordHeader {
	if ev.ID != nil {
		return kgo.RecordHeader{Key: kafkarecord.HeaderID, Value: slices.Clip(ev.ID)}
	}
	return b.header(kafkarecord.HeaderID, ev.AppendRecordID)
}

func (b *builder) origin(ev *bridge.Event) kgo.RecordHeader {
	if ev.Republished {
		return b.constants.rewind
	}
	return b.constants.live
}

func (b *builder) typeHeader(ev *bridge.Event) kgo.RecordHeader {
	return b.header(kafkarecord.HeaderType, func(to []byte) []byte {
		to = append(to, b.typeOf...)
		if len(ev.Type) > 0 {
			to = append(append(to, '.'), ev.Type...)
		}
		return to
	})
}

// timeHeader returns the header of the event time, if ce_time can have that time.
func (b *builder) timeHeader(ev *bridge.Event) (h kgo.RecordHeader, ok bool) {
	h.Key = kafkarecord.HeaderTime
	from := len(b.to.text)
	b.to.text, ok = b.times.Append(b.to.text, ev)
	h.Value = b.to.text[from:len(b.to.text):len(b.to.text)]
	return h, ok
}

// header returns a header with its value in the page's own memory.
func (b *builder) header(key string, appendValue func([]byte) []byte) kgo.RecordHeader {
	from := len(b.to.text)
	b.to.text = appendValue(b.to.text)
	return kgo.RecordHeader{Key: key, Value: b.to.text[from:len(b.to.text):len(b.to.text)]}
}

// Sizes of the record batch format, rounded up: that of a batch with one
// record, and of the variable-length integers in a record and a header.
const (
	batchOverhead  = 128
	headerOverhead = 10
)

// recordSize returns the maximum size of a batch with only this record, before
// compression. The producer limits that size too, the brokers limit the size after
// compression: a record that fits here always fits.
func recordSize(r *kgo.Record) int {
	n := batchOverhead + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += headerOverhead + len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}

// timeRange is the range of timestamps that a topic retains, in milliseconds since the
// epoch. Client clocks are unreliable, so event times may be outside.
type timeRange struct{ from, to int64 }

// keptBy returns a topic's range as of now. A record older than half the
// retention would soon be deleted; Kafka has no negative timestamps.
func keptBy(t *kafkaclient.Settings, now time.Time) timeRange {
	r := timeRange{to: now.Add(min(kafkarecord.FutureLimit, t.After)).UnixMilli()}
	if t.Retention != kafkaclient.ForEver {
		r.from = max(r.from, now.Add(-t.Retention/2).UnixMilli())
	}
	if t.Before != kafkaclient.Unbounded {
		r.from = max(r.from, now.Add(-t.Before).UnixMilli())
	}
	return r
}

func (t timeRange) holds(ms int64) bool { return ms >= t.from && ms <= t.to }
