package deadletter_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"exportbridge/bridge"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/kafkarecord"
)

// TestRetryLongIDTruncated: a topic that was truncated still has the event of a long id, so a second retry does not
// publish it again, also if an older version has written the mark.
func TestRetryLongIDTruncated(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ id, older string }{
		"255 bytes":              {strings.Repeat("i", 255), strings.Repeat("i", 255)},
		"256 bytes":              {strings.Repeat("i", 256), strings.Repeat("i", 256)},
		"257 bytes":              {strings.Repeat("i", 257), strings.Repeat("i", 255) + "…"},
		"150 runes of two bytes": {strings.Repeat("é", 150), strings.Repeat("é", 150)},
		"300 runes of two bytes": {strings.Repeat("é", 300), strings.Repeat("é", 255) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, marked := range []string{bridge.CutID(test.id), test.older} {
				w := newWorld(t)
				other, letter := w.letter("other"), w.letter(test.id)
				w.must([]deadletter.Place{other, letter}, deadletter.Published, deadletter.Published)
				w.events.Delete(0, 1) // another event is deleted; that of the letter is there
				for name, value := range w.publisher.marks {
					value = bytes.Replace(value, []byte(bridge.CutID(test.id)), []byte(marked), 1)
					w.publisher.marks[name] = value
				}
				w.must([]deadletter.Place{letter}, deadletter.PublishedBefore)
			}
		})
	}
}

// TestRetryLongIDFromCursor: a letter without its item has the beginning of a long id, in older versions also with a
// part of a character. It names the item.
func TestRetryLongIDFromCursor(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]string{
		"whole characters":   strings.Repeat("é", 200),
		"a part of two":      "x" + strings.Repeat("é", 200),
		"three of four":      "x" + strings.Repeat("😀", 100),
		"one of three":       strings.Repeat("€", 100),
		"no more than it is": strings.Repeat("i", 256),
	} {
		for _, kept := range []string{id[:256], bridge.CutID(id)} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.source.Append(item("a"), item(id))
					sub := kafkarecord.Substitute{ID: kept, Size: len(item(id)),
						SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(item(id)))), Index: 1}
					place := w.add(string(sub.Encode()), "eb-reason", string(bridge.DefectTooLarge), "eb-cursor-hash", "",
						"eb-index", "1")
					w.must([]deadletter.Place{place}, deadletter.Published)
				})
			})
		}
	}
}
