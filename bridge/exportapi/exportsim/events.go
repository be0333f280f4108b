package exportsim

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Times in milliseconds have 13 digits from 2001 on. Nanoseconds fit 64 bits until 2262.
const minMillis = 1_000_000_000_000

var maxTime = time.Date(2250, 1, 1, 0, 0, 0, 0, time.UTC)

// The shape of the traffic: sessions come in blocks that overlap in time, and
// each session has as many events as the block has sessions.
const (
	blockEvents   = 64
	blockSessions = 8
	eventsPerUser = 32

	eventTemplates = 1024 // more than a window of gzip holds
	itemTemplates  = 128
)

// The salts make the random decisions about an item independent of each other.
const (
	saltTemplate uint64 = iota + 1
	saltJitter
	saltBlock
	saltUser
	saltNoise
	saltFault
	saltGrammar
	saltLate
	saltLag
)

// world is the content: every item by its index. It is immutable.
type world struct {
	seed  uint64
	first int64 // time of event 0 in nanoseconds since the epoch
	every int64 // nanoseconds between events
	limit int   // the most events whose times can be represented
	types eventTypes
	late  time.Duration // see Form

	clock        func() time.Time
	lag, changes int64 // milliseconds, see Config

	events, sessions, users []template
}

func newWorld(c Config) *world {
	w := &world{
		seed:  c.Seed,
		first: c.Start.UnixNano(),
		every: max(int64(c.Every), 1),
		types: typesOf(c.Schema),
		late:  c.Form.Late,
		clock: c.clock(), lag: c.Lag.Milliseconds(), changes: c.Changes.Milliseconds(),
	}
	w.limit = int(min((maxTime.UnixNano()-w.first)/w.every, idIndexMask>>1))
	w.events = compileEvents(c)
	w.sessions, w.users = compileItems(c, "sessionObject"), compileItems(c, "userObject")
	return w
}

func (w *world) hash(salt uint64, i int) uint64 {
	return mix(w.seed ^ mix(uint64(i)*golden+salt*0xd6e8feb86659fd93))
}

// eventTime returns the time of an event in milliseconds since the epoch. It never falls
// from one event to the next, because the jitter is less than the distance between two
// events.
func (w *world) eventTime(i int) int64 { return w.eventMicros(i) / 1e3 }

func (w *world) eventMicros(i int) int64 {
	jitter := int64(w.hash(saltJitter, i) % uint64(w.every))
	return (w.first + int64(i)*w.every + jitter) / int64(time.Microsecond)
}

// ownMicros returns the time in the item of an event. It may be before the time that
// determines the event's place.
func (w *world) ownMicros(i int) int64 {
	random := w.hash(saltLate, i)
	if w.late == 0 || random%8 != 0 {
		return w.eventMicros(i)
	}
	return w.eventMicros(i) - int64(random>>8%uint64(w.late/time.Microsecond))
}

// byOwnTime returns the events of a window, given in milliseconds, in the order of their
// own times. stock is the number of events.
func (w *world) byOwnTime(start, end int64, stock int) []int {
	var found []int
	first := sort.Search(stock, func(i int) bool { return w.eventTime(i) >= start })
	for i := first; i < stock && w.eventTime(i) < end+w.late.Milliseconds(); i++ {
		if own := w.ownMicros(i) / 1e3; own >= start && own < end {
			found = append(found, i)
		}
	}
	slices.SortStableFunc(found, func(a, b int) int { return cmp.Compare(w.ownMicros(a), w.ownMicros(b)) })
	return found
}

// sessionOf returns the session of an event. The events of a block belong to its sessions
// in a mixed order.
func (w *world) sessionOf(event int) int {
	block := event / blockEvents
	turn := (uint64(event%blockEvents)*37 + w.hash(saltBlock, block)) % blockEvents
	return block*blockSessions + int(turn)/(blockEvents/blockSessions)
}

// userOf returns a session's user among those seen so far. Small numbers are far more
// likely: the number is the product of two uniform ones.
func (w *world) userOf(session int) int {
	h := w.hash(saltUser, session)
	known := uint64(session*(blockEvents/blockSessions)/eventsPerUser + 1)
	upTo := known*(h>>32)>>32 + 1
	return int(upTo * (h & math.MaxUint32) >> 32)
}

// opened and closed return the times of the first and last event of the session's block. A
// session closes with its block, so the times never fall.
func (w *world) opened(session int) int64 {
	return w.eventTime(session / blockSessions * blockEvents)
}

func (w *world) closed(session int) int64 {
	return w.eventTime(session/blockSessions*blockEvents + blockEvents - 1)
}

// modified returns the time of the earliest event that a user can have.
func (w *world) modified(user int) int64 { return w.eventTime(user * eventsPerUser) }

func sessionsAmong(events int) int { return events / blockEvents * blockSessions }

func usersAmong(events int) int { return (events + eventsPerUser - 1) / eventsPerUser }

func (w *world) eventTemplate(i int) *template {
	return &w.events[w.hash(saltTemplate, i)%uint64(len(w.events))]
}

// saltOf returns a salt for sessions and users, so that they differ from the event with
// their index.
func saltOf(salt uint64, k kind) uint64 { return salt + uint64(k)<<8 }

func (w *world) appendEvent(to []byte, i int) []byte {
	session := w.sessionOf(i)
	now := w.eventTime(i)
	noise := w.hash(saltNoise, i)
	return w.render(to, w.eventTemplate(i), values{
		kind: kindEvent, index: i, session: session, user: w.userOf(session),
		time: now, opened: w.opened(session), system: now + 20 + int64(noise>>40)%480, noise: noise,
	})
}

func (w *world) appendSession(to []byte, i int) []byte {
	t := &w.sessions[w.hash(saltOf(saltTemplate, kindSession), i)%uint64(len(w.sessions))]
	return w.render(to, t, values{
		kind: kindSession, index: i, session: i, user: w.userOf(i),
		time: w.closed(i), opened: w.opened(i), noise: w.hash(saltOf(saltNoise, kindSession), i),
	})
}

func (w *world) appendUser(to []byte, i int) []byte {
	t := &w.users[w.hash(saltOf(saltTemplate, kindUser), i)%uint64(len(w.users))]
	return w.render(to, t, values{
		kind: kindUser, index: i, user: i, time: w.modified(i), noise: w.hash(saltOf(saltNoise, kindUser), i),
	})
}

// resource is one of the three exports. Its methods get the number of events from the
// caller.
type resource struct {
	tag        byte // names the resource in cursors
	kind       kind
	path       string
	appendItem func(to []byte, i int) []byte
	timeOf     func(i int) int64
	among      func(events int) int // the number of items for a number of events
}

func (w *world) resources(f Form) []resource {
	events := resource{'e', kindEvent, f.Path, w.appendEvent, w.eventTime, func(events int) int { return events }}
	if f.ItemTimeFormat == formatSeconds && !strings.Contains(f.Item, "<frac>") {
		events.timeOf = func(i int) int64 { return w.eventTime(i) / 1e3 * 1e3 }
	}
	if f.Item != "" {
		around := &template{parts: split(f.Item)}
		events.appendItem = func(to []byte, i int) []byte {
			return w.render(to, around, values{kind: kindEvent, index: i, user: w.userOf(w.sessionOf(i))})
		}
		next := events
		next.path = cmp.Or(f.NextPath, f.Path)
		return []resource{events, next}
	}
	return []resource{
		events,
		{'s', kindSession, "/session", w.appendSession, w.closed, sessionsAmong},
		{'u', kindUser, "/user", w.appendUser, w.modified, usersAmong},
	}
}

// from returns the index of the first item at or after a time, in milliseconds since the
// epoch, even if that item does not exist yet. So a window is a range of indexes, and
// adjacent windows share no item.
func (r *resource) from(millis int64, limit int) int {
	return sort.Search(r.among(limit), func(i int) bool { return r.timeOf(i) >= millis })
}

// IndexOf returns the index of an event from its bytes, in any schema and form, and whether
// it found one.
func IndexOf(raw []byte) (int, bool) {
	if _, event, ok := bytes.Cut(raw, []byte(","+eventMember)); ok {
		raw = event
	}
	for _, member := range []string{`"eventId":"`, `"id":"`} {
		rest, ok := bytes.CutPrefix(raw, []byte("{"+member))
		if ok && len(rest) > idLen {
			return Index(string(rest[:idLen]))
		}
	}
	_, rest, ok := bytes.Cut(raw, []byte(`,"sequence":"`))
	if !ok || len(rest) < sequenceLen || !bytes.HasPrefix(raw, []byte(`{"sessionId":"`)) {
		return 0, false
	}
	index, err := strconv.ParseUint(string(rest[:sequenceLen]), 10, 63)
	return int(index), err == nil
}
