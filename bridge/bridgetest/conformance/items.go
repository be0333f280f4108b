package conformance

import (
	"encoding/json"
	"exportbridge/bridge"
	"fmt"
	"strings"
	"time"
)

// itemTime is the time of the first test item: the last full hour, which no topic's
// retention deletes.
var itemTime = time.Now().Truncate(time.Hour).UnixMilli()

// itemBody returns test item n. The items have seven keys.
func itemBody(n int) string {
	return fmt.Sprintf(`{"eventId":"e-%06d","userId":"u-%d","timestamp":%d,"payload":{"type":"tested","n":%d}}`,
		n, n%7, itemTime+int64(n), n)
}

func itemBodies(first, n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = itemBody(first + i)
	}
	return strings.Join(all, ",")
}

// wantEvent returns the event that item n decodes to, at index 0.
func wantEvent(n int) bridge.Event {
	user := fmt.Appendf(nil, "u-%d", n%7)
	return bridge.Event{
		Raw: []byte(itemBody(n)), ID: fmt.Appendf(nil, "e-%06d", n), Key: user, Subject: user,
		Type: []byte("tested"), Time: itemTime + int64(n),
	}
}

// pageBody returns a page of the given items; an empty next is sent as null.
func pageBody(next, items string) string {
	cursor := []byte("null")
	if next != "" {
		cursor, _ = json.Marshal(next) // a string always encodes
	}
	return fmt.Sprintf(`{"items":[%s],"nextCursor":%s}`, items, cursor)
}
