package bridge_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

func TestParseRoutes(t *testing.T) {
	t.Parallel()
	const text = "order.*=orders, payment.*=payments\n,/region=eu-*:eu,*.debug=drop,a=b=orders,/x~1y=a=b:c:main"
	r := must.Get(bridge.ParseRoutes(text, "main"))(t)
	want := bridge.Routes{
		Text: "order.*=orders,payment.*=payments,/region=eu-*:eu,*.debug=drop,a=b=orders,/x~1y=a=b:c:main",
		Rules: []bridge.Route{
			{Pattern: "order.*", To: 1}, {Pattern: "payment.*", To: 2}, {Pointer: "/region", Pattern: "eu-*", To: 3},
			{Pattern: "*.debug", To: bridge.RouteDrop}, {Pattern: "a=b", To: 1}, {Pointer: "/x~1y", Pattern: "a=b:c"},
		},
		Topics: []string{"orders", "payments", "eu"},
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	again, err := bridge.ParseRoutes(r.Text, "main")
	if diff := cmp.Diff(r, again); diff != "" || err != nil {
		t.Errorf("parsed again (-want +got), error %v:\n%s", err, diff)
	}
	if r, err := bridge.ParseRoutes(" ,\n", "main"); err != nil || len(r.Rules) > 0 {
		t.Errorf("no entries: %v, %v", r, err)
	}
	many := make([]string, 33)
	for i := range many {
		many[i] = fmt.Sprintf("t%d=topic%d", i, i)
	}
	for text, want := range map[string]string{
		"orders": "neither", "=orders": "neither", "order=": "neither", "/region=eu": "neither", "/region:eu": "neither",
		"/region=:eu": "neither", "a=b,a=c": "listed twice", strings.Join(many, ","): "33 topics",
		strings.Repeat("a", 1000) + "=b": "1002 bytes",
	} {
		if r, err := bridge.ParseRoutes(text, "main"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30s: %v, error %v, want one with %q", text, r, err, want)
		}
	}
}

func TestRouteMatches(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		pattern, value string
		want           bool
	}{
		{"order", "order", true},
		{"order", "orders", false},
		{"order", "anorder", false},
		{"order*", "order", true},
		{"order*", "orderPlaced", true},
		{"order*", "reorder", false},
		{"*Placed", "orderPlaced", true},
		{"*Placed", "PlacedOrder", false},
		{"*", "", true},
		{"*", "anything", true},
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"a*b*c", "aXbYc", true},
		{"a*b*c", "aXcYb", false},
		{"a*bc*c", "abc", false},
		{"**", "x", true},
		{"a**b", "ab", true},
		{"*ab*", "xxaby", true},
		{"*ab", "abxab", true},
	} {
		r := bridge.Route{Pattern: tc.pattern}
		if got := r.Matches([]byte(tc.value)); got != tc.want {
			t.Errorf("%q matches %q: %v, want %v", tc.pattern, tc.value, got, tc.want)
		}
		if r.Matches(nil) {
			t.Errorf("%q matches an absent value", tc.pattern)
		}
	}
}
