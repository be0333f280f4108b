package exportsim

import (
	"strconv"
	"strings"
	"time"
)

// eventMember is the last member of every envelope: the event as the default
// form serves it.
const eventMember = `"event":`

// firstSeq is beyond 2^53, so that a reader who takes it for a float goes wrong.
const firstSeq = 1 << 60

// firstKey is before every key.
const firstKey = "0"

// envelope is what a form has around an event: text with placeholders <id>,
// <user>, <type>, <seq>, <logid>, <revision>, <event>, and for the time <ms>, <s>, <us>,
// <frac> (six digits) and <rfc3339>.
type envelope struct{ parts []string } // text and placeholders in turn

func newEnvelope(item string) envelope {
	var parts []string
	for item != "" {
		text, rest, _ := strings.Cut(item, "<")
		placeholder, after, _ := strings.Cut(rest, ">")
		parts = append(parts, text, placeholder)
		item = after
	}
	return envelope{parts}
}

func (e envelope) append(w *world, to []byte, i int) []byte {
	micros := w.ownMicros(i)
	for n, part := range e.parts {
		if n%2 == 0 {
			to = append(to, part...)
			continue
		}
		switch part {
		case "id":
			to = appendID(to, kindEvent, w.seed, i)
		case "user":
			to = appendID(to, kindUser, w.seed, w.userOf(w.sessionOf(i)))
		case "type":
			to = append(to, w.types[w.eventTemplate(i).kind].name...)
		case "seq":
			to = strconv.AppendInt(to, firstSeq+int64(i), 10)
		case "logid":
			to = w.appendLogID(to, i)
		case "revision":
			to = strconv.AppendInt(to, w.revision(i), 10)
		case "event":
			to = w.appendEvent(to, i)
		case "ms":
			to = strconv.AppendInt(to, micros/1e3, 10)
		case "s":
			to = strconv.AppendInt(to, micros/1e6, 10)
		case "us":
			to = strconv.AppendInt(to, micros, 10)
		case "frac":
			to = append(to, strconv.FormatInt(1e6+micros%1e6, 10)[1:]...)
		case "rfc3339":
			to = time.UnixMicro(micros).UTC().AppendFormat(to, rfc3339Millis)
		}
	}
	return to
}

const rfc3339Millis = "2006-01-02T15:04:05.000Z07:00"

func appendID(to []byte, k kind, seed uint64, i int) []byte {
	var id [idLen]byte
	putID(id[:], k, seed, i)
	return append(to, id[:]...)
}

// appendLogID appends 56 digits that grow with the index: 900, the time and
// the index.
func (w *world) appendLogID(to []byte, i int) []byte {
	const indexLen = 36
	at := time.UnixMicro(w.eventMicros(i)).UTC()
	to = at.AppendFormat(append(to, "900"...), "20060102150405")
	to = append(to, strconv.Itoa(1000 + at.Nanosecond()/1e6)[1:]...)
	to = append(to, strings.Repeat("0", indexLen)...)
	putDecimal(to[len(to)-indexLen:], uint64(i))
	return to
}

// key is the place of an item in the order of the export, for cursors that say
// it openly. Keys are digits of the same number.
func (w *world) key(kind string, i int) string {
	if kind == kindSeq {
		return strconv.FormatInt(firstSeq+int64(i), 10)
	}
	return string(w.appendLogID(nil, i))
}
