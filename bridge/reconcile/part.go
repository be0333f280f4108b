package reconcile

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"iter"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/kafkarecord"
)

// errTooMany means that a part of the range has more events than Config.Batch, or than the API lists.
var errTooMany = errors.New("too many events at once")

// eventName identifies an event: 16 bytes of the SHA-256 of its record id.
type eventName [16]byte

func nameOf(id []byte) eventName {
	sum := sha256.Sum256(id)
	return eventName(sum[:16])
}

// copies counts the copies of an event.
type copies struct {
	api, topic int32
	own        bool   // the event has an id: further copies are the same event
	awaits     bool   // see frontier.awaits
	timed      bool   // the event has a time
	dated      bool   // the event has an ingestion time
	there      bool   // the topic of the route has a copy
	route      uint8  // the event's Route
	sum        uint32 // of the event's bytes in the API
	at         int64  // the earliest time that the record can have
}

// wanted returns the number of copies that the topic should have, unless a route drops
// them.
func (c copies) wanted() int32 {
	if c.own {
		return min(1, c.api)
	}
	return c.api
}

// missing is the number of copies that the topic lacks.
func (c copies) missing() int32 { return max(0, c.wanted()-c.topic) }

// part is a part of the range, while it is compared.
type part struct {
	*comparison
	begin, end int64
	events     map[eventName]copies
	found      Report
	id         []byte
	retried    func(*deadletter.DeadLetter) bool // nil is a function that returns false
	// since is the earliest record time that the part's events can have in the topic,
	// in milliseconds since the epoch. An event time in the future becomes the time of
	// publishing, which may be much earlier.
	since int64
	// shared are the ids that several events have, which are counted separately.
	shared map[eventName]bool
	// was has the names of events by the names from before there were rules for private data.
	was map[eventName]eventName
	// unlike is set by a record under other rules whose name does not identify its event.
	unlike bool
	// replaced are the ids of events whose records may have other bytes under the same rules.
	replaced map[eventName]bool
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// formOf returns the bytes that tell an event from others with its id: those of its record, or
// else a sum, since a withheld item has no bytes.
func formOf(e *bridge.Event) []byte {
	if e.Withheld() {
		return e.Form()
	}
	return e.Raw
}

// formName identifies an event with a shared id, by the name of its id and the checksum of
// its bytes.
func formName(of eventName, sum uint32) eventName {
	return nameOf(binary.BigEndian.AppendUint32(of[:], sum))
}

// recordName returns the name of the event of a record with this id and value.
func (p *part) recordName(id, value []byte, r *kgo.Record) eventName {
	rules, name := deadletter.Header(r, kafkarecord.HeaderRedacted), p.nameOf(id, value)
	if other := rules != p.Redacted; other || len(p.replaced) > 0 {
		of := p.idName(id)
		p.unlike = p.unlike || p.shared[of] && (other || p.replaced[of]) ||
			other && rules != "" && !kafkarecord.SameIDs(rules, p.Redacted) && (p.events[name].api > 0 || p.mayBeInRange(r))
	}
	return name
}

// mayBeInRange reports whether a record can have an event of the range: by its time, if the API selects by that.
func (p *part) mayBeInRange(r *kgo.Record) bool {
	at, err := time.Parse(time.RFC3339Nano, deadletter.Header(r, kafkarecord.HeaderTime))
	e := bridge.Event{Time: at.UnixMilli()}
	return err != nil || p.found.Outside > 0 || !(&bridge.Origin{Start: p.From, End: p.To}).Outside(&e)
}

// idName returns the name of a record id.
func (p *part) idName(id []byte) eventName {
	n := nameOf(id)
	return cmp.Or(p.was[n], n)
}

// comparable returns an error if unlike is set.
func (p *part) comparable() error {
	if !p.unlike {
		return nil
	}
	return reject(OtherRules, "the topic has events of the range under other rules for private data, or with values "+
		"that nobody can encrypt again: their ids, or the bytes of events that share an id, differ")
}

// nameOf returns the name of an event with a record id.
func (p *part) nameOf(id, value []byte) eventName {
	n := p.idName(id)
	if p.shared[n] {
		return formName(n, crc32.Checksum(value, castagnoli))
	}
	return n
}

// share returns the name of an event with the id name n. If another event has the
// same id, both are counted under their forms.
func (p *part) share(n eventName, sum uint32) eventName {
	if c, known := p.events[n]; known && c.sum != sum {
		p.shared[n] = true
		p.events[formName(n, c.sum)] = c
		delete(p.events, n)
	}
	if p.shared[n] {
		return formName(n, sum)
	}
	return n
}

// compare compares [begin, end), in milliseconds since the epoch. It reads the export
// before the topic, so that events published meanwhile are not missing. It looks missing
// events up among the dead letters and, in the mode Repair, repairs them.
func (c *comparison) compare(ctx context.Context, begin, end int64) (*Report, error) {
	p := &part{
		comparison: c, begin: begin, end: end, since: begin,
		events: make(map[eventName]copies), shared: make(map[eventName]bool), was: make(map[eventName]eventName),
		replaced: make(map[eventName]bool),
	}
	if err := c.pages.each(ctx, begin, end, p.readPage); err != nil {
		return nil, err
	}
	missing, err := p.look(ctx)
	if err == nil && p.earlier(missing) {
		missing, err = p.look(ctx)
	}
	if err == nil && c.Mode == Repair && p.anyOf(missing, func(c copies) bool { return c.awaits }) {
		c.repair.drained = false // the previous part has proved it for its own events only
		err = c.awaitEnd(ctx)
		if _, refused := errors.AsType[*RejectedError](err); err == nil {
			p.since = 0                // without an ingestion time any record time is possible
			missing, err = p.look(ctx) // the stream may have published them
		} else if refused && !p.anyOf(missing, func(c copies) bool { return !c.dated }) {
			err = nil // the stream may still publish these events
		}
	}
	if err != nil {
		return nil, err
	}
	for name, n := range missing {
		p.found.Missing += int64(n)
		if t := countOf(p.found.Topics, p.events[name].route); t != nil {
			t.Missing += int64(n)
		}
	}
	if len(missing) > 0 {
		err = c.pages.each(ctx, begin, end, func(page *bridge.Page) error { return p.takeMissing(ctx, page, missing) })
	}
	return &p.found, err
}

// look reads the topic, and the dead letters if events are missing, and returns the
// number of missing copies by event. A second call starts the counts anew.
func (p *part) look(ctx context.Context) (map[eventName]int32, error) {
	f := &p.found
	f.Held, f.Extra, f.Again, f.DeadLettered, f.Deleted, f.ExtraEvents = 0, 0, 0, 0, 0, nil
	f.Topics = countsOf(p.Topics)
	for name, c := range p.events {
		if c.topic, c.there = 0, false; c.api == 0 {
			delete(p.events, name)
			continue
		}
		p.events[name] = c
	}
	var err error
	if p.Retried != nil { // before the topic is read: a marked event is then in the topic
		if p.retried, err = p.Retried(ctx); err != nil {
			return nil, err
		}
	}
	spans, err := p.settled(ctx, p.Topic, p.since)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(p.read(ctx, p.Topic, spans, p.readRecord), p.comparable()); err != nil {
		return nil, err
	}
	if err := p.keep(ctx); err != nil { // after the read, which retention may have overtaken
		return nil, err
	}
	for i := range p.kept {
		f.KeptFrom = max(f.KeptFrom, p.kept[i].From)
	}
	missing := p.count()
	if len(missing) > 0 {
		err = p.takeDeadLetters(ctx, missing)
	}
	return missing, err
}

// earlier lowers since to the earliest time that the record of a missing event can have, and
// reports whether that is earlier. An API may select by another time than the event's. Without
// an ingestion time any time is possible: the event time may have been in the future. Without
// an event time the record has that of the bridge's clock, which may have been wrong.
func (p *part) earlier(missing map[eventName]int32) bool {
	before := p.since
	for name := range missing {
		if c := p.events[name]; c.dated && c.timed {
			p.since = min(p.since, max(0, c.at))
		} else {
			p.since = 0
		}
	}
	return p.since < before
}

// anyOf reports whether is is true for one of the missing events.
func (p *part) anyOf(missing map[eventName]int32, is func(copies) bool) bool {
	for name := range missing {
		if is(p.events[name]) {
			return true
		}
	}
	return false
}

// readPage counts the events of a page of the export.
func (p *part) readPage(page *bridge.Page) error {
	for i := range page.Events {
		e := &page.Events[i]
		p.id = e.AppendRecordID(p.id[:0])
		named, sum := nameOf(p.id), crc32.Checksum(formOf(e), castagnoli)
		name := named
		if s := e.Sums; s != nil {
			if s.Replaced {
				p.replaced[named] = true
			}
			if eventName(s.WasRecord()) != named {
				p.was[s.WasRecord()] = named
			}
		}
		if e.ID != nil {
			name = p.share(name, sum)
		}
		c := p.events[name]
		ingested := p.Source.IngestedAt(e.Raw)
		if ingested > 0 {
			p.since = min(p.since, ingested)
		}
		c.route = e.Route
		if c.api++; c.api == 1 || e.ID == nil {
			p.found.API++
			if c.route == bridge.RouteDrop {
				p.found.Dropped++
			}
			p.found.Digest.add(Digest(named))
			if e.Time == bridge.NoTime {
				p.found.Undated++
			} else if (&bridge.Origin{Start: p.From, End: p.To}).Outside(e) {
				p.found.Outside++
			}
			p.found.Late.note(e, ingested, p.LateThreshold)
		}
		c.sum, c.own, c.dated, c.at = sum, e.ID != nil, ingested > 0, e.Time
		c.awaits = p.repair != nil && p.repair.awaits(ingested)
		switch c.timed = !timeOf(e).IsZero(); {
		case c.dated && !c.timed: // the record has the time of publishing, by the bridge's clock
			c.at = ingested - clocksDiffer.Milliseconds()
		case c.dated:
			c.at = min(c.at, ingested) // an event time in the future becomes the time of publishing
		}
		p.events[name] = c
	}
	if len(p.events) > p.Batch && p.end-p.begin > 1 {
		return errTooMany
	}
	return nil
}

// readRecord counts a record of the topic.
func (p *part) readRecord(r *kgo.Record) (err error) {
	id := []byte(deadletter.Header(r, kafkarecord.HeaderID))
	name := p.recordName(id, r.Value, r)
	c, known := p.events[name]
	if !known {
		var when int64
		if id, when, err = p.recordOf(r); err != nil {
			return err
		}
		name = p.recordName(id, r.Value, r)
		if c, known = p.events[name]; !known && (when < p.begin || when >= p.end) {
			return nil
		}
		if c.api == 0 && !p.Unmarked && p.isUnmarked(r) {
			return nil // possibly of another program
		}
		if c.api == 0 && c.topic == 0 {
			p.found.ExtraEvents = firstOf(append(p.found.ExtraEvents, Event{string(id), time.UnixMilli(when).UTC()}))
		}
		if c.api == 0 && len(p.events) > 2*p.Batch {
			p.found.Extra++ // beyond the memory limit
			return nil
		}
	}
	c.topic++
	if t := countOf(p.found.Topics, c.route); t != nil && t.Topic == r.Topic {
		c.there = true
	}
	p.events[name] = c
	return nil
}

// countTopic adds an event to the counts of its topic.
func (p *part) countTopic(c copies) {
	t := countOf(p.found.Topics, c.route)
	if t == nil {
		return
	}
	t.Listed += int64(c.wanted())
	if held := int64(min(c.wanted(), c.topic)); c.there {
		t.Held += held
	} else {
		t.Elsewhere += held
	}
}

// count sums up the counts and returns the number of missing copies by event.
func (p *part) count() map[eventName]int32 {
	missing := make(map[eventName]int32)
	for name, c := range p.events {
		wanted, kept := c.wanted(), p.keptOf(c)
		switch {
		case c.api == 0:
			p.found.Extra++
			p.found.Again += int64(c.topic - 1)
			continue
		case c.route == bridge.RouteDrop: // but published before the route was set, or not
			continue
		case c.missing() > 0 && kept.Expired && c.at < kept.From:
			p.found.Deleted += int64(c.missing())
		case c.missing() > 0:
			missing[name] = c.missing()
		}
		p.countTopic(c)
		p.found.Held += int64(min(wanted, c.topic))
		p.found.Again += int64(max(0, c.topic-wanted))
	}
	return missing
}

// takeDeadLetters removes dead letters from missing. The event of a retried dead letter
// must be in the topic, unless retention has deleted it.
func (p *part) takeDeadLetters(ctx context.Context, missing map[eventName]int32) error {
	if p.DeadLetters == nil {
		return nil
	}
	spans, err := p.settled(ctx, p.DeadLetters, p.since)
	if err != nil {
		return err
	}
	dead, lost := make(map[eventName]int32), make(map[eventName]bool)
	take := func(name eventName, l *deadletter.DeadLetter) {
		if missing[name] > 0 {
			dead[name]++
			lost[name] = lost[name] || !p.keptOf(p.events[name]).Expired && p.retried != nil && p.retried(l)
		}
	}
	var unnamed []deadletter.DeadLetter // whose ids alone do not name events
	err = p.read(ctx, p.DeadLetters, spans, func(r *kgo.Record) error {
		l := deadletter.Read(r)
		id, err := p.deadLetterID(r)
		if err != nil {
			return err
		}
		if !l.Whole && (p.shared[p.idName(id)] || bridge.MayBeCut(l.ID) && missing[p.nameOf(id, nil)] == 0) {
			unnamed = append(unnamed, l)
			return nil
		}
		take(p.recordName(id, l.Item, r), &l)
		return nil
	})
	if err = cmp.Or(err, p.comparable()); err == nil && len(unnamed) > 0 {
		err = p.pages.each(ctx, p.begin, p.end, func(page *bridge.Page) error {
			p.nameLetters(page, missing, unnamed, take)
			return nil
		})
	}
	for name, n := range dead {
		if lost[name] {
			continue
		}
		n = min(n, missing[name])
		if missing[name] -= n; missing[name] == 0 {
			delete(missing, name)
		}
		p.found.DeadLettered += int64(n)
	}
	return err
}

// missingOf yields the missing events of a page and their names, while p.id is the record id.
func (p *part) missingOf(page *bridge.Page, missing map[eventName]int32) iter.Seq2[*bridge.Event, eventName] {
	return func(yield func(*bridge.Event, eventName) bool) {
		for i := range page.Events {
			e := &page.Events[i]
			p.id = e.AppendRecordID(p.id[:0])
			if name := p.nameOf(p.id, formOf(e)); missing[name] != 0 && !yield(e, name) {
				return
			}
		}
	}
}

// nameLetters takes the letters without their items that have the sums of missing events of a page.
func (p *part) nameLetters(
	page *bridge.Page, missing map[eventName]int32, letters []deadletter.DeadLetter,
	take func(eventName, *deadletter.DeadLetter),
) {
	for e, name := range p.missingOf(page, missing) {
		for n := range letters {
			if _, same := letters[n].Names(e); same {
				take(name, &letters[n])
			}
		}
	}
}

// takeMissing reports the missing events of a page, removes them from missing and repairs
// them.
func (p *part) takeMissing(ctx context.Context, page *bridge.Page, missing map[eventName]int32) error {
	var events []bridge.Event
	for e, name := range p.missingOf(page, missing) {
		e.Shared = p.shared[nameOf(p.id)]
		missing[name]--
		p.found.MissingEvents = firstOf(append(p.found.MissingEvents, Event{string(p.id), timeOf(e)}))
		if e.Route != bridge.RouteDrop { // else it has changed since it was counted
			events = append(events, *e)
		}
	}
	if p.repair == nil {
		return nil
	}
	return p.repair.publish(ctx, page, events)
}
