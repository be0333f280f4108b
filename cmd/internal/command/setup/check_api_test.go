package setup

import (
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/cmd/internal/config"
)

// TestAnswersAsConfigured: what a check says of pages follows from the settings.
func TestAnswersAsConfigured(t *testing.T) {
	t.Parallel()
	st := config.Stream{Export: exportapi.DefaultConfig()}
	if got := endOf(bridge.ContractEmptyCursor, &st.Export); got != "an empty cursor" {
		t.Errorf("the results end with %q", got)
	}
	if got := answerOf(exportapi.Findings{}, &st); !strings.Contains(got, "events, 1000 per page") {
		t.Errorf("got %q", got)
	}
	st.Export.MoreField, st.Export.PageSizeParam, st.Export.Path = "has_more", "none", "/v2/audit"
	if got := endOf(bridge.ContractEmptyCursor, &st.Export); !strings.Contains(got, "has_more says (EXPORT_MORE_FIELD)") {
		t.Errorf("the results end with %q", got)
	}
	if got := endOf(bridge.ContractUnknown, &st.Export); got != "" {
		t.Errorf("unknown results end with %q", got)
	}
	if got := answerOf(exportapi.Findings{}, &st); strings.Contains(got, "per page") || strings.Contains(got, "events") || !strings.Contains(got, "/v2/audit") {
		t.Errorf("got %q", got)
	}
}
