package deadletter

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"exportbridge/bridge"
)

// mark is what a retry leaves behind. Its JSON form is kept for ever.
type mark struct {
	Version int `json:"v"`
	// Topic and Written, in milliseconds since the epoch, are the letter's: a
	// topic that was made anew has others at the same places.
	Topic   string `json:"topic"`
	Written int64  `json:"written"`
	ID      string `json:"id,omitempty"`
	// Item names the event, in whichever letters it is, as itemOf does; empty in
	// marks of older versions.
	Item string `json:"item,omitempty"`
	// At is when it was published, in milliseconds since the epoch.
	At int64  `json:"at"`
	By string `json:"by,omitempty"`
}

// RetriedAt returns when the letter was published after all, by the marks of the
// stream's retries; zero if it was not.
func (t *Topic) RetriedAt(marks map[string][]byte, l *DeadLetter) time.Time {
	var m mark
	if json.Unmarshal(marks[l.mark()], &m) != nil || m.Topic != t.Log.Topic() || m.Written != l.Time.UnixMilli() {
		return time.Time{}
	}
	return time.UnixMilli(m.At).UTC()
}

// itemOf names the event of a letter, the same in every letter of it. Events
// without an id that are equal may be two: they are told apart by their places,
// and those that share an id by their bytes.
func itemOf(e *bridge.Event, l *DeadLetter) string {
	text := "id " + string(e.ID)
	switch {
	case e.ID != nil && l.Reason == bridge.DefectSharedID:
		text += fmt.Sprintf(" form %x", sha256.Sum256(e.Raw))
	case e.ID == nil:
		text = fmt.Sprintf("at %s %s %s", l.CursorHash, l.index, e.AppendRecordID(nil))
	}
	return itemName(text)
}

func itemName(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// mostMarkedID is how long an id may be to be whole in a mark.
const mostMarkedID = 255

// itemsOf returns the events that earlier retries have published.
func itemsOf(marks map[string][]byte) map[string]string {
	items := make(map[string]string)
	for name, value := range marks {
		var m mark
		if json.Unmarshal(value, &m) != nil {
			continue
		}
		if m.Item == "" && m.ID != "" && len(m.ID) <= mostMarkedID {
			m.Item = itemName("id " + m.ID) // of an older version
		}
		items[m.Item] = strings.Replace(name, "/", ":", 1) + ", at " + time.UnixMilli(m.At).UTC().Format(timeLayout)
	}
	return items
}

const timeLayout = "2006-01-02 15:04:05Z"

// cutID shortens an id to what a mark holds of it, in characters.
func cutID(id string) string {
	r := []rune(id)
	if len(r) <= keptID {
		return id
	}
	return string(r[:keptID-1]) + "…"
}
