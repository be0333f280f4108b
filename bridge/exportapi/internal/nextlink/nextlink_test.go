package nextlink

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// The cost of checking a URL is bounded, whatever a page writes. The test counts
// allocations, since each round of unescaping needs some.
func TestParseIsBounded(t *testing.T) {
	known := &url.URL{Scheme: "https", Host: "api.example.com", Path: "/v1/events"}
	for name, tc := range map[string]struct{ text, want string }{
		"escaped thousands of times": {"/v1/%" + strings.Repeat("25", 8000), errEscapedOften.Error()},
		"in each segment":            {"/v1" + strings.Repeat("/%252525252525", 1000), errEscapedOften.Error()},
		"behind other segments": {"/v1" + strings.Repeat("/a", 1000) + "/%" + strings.Repeat("25", 5000),
			errEscapedOften.Error()},
		"with parameters":          {"/v1/a;%" + strings.Repeat("25", 8000), errEscapedOften.Error()},
		"longer than a URL may be": {"/v1/%" + strings.Repeat("25", 500_000), "it has 1000005 bytes, the limit is 32768"},
		"long, not escaped":        {"/v1/" + strings.Repeat("a/", 500_000), "it has 1000004 bytes"},
		"a long query":             {"/v1?a=" + strings.Repeat("%25", 500_000), "it has 1500006 bytes"},
		"a long query that fits":   {"/v1?a=%" + strings.Repeat("25", 8000), ""},
		"escaped four times":       {"/v1/%25252541", ""},
		"dots, escaped four times": {"/v1/%2525252e%2525252e", "its path has . or .. or an encoded slash"},
	} {
		var err error
		allocations := testing.AllocsPerRun(1, func() { _, err = Parse(tc.text, known) })
		if got := fmt.Sprint(err); tc.want == "" && err != nil || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
		if allocations > 4000 { // four for each segment
			t.Errorf("%s: %v allocations", name, allocations)
		}
	}
}

// A segment that some server takes for . or .. is rejected.
func TestDisguisedDots(t *testing.T) {
	t.Parallel()
	known := &url.URL{Scheme: "https", Host: "api.example.com", Path: "/v1/events"}
	for _, segment := range []string{
		"..%20", "%20..", "..%2520", ".%20", "..%09", "..%0d%0a", "..%c2%a0", "..%e2%80%8b", "..%7f", "...", "..%20.",
		"..%20;a=b", "..%20%3b",
		"%e0%80%ae%e0%80%ae", "%f0%80%80%ae%f0%80%80%ae", "%fc%80%80%80%80%ae", "..%e0%80%afa", "a%e0%81%9cb", "a%e2%81%84b",
		"a%e2%88%95b", "a%e2%88%96b", "%ef%b9%92.",
		"%c0%ae%c0%ae", "a%c0%afb", "..%ef%bc%8f", "%ef%bc%8e%ef%bc%8e", "%e2%80%a5", "%e2%80%a4%e2%80%a4", "a%ef%bc%8fb",
		"a%ef%bc%bcb",
		"..%ff", "..%00", "..%23", "..%3f",
	} {
		if _, err := Parse("/v1/"+segment+"/admin", known); !errors.Is(err, errElsewhere) {
			t.Errorf("%s: %v", segment, err)
		}
	}
	for _, segment := range []string{"a..b", "..a", "a.", "a...", "v1.2", "%C3%A9", "a%20b", "%20", "a%2520b", "...a",
		"100%2525", "%e9t%e9"} {
		if _, err := Parse("/v1/"+segment, known); err != nil {
			t.Errorf("%s: %v", segment, err)
		}
	}
}
