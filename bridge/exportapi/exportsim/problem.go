package exportsim

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// answer is a response before it is sent.
type answer struct {
	status      int
	contentType string
	retryAfter  string
	allow       string
	header      http.Header // of a page, in some forms
	body        []byte
	encoded     map[string][]byte // the compressed body by encoding, if it was rendered ahead
	pooled      *[]byte           // the body's memory, to give back; nil if not pooled
}

// problem returns an error in the shape of the form, or of the schema. In all schemas it
// has title, type and details. The newest one adds status and detail, which RFC 9457 and
// the public guide have.
func (h *Handler) problem(status int, kind, text string) answer {
	if h.pages.form.Error != "" {
		body := strings.NewReplacer("<status>", strconv.Itoa(status), "<title>", http.StatusText(status),
			"<kind>", kind, "<text>", strings.ReplaceAll(text, `"`, "'")).Replace(h.pages.form.Error)
		return answer{status: status, contentType: "application/json", body: []byte(body)}
	}
	members := struct {
		Type    string `json:"type"`
		Title   string `json:"title"`
		Status  int    `json:"status,omitempty"`
		Detail  string `json:"detail,omitempty"`
		Details string `json:"details"`
	}{
		Type:    "https://problems.shop.example/export/" + kind,
		Title:   http.StatusText(status),
		Details: text,
	}
	if h.config.Schema == Schema08 {
		members.Status, members.Detail = status, text
	}
	// A struct of strings and a number always encodes.
	body, _ := json.Marshal(members)
	return answer{status: status, contentType: "application/problem+json", body: body}
}

// retryAfter returns one to three seconds, as a number or, in half of the cases, as a date.
func retryAfter(random uint64, now time.Time) string {
	seconds := 1 + int(random%3)
	if random>>8&1 == 0 {
		return strconv.Itoa(seconds)
	}
	// A date has whole seconds. One more keeps it in the future.
	at := now.Add(time.Duration(seconds+1) * time.Second)
	return at.UTC().Format(http.TimeFormat)
}
