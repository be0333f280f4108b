package bridge

import "time"

const dayMillis = 24 * 60 * 60 * 1000

// EventTimes formats event times like ce_time: RFC 3339 in milliseconds, UTC. It caches the
// text of the last day, which most events share. The zero value is ready for use. It must
// not be used concurrently.
type EventTimes struct {
	day  int64
	text string // with the T before the time; empty if the day has no RFC 3339 form
}

// Append appends the exact time of an event. ok is false if the event has no time, or a
// time without an RFC 3339 form, which CloudEvents requires.
func (d *EventTimes) Append(to []byte, e *Event) (text []byte, ok bool) {
	if e.Time == NoTime || e.Defect == DefectTime || e.Defect == DefectNotObject {
		return to, false
	}
	day := e.Time / dayMillis
	if e.Time%dayMillis < 0 {
		day--
	}
	date := d.of(day)
	if date == "" {
		return to, false
	}
	ms := int(e.Time - day*dayMillis)
	second := ms / 1000
	to = append(to, date...)
	to = append(appendTwo(to, second/3600), ':')
	to = append(appendTwo(to, second/60%60), ':')
	to = append(appendTwo(to, second%60), '.', byte('0'+ms/100%10))
	return append(appendTwo(to, ms%100), 'Z'), true
}

func appendTwo(to []byte, n int) []byte { return append(to, byte('0'+n/10), byte('0'+n%10)) }

func (d *EventTimes) of(day int64) string {
	if d.day == day && d.text != "" {
		return d.text
	}
	t := time.UnixMilli(day * dayMillis).UTC()
	d.day, d.text = day, ""
	if y := t.Year(); y >= 0 && y <= 9999 {
		d.text = t.Format(time.DateOnly) + "T"
	}
	return d.text
}
