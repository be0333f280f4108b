package learn

import (
	"regexp"
	"slices"
	"strings"

	"exportbridge/bridge"
)

// dateHeader matches the header with the time of a signature: Date, X-Amz-Date.
var dateHeader = regexp.MustCompile(`(?i)^(x-.*)?(date|timestamp)$`)

// Hint says how to correct the request after a fault of its API.
func (r *Request) Hint(f *bridge.Fault) string {
	status := len(f.Code) == 3 && strings.Trim(f.Code, "0123456789") == ""
	switch {
	case f.Reason == bridge.ReasonAuth && r.signed():
		return "a signature of each request, by the headers Date and Authorization, is valid for that request alone, " +
			"and learn sends others: put a proxy that signs requests in front of the API, and learn with the address of the proxy"
	case f.Reason == bridge.ReasonAuth:
		return "check the key of the curl command and its permissions"
	case f.Class == bridge.Transient && status:
		return f.Hint
	case status && f.Code[0] == '3':
		return "learn follows no redirect, also with curl -L: put the address that it leads to into the curl command"
	case status && f.Code[0] == '4':
		return "correct the curl command: its URL, its parameters and its data; curl itself must list items with it"
	case f.Code == "timeout":
		return "repeat the command; if it persists, ask for a smaller page in the curl command, " +
			"or check EXPORT_PROXY and the firewall"
	case f.Code == "network", f.Code == "tls":
		return strings.NewReplacer("use https:// in EXPORT_URL", "use https:// in the curl command",
			"http:// in EXPORT_URL", "http:// in the curl command", "EXPORT_URL", "the URL of the curl command").Replace(f.Hint)
	}
	return "correct the curl command: a page must be JSON with a list of items, of at most 8 MiB"
}

// signed reports whether the request may have a signature of its own.
func (r *Request) signed() bool {
	has := func(is func(name string) bool) bool {
		return slices.ContainsFunc(r.Header, func(h Header) bool { return is(h.Name) })
	}
	return has(dateHeader.MatchString) && (r.User != "" || has(func(name string) bool { return name == "Authorization" }))
}
