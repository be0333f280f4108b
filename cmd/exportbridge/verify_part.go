package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkasink"
)

// errTooMany: a part of the window has more events than are compared at once.
var errTooMany = errors.New("too many events at once")

// copies is how often an event is there.
type copies struct {
	api, topic int32
	own        bool   // it has an id of its own: more than one copy is the same event
	dated      bool   // it says when the API took it in
	sum        uint32 // of its bytes, as the API gives them first
}

// missing is how many copies the topic lacks.
func (c copies) missing() int32 {
	if c.own {
		return max(0, min(1, c.api)-c.topic)
	}
	return max(0, c.api-c.topic)
}

// part is a part of the window while it is compared.
type part struct {
	v          *verifier
	begin, end int64
	events     map[kafkasink.Fingerprint]copies
	found      verified
	id         []byte
	// since is from which record time on the part's events may be in the topic,
	// in milliseconds since the epoch. One from a clock that was ahead has the
	// time of its publishing, which may be long before its own.
	since int64
	// shared are the ids that the API gives to different events: each of their
	// forms counts by itself.
	shared map[kafkasink.Fingerprint]bool
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// formName is what an event counts under whose id, counted under name, is that
// of others too. sum is that of its bytes.
func formName(name kafkasink.Fingerprint, sum uint32) kafkasink.Fingerprint {
	return kafkasink.FingerprintOf(binary.BigEndian.AppendUint32(name[:], sum))
}

// nameOf returns what an event with a record id counts under.
func (p *part) nameOf(id, value []byte) kafkasink.Fingerprint {
	name := kafkasink.FingerprintOf(id)
	if p.shared[name] {
		return formName(name, crc32.Checksum(value, castagnoli))
	}
	return name
}

// share finds out whether the id of an event, which is counted under name, is
// another's already: then both count under their forms.
func (p *part) share(name kafkasink.Fingerprint, sum uint32) kafkasink.Fingerprint {
	if c, known := p.events[name]; known && c.sum != sum {
		p.shared[name] = true
		p.events[formName(name, c.sum)] = c
		delete(p.events, name)
	}
	if p.shared[name] {
		return formName(name, sum)
	}
	return name
}

// compare compares [begin, end), in milliseconds since the epoch: first the
// export is read, then the topic, so that nothing published meanwhile seems to
// be missing. What is missing then is looked for among the dead letters, and
// repaired if that was asked for.
func (v *verifier) compare(ctx context.Context, begin, end int64) (*verified, error) {
	p := &part{v: v, begin: begin, end: end, since: begin, events: make(map[kafkasink.Fingerprint]copies), shared: make(map[kafkasink.Fingerprint]bool)}
	if err := v.window.each(ctx, begin, end, p.readPage); err != nil {
		return nil, err
	}
	read := time.Now()
	missing, err := p.look(ctx)
	if err == nil && v.repair != nil && v.opts.execute && p.undated(missing) {
		if err = v.awaitEnd(ctx, read); err == nil {
			p.since = 0                // nobody knows when they were taken in, and by which clock they are dated
			missing, err = p.look(ctx) // the stream may have published them
		}
	}
	if err != nil {
		return nil, err
	}
	for _, n := range missing {
		p.found.Missing += int64(n)
	}
	if len(missing) > 0 {
		err = v.window.each(ctx, begin, end, func(page *bridge.Page) error { return p.takeMissing(ctx, page, missing) })
	}
	if v.repair != nil {
		v.repair.drained = false // the next part is read later
	}
	return &p.found, err
}

// look reads the topic, and the dead letters if it must, and returns how many
// copies of which events are in neither. It may be called again: then only what
// it finds that time counts.
func (p *part) look(ctx context.Context) (map[kafkasink.Fingerprint]int32, error) {
	f := &p.found
	f.Held, f.Extra, f.Again, f.DeadLettered, f.ExtraEvents = 0, 0, 0, 0, nil
	for name, c := range p.events {
		if c.topic = 0; c.api == 0 {
			delete(p.events, name)
			continue
		}
		p.events[name] = c
	}
	spans, err := p.v.topic.settled(ctx, p.since, p.v.app.sayWaiting())
	if err != nil {
		return nil, err
	}
	if err := p.v.topic.read(ctx, spans, p.readRecord); err != nil {
		return nil, err
	}
	missing := p.count()
	if len(missing) > 0 {
		err = p.takeLetters(ctx, missing)
	}
	return missing, err
}

// undated reports whether one of these events does not say when the API took
// it in.
func (p *part) undated(missing map[kafkasink.Fingerprint]int32) bool {
	for name := range missing {
		if !p.events[name].dated {
			return true
		}
	}
	return false
}

// readPage notes the events of a page of the export.
func (p *part) readPage(page *bridge.Page) error {
	for i := range page.Events {
		e := &page.Events[i]
		p.id = e.AppendRecordID(p.id[:0])
		name, sum := kafkasink.FingerprintOf(p.id), crc32.Checksum(e.Raw, castagnoli)
		if e.ID != nil {
			name = p.share(name, sum)
		}
		c := p.events[name]
		system := takenIn(e)
		if system > 0 {
			p.since = min(p.since, system)
		}
		if c.api++; c.api == 1 || e.ID == nil {
			p.found.API++
			p.found.Late.note(e, system, p.v.opts.late)
		}
		c.sum, c.own, c.dated = sum, e.ID != nil, system > 0
		p.events[name] = c
	}
	if len(p.events) > p.v.opts.batch && p.end-p.begin > 1 {
		return errTooMany
	}
	return nil
}

// readRecord notes a record of the topic.
func (p *part) readRecord(r *kgo.Record) {
	id := []byte(header(r, headerEventID))
	name := p.nameOf(id, r.Value)
	c, known := p.events[name]
	if !known {
		var when int64
		if id, when = p.v.recordOf(r); when < p.begin || when >= p.end {
			if c, known = p.events[p.nameOf(id, r.Value)]; !known {
				return
			}
		}
		name = p.nameOf(id, r.Value)
		if c = p.events[name]; c.api == 0 && c.topic == 0 {
			p.found.ExtraEvents = firstOf(append(p.found.ExtraEvents, namedEvent{string(id), time.UnixMilli(when).UTC()}))
		}
		if c.api == 0 && len(p.events) > 2*p.v.opts.batch {
			p.found.Extra++ // one too many to remember
			return
		}
	}
	c.topic++
	p.events[name] = c
}

// count counts what is there and returns how many copies of which events are
// missing.
func (p *part) count() map[kafkasink.Fingerprint]int32 {
	missing := make(map[kafkasink.Fingerprint]int32)
	for name, c := range p.events {
		wanted := c.api
		if c.own {
			wanted = min(1, c.api)
		}
		switch {
		case c.api == 0:
			p.found.Extra++
			p.found.Again += int64(c.topic - 1)
			continue
		case c.missing() > 0:
			missing[name] = c.missing()
		}
		p.found.Held += int64(min(wanted, c.topic))
		p.found.Again += int64(max(0, c.topic-wanted))
	}
	return missing
}

// takeLetters takes from the missing what is a dead letter.
func (p *part) takeLetters(ctx context.Context, missing map[kafkasink.Fingerprint]int32) error {
	if !p.v.dead.there {
		return nil
	}
	spans, err := p.v.dead.settled(ctx, p.since, p.v.app.sayWaiting())
	if err != nil {
		return err
	}
	return p.v.dead.read(ctx, spans, func(r *kgo.Record) {
		name := p.nameOf(p.v.letterID(r), kafkasink.ReadLetter(r).Item)
		switch n := missing[name]; n {
		case 0:
			return
		case 1:
			delete(missing, name)
		default:
			missing[name] = n - 1
		}
		p.found.DeadLettered++
	})
}

// takeMissing names the missing events of a page, takes them from the missing,
// and has them repaired.
func (p *part) takeMissing(ctx context.Context, page *bridge.Page, missing map[kafkasink.Fingerprint]int32) error {
	var events []bridge.Event
	for i := range page.Events {
		e := &page.Events[i]
		p.id = e.AppendRecordID(p.id[:0])
		name := p.nameOf(p.id, e.Raw)
		if missing[name] == 0 {
			continue
		}
		e.Shared = p.shared[kafkasink.FingerprintOf(p.id)]
		missing[name]--
		p.found.MissingEvents = firstOf(append(p.found.MissingEvents, namedEvent{string(p.id), timeOf(e)}))
		events = append(events, *e)
	}
	if p.v.repair == nil {
		return nil
	}
	return p.v.repair.publish(ctx, page, events)
}

// takenIn returns when the API took the event in, in milliseconds since the
// epoch; 0 where it does not say.
func takenIn(e *bridge.Event) int64 {
	var times struct {
		System int64 `json:"systemTimestamp"`
	}
	if json.Unmarshal(e.Raw, &times) != nil {
		return 0
	}
	return times.System
}

func keepAll(*kgo.Record) bool { return true }

// keepStream keeps the records of one stream.
func keepStream(name string) func(*kgo.Record) bool {
	return func(r *kgo.Record) bool { return header(r, headerOfStream) == name }
}
