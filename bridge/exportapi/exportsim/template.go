package exportsim

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// template is an item with placeholders, which render fills in. fill has the placeholders
// of the content, fillForm those of a form's item.
type template struct {
	parts []string // text and placeholders, alternating
	kind  int      // event type, by its place in eventTypes
}

// split returns text and placeholders, alternating.
func split(text string) (parts []string) {
	for text != "" {
		literal, rest, _ := strings.Cut(text, "<")
		placeholder, after, _ := strings.Cut(rest, ">")
		parts = append(parts, literal, placeholder)
		text = after
	}
	return parts
}

const (
	sequenceLen = 12

	// eventMember begins the last member of every form's item: the event as the default
	// form serves it.
	eventMember = `"event":`

	// firstSeq is beyond 2^53, so that a reader that uses floats fails.
	firstSeq = 1 << 60

	// firstKey is before every key.
	firstKey = "0"

	rfc3339Millis = "2006-01-02T15:04:05.000Z07:00"
)

// values are the values of the placeholders of one item.
type values struct {
	kind                 kind
	index, session, user int
	time, opened, system int64
	noise                uint64
}

func (w *world) render(to []byte, t *template, v values) []byte {
	for n, part := range t.parts {
		if n%2 == 0 {
			to = append(to, part...)
		} else if part != "" {
			to = w.fill(to, part, &v)
		}
	}
	return to
}

// fill appends the value of a placeholder. Content has a fixed width.
func (w *world) fill(to []byte, placeholder string, v *values) []byte {
	switch placeholder {
	case "id":
		return appendID(to, v.kind, w.seed, v.index)
	case "session":
		return appendID(to, kindSession, w.seed, v.session)
	case "user":
		return appendID(to, kindUser, w.seed, v.user)
	case "tab":
		return appendID(to, kindTab, w.seed, v.session)
	case "order":
		return appendID(to, kindOrder, w.seed, v.index)
	case "time":
		return strconv.AppendInt(to, v.time, 10)
	case "opened":
		return strconv.AppendInt(to, v.opened, 10)
	case "system":
		return strconv.AppendInt(to, v.system, 10)
	case "sequence":
		return fmt.Appendf(to, "%0*d", sequenceLen, v.index)
	case "big": // beyond 2^53, within 64 bits
		return strconv.AppendUint(to, 1e18+v.noise%8e18, 10)
	case "noise":
		return appendHex(to, v.noise, 16)
	}
	return w.fillForm(to, placeholder, v.index)
}

// fillForm appends the value of a placeholder of a form's item.
func (w *world) fillForm(to []byte, placeholder string, i int) []byte {
	micros := w.ownMicros(i)
	switch placeholder {
	case "type":
		return append(to, w.types[w.eventTemplate(i).kind].name...)
	case "seq":
		return strconv.AppendInt(to, firstSeq+int64(i), 10)
	case "logid":
		return w.appendLogID(to, i)
	case "revision":
		return strconv.AppendInt(to, w.revision(i), 10)
	case "event":
		return w.appendEvent(to, i)
	case "ms":
		return strconv.AppendInt(to, micros/1e3, 10)
	case "s":
		return strconv.AppendInt(to, micros/1e6, 10)
	case "us":
		return strconv.AppendInt(to, micros, 10)
	case "frac":
		return fmt.Appendf(to, "%06d", micros%1e6)
	case "rfc3339":
		return time.UnixMicro(micros).UTC().AppendFormat(to, rfc3339Millis)
	}
	return to
}

// appendLogID appends 56 digits that grow with the index: 900, the time, and the index.
func (w *world) appendLogID(to []byte, i int) []byte {
	at := time.UnixMicro(w.eventMicros(i)).UTC()
	return fmt.Appendf(to, "900%s%03d%036d", at.Format("20060102150405"), at.Nanosecond()/1e6, i)
}

// key returns the place of an item in the order of the export, for cursors that are not
// opaque. All keys of a kind have the same number of digits.
func (w *world) key(kind string, i int) string {
	if kind == kindSeq {
		return strconv.FormatInt(firstSeq+int64(i), 10)
	}
	return string(w.appendLogID(nil, i))
}
