package main

import (
	"context"
	"encoding/json"
	"errors"
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
	own        bool // it has an id of its own: more than one copy is the same event
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
}

// compare compares [begin, end), in milliseconds since the epoch: first the
// export is read, then the topic, so that nothing published meanwhile seems to
// be missing. What is missing then is looked for among the dead letters, and
// repaired if that was asked for.
func (v *verifier) compare(ctx context.Context, begin, end int64) (*verified, error) {
	p := &part{v: v, begin: begin, end: end, events: make(map[kafkasink.Fingerprint]copies)}
	if err := v.window.each(ctx, begin, end, p.readPage); err != nil {
		return nil, err
	}
	spans, err := v.topic.settled(ctx, begin, v.app.sayWaiting())
	if err != nil {
		return nil, err
	}
	if err := v.topic.readAll(ctx, spans, p.readRecord); err != nil {
		return nil, err
	}
	missing := p.count()
	if len(missing) > 0 {
		if err := p.takeLetters(ctx, missing); err != nil {
			return nil, err
		}
	}
	for _, n := range missing {
		p.found.Missing += int64(n)
	}
	if len(missing) > 0 {
		err = v.window.each(ctx, begin, end, func(page *bridge.Page) error { return p.takeMissing(ctx, page, missing) })
	}
	return &p.found, err
}

// readPage notes the events of a page of the export.
func (p *part) readPage(page *bridge.Page) error {
	for i := range page.Events {
		e := &page.Events[i]
		p.id = e.AppendRecordID(p.id[:0])
		name := kafkasink.FingerprintOf(p.id)
		c := p.events[name]
		if c.api++; c.api == 1 || e.ID == nil {
			p.found.API++
			p.found.Late.note(e, p.v.opts.late)
		}
		c.own = e.ID != nil
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
	name := kafkasink.FingerprintOf(id)
	c, known := p.events[name]
	if !known {
		var when int64
		if id, when = p.v.recordOf(r); when < p.begin || when >= p.end {
			if c, known = p.events[kafkasink.FingerprintOf(id)]; !known {
				return
			}
		}
		name = kafkasink.FingerprintOf(id)
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
	spans, err := p.v.dead.settled(ctx, p.begin, p.v.app.sayWaiting())
	if err != nil {
		return err
	}
	return p.v.dead.readAll(ctx, spans, func(r *kgo.Record) {
		name := kafkasink.FingerprintOf(p.v.letterID(r))
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
		name := kafkasink.FingerprintOf(p.id)
		if missing[name] == 0 {
			continue
		}
		missing[name]--
		p.found.MissingEvents = firstOf(append(p.found.MissingEvents, namedEvent{string(p.id), time.UnixMilli(e.Time).UTC()}))
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
