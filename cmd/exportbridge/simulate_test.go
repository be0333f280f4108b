package main

import "testing"

func TestParseRate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{"50/s": 50, "600/m": 10, "36/h": 0.01, "0": 0, "0/s": 0, "0.5/s": 0.5} {
		if got, err := parseRate(text); got != want || err != nil {
			t.Errorf("parseRate(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "50", "/s", "-1/s", "x/s", "1/d", "NaN/s", "Inf/s"} {
		if got, err := parseRate(text); err == nil {
			t.Errorf("parseRate(%q) = %v", text, got)
		}
	}
}
