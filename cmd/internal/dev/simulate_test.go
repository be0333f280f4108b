package dev

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

func TestParseBandwidth(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"100mbit": 1e8, "1.5gbit": 15e8, "64kbit": 64000, "0": 0, "0mbit": 0} {
		if got, err := parseBandwidth(text); got != want || err != nil {
			t.Errorf("parseBandwidth(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "100", "mbit", "-1mbit", "xmbit", "1bit", "1tbit", "NaNmbit", "Infmbit", "1mbitmbit"} {
		if got, err := parseBandwidth(text); err == nil {
			t.Errorf("parseBandwidth(%q) = %v", text, got)
		}
	}
}
