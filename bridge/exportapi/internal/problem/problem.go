// Package problem reads what an error response says: problem documents
// (RFC 9457), and the usual shapes of other APIs.
package problem

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// document has the members of all shapes, each of any type.
type document struct {
	Title       any `json:"title"`
	Type        any `json:"type"`
	Status      any `json:"status"`
	Error       any `json:"error"`
	Message     any `json:"message"`
	Msg         any `json:"msg"`
	Addition    any `json:"message_detail"`
	Description any `json:"error_description"`
	Detail      any `json:"detail"`
	Details     any `json:"details"`
	// Violations and Errors name each invalid parameter, as an object or a text.
	Violations any `json:"violations"`
	Errors     any `json:"errors"`
}

// Members of an object that name the parameter, and that describe the problem.
var (
	violationNames = []string{"field", "path", "parameter", "param", "name", "property", "pointer"}
	violationTexts = []string{"message", "detail", "details", "reason", "description", "title", "msg"}
)

// maxViolations is how many violations an error shows.
const maxViolations = 5

// Text joins the texts of an error response. Anything else yields an empty text.
func Text(body []byte, code int) string {
	var p document
	if json.Unmarshal(body, &p) != nil {
		return ""
	}
	return p.text(code)
}

// InPage returns the texts of a response with status 200 that is no page, and
// whether it says by itself that it is an error: by a member error or errors, an
// error code or message, ok or success that is false, or a status or code that is
// one of an error.
func InPage(object map[string]any) (said string, failed bool) {
	p := document{Title: object["title"], Error: object["error"], Message: object["message"], Msg: object["msg"],
		Addition: object["message_detail"], Description: object["error_description"],
		Detail: object["detail"], Details: object["details"], Violations: object["violations"], Errors: object["errors"]}
	failed = holds(p.Error) || holds(p.Errors)
	for name, member := range object {
		switch name = strings.ToLower(strings.ReplaceAll(name, "_", "")); name {
		case "ok", "success":
			fine, is := member.(bool)
			failed = failed || is && !fine
		case "status", "statuscode", "code":
			if n, is := member.(float64); is {
				failed = failed || n >= http.StatusBadRequest && n < 600
			} else if word, is := member.(string); is {
				failed = failed || slices.Contains(failures, strings.ToLower(word))
			}
		case "errormessage", "errorcode":
			if failed = failed || holds(member); name == "errormessage" || p.Description == nil {
				p.Description = member
			}
		}
	}
	return p.text(http.StatusOK), failed
}

// failures are the words of a status that is an error.
var failures = []string{"error", "fail", "failed", "failure"}

// holds reports whether a member says something.
func holds(member any) bool {
	switch m := member.(type) {
	case nil:
		return false
	case string:
		return m != ""
	case bool:
		return m
	case float64:
		return m != 0
	case []any:
		return len(m) > 0
	case map[string]any:
		return len(m) > 0
	}
	return true
}

// text joins the texts.
func (d *document) text(code int) string {
	var parts []string
	// Each violation comes early: the end is cut.
	for _, member := range []any{d.Title, d.Error, d.Message, d.Msg, d.Violations, d.Errors, d.Description,
		d.Addition, d.Detail, d.Details} {
		if text := said(member); text != "" && text != http.StatusText(code) && !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	}
	text := strings.Join(parts, ": ")
	if status, ok := d.Status.(float64); ok && status != float64(code) {
		text += fmt.Sprintf(" (status %v)", status)
	}
	if kind, ok := d.Type.(string); ok && kind != "" && kind != "about:blank" {
		text += " (" + kind + ")"
	}
	return strings.TrimSpace(text)
}

// said is the text of a member: a text, an object's, or those of a list.
func said(member any) string {
	switch m := member.(type) {
	case string:
		return m
	case map[string]any:
		text := strings.TrimSuffix(textOf(m, violationNames)+": "+textOf(m, violationTexts), ": ")
		return strings.TrimPrefix(text, ": ")
	case []any:
		var shown []string
		for _, v := range m[:min(len(m), maxViolations)] {
			if _, list := v.([]any); list {
				continue
			}
			if text := said(v); text != "" {
				shown = append(shown, text)
			}
		}
		if more := len(m) - maxViolations; more > 0 {
			shown = append(shown, fmt.Sprintf("%d more", more))
		}
		return strings.Join(shown, "; ")
	}
	return ""
}

// textOf returns the first member that is a text, or "".
func textOf(object map[string]any, names []string) string {
	for _, name := range names {
		for member, value := range object {
			if text, ok := value.(string); ok && text != "" && strings.EqualFold(member, name) {
				return text
			}
		}
	}
	return ""
}
