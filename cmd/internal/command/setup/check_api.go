package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/seal"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
)

const (
	// skewLimit is the clock skew to the API above which check warns: start times and
	// Retry-After dates depend on the API's clock.
	skewLimit = 5 * time.Second
	// certificateWarning is the remaining validity of a certificate below which check warns.
	certificateWarning = 14 * 24 * time.Hour
)

// checkAPI requests a page of events from now on, the first page of the export and the page
// after it. It shows at most show items of the first page.
func checkAPI(ctx context.Context, st *config.Stream, show int) []finding {
	st.Export.Keys = seal.None
	api, err := exportapi.New(st.Export)
	if err != nil {
		return []finding{failure(err)}
	}
	defer api.Close()
	client := exportapi.Inspector{Client: api}
	bounded := st.Engine.Origin.End != 0 || st.Windows.Windows() && !st.Windows.NoStart
	got, err := client.Check(ctx, bounded)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return []finding{fail("the export API did not answer in time",
			"check EXPORT_URL, EXPORT_PROXY and the firewall, or raise --timeout")}
	case err != nil:
		f := failedRequest(err)
		if takesSeconds(ctx, st, err, bounded) {
			f.Text += "; it accepts times without milliseconds"
			f.Hint = "set EXPORT_TIME_FORMAT=rfc3339-seconds"
		}
		return []finding{f}
	}
	found := []finding{connectionOf(got, time.Now())}
	if skew := got.ClockSkew; skew.Abs() > skewLimit {
		found = append(found, warn(fmt.Sprintf("clock skew to the API is %s", skew.Abs().Round(time.Second)),
			"synchronize this machine's clock, for example with NTP"))
	}
	found = append(found, fine(answerOf(got, st)))
	if ends := endOf(got, st); ends != "" {
		found = append(found, info("end of results: "+ends))
	}
	if got.IgnoresStart {
		found = append(found, warn(
			"asked for items from now on, the API lists older ones: it ignores the start, or reads it otherwise",
			"check EXPORT_START_PARAM and EXPORT_TIME_FORMAT, or set EXPORT_START_PARAM=none",
			"without a start, EXPORT_START, backfill, replay, verify and reset --to-datetime do not work"))
	}
	if st.Engine.Origin.Start != 0 {
		found = append(found, info(
			"a new stream begins at "+st.Engine.Origin.StartText()+" (EXPORT_START); one that has a checkpoint resumes there"))
	}
	return append(found, (&sampler{client: client, st: st, show: show}).look(ctx)...)
}

// takesSeconds reports whether an API that answers err to bounds with milliseconds accepts
// bounds without milliseconds.
func takesSeconds(ctx context.Context, st *config.Stream, err error, bounded bool) bool {
	export := st.Export
	fault, ok := errors.AsType[*bridge.Fault](err)
	if !ok || fault.Class != bridge.Permanent || fault.Reason != bridge.ReasonConfig || export.TimeFormat != "rfc3339" {
		return false
	}
	export.TimeFormat = "rfc3339-seconds"
	client, err := exportapi.New(export)
	if err != nil {
		return false
	}
	defer client.Close()
	_, err = exportapi.Inspector{Client: client}.Check(ctx, bounded)
	return err == nil
}

// endOf describes the mark of the end of the results.
func endOf(got exportapi.Findings, st *config.Stream) string {
	switch export := &st.Export; {
	case got.Contract == bridge.ContractUnknown:
		return ""
	case export.Numbered():
		return "a page without another item, since pages are numbered"
	case export.MoreField != "":
		return "as " + export.MoreField + " says (EXPORT_MORE_FIELD)"
	case got.Contract == bridge.ContractEmptyItems, export.CursorIn == "last-item":
		return "an empty page"
	case export.CursorIn == "next-url", export.CursorIn == "link":
		return "a page that names no next URL"
	case got.NoMember && st.Windows.Windows():
		return "a page without " + export.CursorField + ": where none has it, each list is one page"
	}
	return "an empty cursor"
}

// judged reports whether all sampled items are readable. A single unreadable item is a
// failure: the items of an export are usually alike.
func judged(items []exportapi.SampledItem, st *config.Stream) finding {
	first, unreadable, doubtful, undated := -1, 0, 0, 0
	for i := range items {
		if items[i].Time == bridge.NoTime {
			undated++
		}
		switch {
		case items[i].Defect != bridge.DefectNone:
			if unreadable++; unreadable == 1 {
				first = i
			}
		case items[i].Why != "":
			if doubtful++; first < 0 {
				first = i
			}
		}
	}
	all := cli.Counted(len(items), "item")
	switch {
	case unreadable > 0:
		item := &items[first]
		f := fail(
			fmt.Sprintf("%d of the first %s are unreadable; item %d (%s): %s", unreadable, all, first, item.Defect, item.Why),
			item.Remedy, "exportbridge check --sample 5 shows how items are read")
		if st.Kafka.DivertsAll() {
			f.Level = levelWarn
		} else {
			f.Hint += "; if they are exceptions, expect dead letters, or accept them with BRIDGE_ON_BAD_EVENT=dlq-all"
		}
		return f
	case doubtful > 0:
		item := &items[first]
		text := fmt.Sprintf("%d of the first %s are read with an unlikely time; item %d: ", doubtful, all, first)
		return warn(text+item.Why, item.Remedy)
	case undated == len(items):
		f := fine(all + " sampled, all readable, without a time: records carry the publish time")
		if !st.Export.Undated() {
			f.Hint = "set EXPORT_ITEM_TIME if they have one"
		}
		return f
	case undated > 0:
		return fine(
			fmt.Sprintf("%s sampled, all readable, %d without a time: their records carry the publish time", all, undated))
	}
	return fine(all + " sampled, all readable")
}

// identities reports ids that do not distinguish the sampled items.
func identities(items []exportapi.SampledItem, st *config.Stream) (finding, bool) {
	seen, shared := make(map[string]bool), 0
	for i := range items {
		if id := items[i].ID; id != "" {
			if seen[id] {
				shared++
			}
			seen[id] = true
		}
	}
	switch wanted := len(st.Export.ItemID) > 0 || st.Export.Resource == "events"; {
	case shared > 0:
		return warn(fmt.Sprintf("%d of the first %s have the id of another one", shared, cli.Counted(len(items), "item")),
			"set EXPORT_ITEM_ID to an id of the item itself, or EXPORT_ITEM_ID=none"), true
	case len(seen) == 0 && wanted && (len(st.Export.ItemID) != 1 || st.Export.ItemID[0] != "none"):
		return info("items have no id: the hash of their bytes identifies them",
			"set EXPORT_ITEM_ID to their id, or to none"), true
	}
	return finding{}, false
}

// sampledItem is how an item would be published.
type sampledItem struct {
	Item    int    `json:"item"`
	ID      string `json:"id,omitempty"`
	Time    string `json:"time,omitempty"`
	Type    string `json:"type,omitempty"`
	Key     string `json:"key,omitempty"`
	Topic   string `json:"topic,omitempty"`
	Problem string `json:"problem,omitempty"`
}

func sampleOf(items []exportapi.SampledItem, st *config.Stream) *[]sampledItem {
	shown := make([]sampledItem, 0, len(items))
	for i := range items {
		item := &items[i]
		s := sampledItem{Item: i, ID: item.ID, Type: item.Type, Key: item.Key, Problem: item.Why,
			Topic: st.Export.Routes.Target(item.Route, st.Kafka.Topic)}
		switch {
		case item.Route == bridge.RouteDrop: // not even as a dead letter
		case item.Defect != bridge.DefectNone:
			s.Topic = ""
			if st.Kafka.OnBadEvent != "stop" {
				s.Topic = st.Kafka.DeadTopic()
			}
		case item.Time != bridge.NoTime:
			s.Time = time.UnixMilli(item.Time).UTC().Format(cli.TimeLayout)
		}
		shown = append(shown, s)
	}
	return &shown
}

// failedRequest is failure without the words about retries in its hint: check tries once.
func failedRequest(err error) finding {
	f := failure(err)
	f.Hint = strings.TrimPrefix(f.Hint, "if it persists, ")
	return f
}

// connectionOf describes the connection, and warns of a certificate that expires soon.
func connectionOf(got exportapi.Findings, now time.Time) finding {
	skew := ""
	if got.ClockSkew.Abs() <= skewLimit && got.ClockSkew.Abs() >= time.Second { // the header Date has whole seconds
		skew = fmt.Sprintf(", clock skew %.1f s", got.ClockSkew.Abs().Seconds())
	}
	if got.CertificateExpires.IsZero() {
		return fine(got.Host + " is reachable, without TLS" + skew)
	}
	left := got.CertificateExpires.Sub(now)
	days := cli.Counted(int(left.Hours()/24), "day")
	text := fmt.Sprintf("%s is reachable, TLS certificate valid for %s%s", got.Host, days, skew)
	if left < certificateWarning {
		return warn(text, "ask the operator of the API to renew it")
	}
	return fine(text)
}

// answerOf describes the owner of the export and the response.
func answerOf(got exportapi.Findings, st *config.Stream) string {
	parts := []string{"key accepted"}
	if st.Export.Scheme == "none" {
		parts = []string{"response accepted", "without a key"}
	}
	var whose []string
	for _, part := range []struct{ kind, name string }{
		{"organization", got.Source.Organization},
		{"workspace", got.Source.Workspace},
		{"application", got.Source.Application},
	} {
		if part.name != "" {
			whose = append(whose, part.kind+" "+part.name)
		}
	}
	if len(whose) > 0 {
		parts = append(parts, strings.Join(whose, " / "))
	}
	if parts = append(parts, cmp.Or(st.Export.Path, st.Export.Resource)); st.Export.PageSizeParam != "none" {
		parts = append(parts, fmt.Sprintf("%d per page", st.Export.PageSize))
	}
	if got.Compression != "" {
		parts = append(parts, got.Compression)
	}
	return strings.Join(append(parts, fmt.Sprintf("%.1f ms", float64(got.Latency.Microseconds())/1000)), ", ")
}
