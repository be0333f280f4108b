package setup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
)

const (
	// skewLimit is how far the API's clock may be from this one before it
	// matters: start times and Retry-After dates come from it.
	skewLimit = 5 * time.Second
	// certificateWarning is how long before its end a certificate is news.
	certificateWarning = 14 * 24 * time.Hour
)

// checkAPI asks the export API for one page from now on, and for the first items
// of the export.
func checkAPI(ctx context.Context, st *config.Stream) []finding {
	client, err := exportapi.New(st.Export)
	if err != nil {
		return []finding{failure(err)}
	}
	defer client.Close()
	got, err := client.Check(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return []finding{{
			Level: levelFail, Text: "the export API did not answer in time",
			Hint: "check EXPORT_URL, EXPORT_PROXY and the firewall, or raise --timeout",
		}}
	case err != nil:
		return []finding{failedRequest(err)}
	}
	found := []finding{connectionOf(got, time.Now())}
	if skew := got.ClockSkew; skew.Abs() > skewLimit {
		found = append(found, finding{
			Level: levelWarn, Text: fmt.Sprintf("clock skew to the API is %s", skew.Abs().Round(time.Second)),
			Hint: "synchronize this machine's clock, for example with NTP",
		})
	}
	found = append(found, finding{Level: levelOK, Text: answerOf(got, st)})
	if ends := map[bridge.Contract]string{
		bridge.ContractEmptyCursor: "end of results: an empty cursor",
		bridge.ContractEmptyItems:  "end of results: an empty page",
	}[got.Contract]; ends != "" {
		found = append(found, finding{Level: levelInfo, Text: ends})
	}
	if f, ok := lookedAt(ctx, client, st); ok {
		found = append(found, f)
	}
	return found
}

// patience is the longest that a check waits for a turn of EXPORT_RATE_LIMIT.
const patience = 2 * time.Second

// lookedAt judges how the first items of the export are read. Where there are
// none, or the rate limit lets nobody look, there is nothing to say.
func lookedAt(ctx context.Context, client *exportapi.Client, st *config.Stream) (finding, bool) {
	if rate, err := st.Export.Rate(); err != nil || rate > 0 && rate*patience.Seconds() < 1 {
		return finding{}, false
	}
	got, err := client.Sample(ctx, st.Engine.Origin.Start)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return finding{Level: levelWarn, Text: "the first items did not arrive in time", Hint: "raise --timeout"}, true
	case err != nil:
		return failedRequest(err), true
	case got.Items == 0:
		return finding{}, false
	case got.Unreadable == 0:
		return finding{Level: levelOK, Text: fmt.Sprintf("%s sampled, all readable", cli.Counted(got.Items, "item"))}, true
	}
	f := finding{
		Level: levelWarn, Text: fmt.Sprintf("%d of the first %s are unreadable, starting with item %d: %s", got.Unreadable, cli.Counted(got.Items, "item"), got.Index, got.Defect),
		Hint: "expect dead letters for these items (BRIDGE_ON_BAD_EVENT)",
	}
	if got.Unreadable == got.Items {
		f.Level = levelFail
		f.Hint = "check EXPORT_RESOURCE: an item is an object with a time in milliseconds; a stream without readable items stops, unless BRIDGE_ON_BAD_EVENT=dlq-all"
	}
	return f, true
}

// failedRequest leaves out of a hint that the request would be tried again: a
// check tries once.
func failedRequest(err error) finding {
	f := failure(err)
	f.Hint = strings.TrimPrefix(strings.TrimPrefix(f.Hint, "retrying; "), "if it persists, ")
	return f
}

// connectionOf describes the connection and judges the certificate.
func connectionOf(got exportapi.Findings, now time.Time) finding {
	skew := ""
	if got.ClockSkew.Abs() <= skewLimit && got.ClockSkew != 0 {
		skew = fmt.Sprintf(", clock skew %.1f s", got.ClockSkew.Abs().Seconds())
	}
	if got.CertificateExpires.IsZero() {
		return finding{Level: levelOK, Text: got.Host + " is reachable, without TLS" + skew}
	}
	left := got.CertificateExpires.Sub(now)
	text := fmt.Sprintf("%s is reachable, TLS certificate valid for %s%s", got.Host, cli.Counted(int(left.Hours()/24), "day"), skew)
	if left < certificateWarning {
		return finding{Level: levelWarn, Text: text, Hint: "ask the operator of the API to renew it"}
	}
	return finding{Level: levelOK, Text: text}
}

// answerOf describes whose export it is and how it answers.
func answerOf(got exportapi.Findings, st *config.Stream) string {
	parts := []string{"key accepted"}
	var whose []string
	for _, part := range []struct{ kind, name string }{
		{"organization", got.Source.Organization}, {"workspace", got.Source.Workspace}, {"application", got.Source.Application},
	} {
		if part.name != "" {
			whose = append(whose, part.kind+" "+part.name)
		}
	}
	if len(whose) > 0 {
		parts = append(parts, strings.Join(whose, " / "))
	}
	parts = append(parts, fmt.Sprintf("%s, %d per page", st.Export.Resource, st.Export.PageSize))
	if got.Compression != "" {
		parts = append(parts, got.Compression)
	}
	return strings.Join(append(parts, fmt.Sprintf("%.1f ms", float64(got.Latency.Microseconds())/1000)), ", ")
}
