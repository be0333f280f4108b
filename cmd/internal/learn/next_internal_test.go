package learn

import (
	"testing"

	"exportbridge/bridge/exportapi"
)

// A cursor that the last request has proven needs no third page.
func TestNoRequestLeft(t *testing.T) {
	t.Parallel()
	page := func(id, next string) exportapi.Sample {
		return exportapi.Sample{Items: []exportapi.SampledItem{{ID: id}}, Next: next}
	}
	s := nextSearch{api: &api{asked: mostRequests}, pages: pages{page("1", "a"), page("2", "b")}}
	p := profile{findings: make(map[string]finding)}
	const want = "proven: 2 pages with 2 items were read by it"
	if err := s.third(t.Context(), p); err != nil || p.findings["EXPORT_CURSOR_IN"].why != want {
		t.Errorf("%v, %+v", err, p.findings)
	}
}
