// Package problem reads problem documents (RFC 9457).
package problem

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// document is RFC 9457 in the forms seen so far: detail or details, each of any
// type.
type document struct {
	Title   any `json:"title"`
	Type    any `json:"type"`
	Status  any `json:"status"`
	Detail  any `json:"detail"`
	Details any `json:"details"`
	// Violations names each invalid parameter, as an object or a text.
	Violations any `json:"violations"`
}

// Members of a violation that name the parameter, and that describe the problem.
var (
	violationNames = []string{"field", "path", "parameter", "param", "name", "property", "pointer"}
	violationTexts = []string{"message", "detail", "details", "reason", "description", "title"}
)

// maxViolations is how many violations an error shows.
const maxViolations = 5

// Text joins the texts of a problem. Anything else yields an empty text.
func Text(body []byte, code int) string {
	var p document
	if json.Unmarshal(body, &p) != nil {
		return ""
	}
	var parts []string
	// Violations come first: the end is cut.
	for _, member := range []any{p.Title, violationText(p.Violations), p.Detail, p.Details} {
		if text, ok := member.(string); ok && text != "" && !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	}
	text := strings.Join(parts, ": ")
	if status, ok := p.Status.(float64); ok && status != float64(code) {
		text += fmt.Sprintf(" (status %v)", status)
	}
	if kind, ok := p.Type.(string); ok && kind != "" && kind != "about:blank" {
		text += " (" + kind + ")"
	}
	return strings.TrimSpace(text)
}

// violationText joins the violations of a problem: each parameter with what is
// wrong about it.
func violationText(member any) string {
	all, _ := member.([]any)
	var shown []string
	for _, v := range all[:min(len(all), maxViolations)] {
		text, _ := v.(string)
		if object, ok := v.(map[string]any); ok {
			text = strings.TrimSuffix(textOf(object, violationNames)+": "+textOf(object, violationTexts), ": ")
			text = strings.TrimPrefix(text, ": ")
		}
		if text != "" {
			shown = append(shown, text)
		}
	}
	if more := len(all) - maxViolations; more > 0 {
		shown = append(shown, fmt.Sprintf("%d more", more))
	}
	return strings.Join(shown, "; ")
}

// textOf returns the first member that is a text, or "".
func textOf(object map[string]any, names []string) string {
	for _, name := range names {
		if text, ok := object[name].(string); ok && text != "" {
			return text
		}
	}
	return ""
}
