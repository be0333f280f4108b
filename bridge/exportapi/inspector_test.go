package exportapi_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	var seen recorder
	next := `null`
	server, ca := listenTLS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.saw(r)
		w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		compressed(w, "gzip", []byte(`{"items":[],"metadata":{"organization":"acme"},"nextCursor":`+next+`}`))
	}), nil)
	c := exportapi.Inspector{Client: connect(t,
		config(t, map[string]string{"EXPORT_URL": server.URL, "EXPORT_TLS_CA": ca}))}
	f := must.Get(c.Check(t.Context(), false))(t)
	if f.Source.Organization != "acme" || f.Contract != bridge.ContractEmptyCursor || f.Compression != "gzip" ||
		f.Items != 0 || f.Latency <= 0 {
		t.Errorf("got %+v", f)
	}
	if skew := f.ClockSkew - time.Hour; skew.Abs() > 5*time.Second ||
		!f.CertificateExpires.Equal(server.Certificate().NotAfter) {
		t.Errorf("clock skew %v, certificate until %v", f.ClockSkew, f.CertificateExpires)
	}
	query := seen.all()[0].URL.Query()
	if query.Get("pageSize") != "1" || query.Get("start") == "" || query.Has("cursor") {
		t.Errorf("asked for %v, want one item from now on", query)
	}
	if _, err := c.Check(t.Context(), true); err != nil {
		t.Error(err)
	}
	query = seen.all()[1].URL.Query()
	start, _ := strconv.ParseInt(query.Get("start"), 10, 64)
	if end, _ := strconv.ParseInt(query.Get("end"), 10, 64); end-start != time.Minute.Milliseconds() ||
		end > time.Now().UnixMilli() {
		t.Errorf("asked for %v, want the last minute", query)
	}
	next = `"c"`
	if f, err := c.Check(t.Context(), false); err != nil || f.Contract != bridge.ContractEmptyItems {
		t.Errorf("a cursor with an empty page: got %q %v", f.Contract, err)
	}
	next = `7.5`
	_, err := c.Check(t.Context(), false)
	if f := wantFault(t, err); f.Reason != bridge.ReasonSchema {
		t.Errorf("got %v, want schema", f)
	}
}
