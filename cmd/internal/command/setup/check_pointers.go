package setup

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/exportapi/redact"
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

// unruled reports the rules for private data that select nothing in the sampled items: what
// no rule selects is published in clear. The items are requested again, without the rules.
func (s *sampler) unruled(ctx context.Context, at bridge.Position, size int) []finding {
	export := s.st.Export
	rules := export.Private
	if len(rules.Pointers()) == 0 {
		return nil
	}
	// With the key alone, no item changes, and errors still show nothing that the API says.
	export.Private, export.KeepItems = redact.Config{Keys: rules.Keys}, true
	client, err := exportapi.New(export)
	if err != nil {
		return []finding{failure(err)}
	}
	defer client.Close()
	bare := sampler{client: exportapi.Inspector{Client: client}, st: s.st, show: s.show}
	page, f := bare.read(ctx, at, size, "items without rules")
	if f != nil {
		return []finding{*f}
	}
	items := make([]any, len(page.Items))
	for i := range page.Items {
		_ = json.Unmarshal(page.Items[i].Raw, &items[i]) // judged reports what cannot be read
	}
	var idle []string
	for setting, of := range map[string]redact.Config{
		"EVENT_DROP": {Drop: rules.Drop}, "EVENT_HASH": {Hash: rules.Hash},
		"EVENT_MASK": {Mask: rules.Mask}, "EVENT_ENCRYPT": {Encrypt: rules.Encrypt},
	} {
		for _, pointer := range of.Pointers() {
			names := strings.Split(pointer, "/")[1:]
			if !slices.ContainsFunc(items, func(item any) bool { return selects(item, names) }) {
				idle = append(idle, pointer+" ("+setting+")")
			}
		}
	}
	if len(idle) == 0 || len(items) == 0 {
		return nil
	}
	slices.Sort(idle)
	return []finding{warn(
		fmt.Sprintf("none of the first %s has a value at %s", cli.Counted(len(items), "item"), strings.Join(idle, ", ")),
		"check the pointers: what no rule selects is published in clear")}
}

// selects reports whether the escaped names of a pointer lead to a value. The name * stands
// for each element of an array.
func selects(value any, names []string) bool {
	if len(names) == 0 {
		return true
	}
	switch v := value.(type) {
	case map[string]any:
		member, ok := v[strings.NewReplacer("~1", "/", "~0", "~").Replace(names[0])]
		return ok && selects(member, names[1:])
	case []any:
		return names[0] == "*" && slices.ContainsFunc(v, func(e any) bool { return selects(e, names[1:]) })
	}
	return false
}

// unrouted reports the topics of KAFKA_ROUTES that no sampled item goes to.
func unrouted(items []exportapi.SampledItem, st *config.Stream) []finding {
	var idle []string
	for _, rule := range st.Export.Routes.Rules {
		target := st.Export.Routes.Target(rule.To, st.Kafka.Topic)
		taken := func(i exportapi.SampledItem) bool { return i.Route == rule.To }
		if !slices.ContainsFunc(items, taken) && !slices.Contains(idle, target) {
			idle = append(idle, target)
		}
	}
	if len(idle) == 0 {
		return nil
	}
	return []finding{info(
		fmt.Sprintf("none of the first %s takes a route to %s", cli.Counted(len(items), "item"), strings.Join(idle, ", ")),
		"if some must, check KAFKA_ROUTES: a pattern matches the whole value, and upper and lower case differ")}
}
