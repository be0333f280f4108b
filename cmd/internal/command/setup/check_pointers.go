package setup

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
)

// unmatched reports pointers of the settings that select nothing in some of the sampled
// items. Only a pointer that the user chose is a warning: a default may fit other items.
func unmatched(items []exportapi.SampledItem, st *config.Stream) (found []finding) {
	for _, p := range []struct {
		setting, pointer, lacks string
		chosen                  bool
		value                   func(*exportapi.SampledItem) string
	}{
		{
			"KAFKA_KEY", st.Kafka.Key, "their records get no key, and no order among them",
			st.Kafka.Key != kafkasink.DefaultConfig().Key, func(i *exportapi.SampledItem) string { return i.Key },
		},
		{
			"EXPORT_ITEM_TYPE", strings.Join(st.Export.ItemType, " or "), "their ce_type names no type", true,
			func(i *exportapi.SampledItem) string { return i.Type },
		},
		{
			"EXPORT_ITEM_SUBJECT", strings.Join(st.Export.ItemSubject, " or "), "they get no ce_subject", true,
			func(i *exportapi.SampledItem) string { return i.Subject },
		},
	} {
		lacking := 0
		for i := range items {
			if p.value(&items[i]) == "" {
				lacking++
			}
		}
		if p.pointer == "" || p.pointer == "none" || lacking == 0 {
			continue
		}
		f := info(fmt.Sprintf("%d of the first %s have no value at %s (%s): %s",
			lacking, cli.Counted(len(items), "item"), p.pointer, p.setting, p.lacks))
		if p.chosen && lacking == len(items) {
			f = warn(f.Text, "correct "+p.setting+", or set it to none",
				"exportbridge check --sample 5 shows how items are read")
		}
		found = append(found, f)
	}
	return found
}

// farFuture is how far ahead the time of an item may be.
const farFuture = 24 * time.Hour

// misplaced reports sampled items of types that were not requested, and impossible times.
func misplaced(items []exportapi.SampledItem, st *config.Stream, now time.Time) (found []finding) {
	others := 0
	for i := range items {
		named := items[i].Type == "" || slices.Contains(st.Export.Events, items[i].Type)
		if len(st.Export.Events) > 0 && !named {
			others++
		}
	}
	all, times := cli.Counted(len(items), "item"), timesOf(items)
	if len(times) > 0 && slices.Min(times) > now.Add(farFuture).UnixMilli() {
		at := time.UnixMilli(times[0]).UTC().Format(time.RFC3339)
		found = append(found, warn("the first "+all+" have a time in the future, the first one "+at,
			"check EXPORT_ITEM_TIME and EXPORT_ITEM_TIME_FORMAT, and this machine's clock"))
	}
	if others > 0 {
		text := fmt.Sprintf("%d of the first %s have a type that EXPORT_EVENTS does not name: ", others, all)
		found = append(found, warn(text+"the API ignores it, and they are published",
			"check EXPORT_EVENTS and EXPORT_ITEM_TYPE"))
	}
	return found
}
