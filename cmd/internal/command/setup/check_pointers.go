package setup

import (
	"fmt"
	"strings"

	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
)

// unmatched says which pointers of the settings select nothing in the sampled items, or
// not in all of them. One that is not set may be for other items.
func unmatched(items []exportapi.SampledItem, st *config.Stream) (found []finding) {
	for _, p := range []struct {
		setting, pointer, lacks string
		chosen                  bool
		value                   func(*exportapi.SampledItem) string
	}{
		{
			"KAFKA_KEY", st.Kafka.Key, "their records get no key, and no order among them", st.Kafka.Key != kafkasink.DefaultConfig().Key,
			func(i *exportapi.SampledItem) string { return i.Key },
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
		f := finding{Level: levelInfo, Text: fmt.Sprintf("%d of the first %s have no value at %s (%s): %s", lacking, cli.Counted(len(items), "item"), p.pointer, p.setting, p.lacks)}
		if p.chosen && lacking == len(items) {
			f.Level, f.Hint = levelWarn, "correct "+p.setting+", or set it to none; exportbridge check --sample 5 shows how items are read"
		}
		found = append(found, f)
	}
	return found
}
