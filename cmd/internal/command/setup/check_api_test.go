package setup

import (
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/cmd/internal/config"
)

// TestAnswersAsConfigured: the text about an answer depends on the settings.
func TestAnswersAsConfigured(t *testing.T) {
	t.Parallel()
	st := config.Stream{Export: exportapi.DefaultConfig()}
	if got := answerOf(exportapi.Findings{}, &st); !strings.Contains(got, "events, 1000 per page") {
		t.Errorf("got %q", got)
	}
	st.Export.MoreField, st.Export.PageSizeParam, st.Export.Path = "has_more", "none", "/v2/audit"
	if got := answerOf(exportapi.Findings{}, &st); !strings.HasPrefix(got, "key accepted, /v2/audit, 0.0 ms") {
		t.Errorf("got %q", got)
	}
}

// TestEndOfResults: the text about a list without a cursor does not mention an empty cursor.
func TestEndOfResults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ in, more, follow, want string }{
		{"", "", "cursor", "an empty cursor"},
		{"", "has_more", "cursor", "as has_more says (EXPORT_MORE_FIELD)"},
		{"body", "", "windows", "a page without nextCursor: where none has it, each list is one page"},
		{"page-number", "", "windows", "a page without another item, since pages are numbered"},
		{"offset", "", "windows", "a page without another item, since pages are numbered"},
		{"last-item", "", "cursor", "an empty page"},
		{"next-url", "", "cursor", "a page that names no next URL"},
		{"link", "", "cursor", "a page that names no next URL"},
	} {
		st := config.Stream{Export: exportapi.DefaultConfig()}
		st.Export.CursorIn, st.Export.MoreField, st.Windows.Follow = test.in, test.more, test.follow
		if got := endOf(exportapi.Findings{Contract: bridge.ContractEmptyCursor, NoMember: true}, &st); got != test.want {
			t.Errorf("%s, %s: the results end with %q, want %q", test.in, test.follow, got, test.want)
		}
	}
	if got := endOf(exportapi.Findings{}, &config.Stream{}); got != "" {
		t.Errorf("unknown results end with %q", got)
	}
}
