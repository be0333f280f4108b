package exportsim_test

import (
	"strings"
	"testing"
	"time"

	"exportbridge/bridge/exportapi/exportsim"
)

func TestValidateReportsEverything(t *testing.T) {
	t.Parallel()
	c := exportsim.Config{
		Events: -1, Rate: -1, Schema: "0.9", EndOfResults: "never", BasePath: "export/", Every: -1, Latency: -1,
		BandwidthBits: -1, RateLimit: -1, CursorTTL: -1, ScanLimit: -1, Lag: -1, Changes: -1,
		Start: time.Unix(0, 0), Faults: exportsim.Faults{{"bang", 2}},
	}
	err := c.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"events -1", "rate -1", `schema "0.9" is not one of: 0.8, 0.7, 0.5`, `end of results "never"`,
		`base path "export/"`, "event spacing", "latency", "bandwidth", "rate limit", "cursor lifetime",
		"scan limit", "lag -1", "change interval -1", "grows by the clock", "start 1970", `fault "bang"`,
		"probability 2",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %q:\n%v", want, err)
		}
	}
	if _, err := exportsim.New(c); err == nil {
		t.Error("New takes what Validate refuses")
	}
	if err := (&exportsim.Config{}).Validate(); err != nil {
		t.Errorf("zero value: %v", err)
	}
}

// The turns of a higher rate limit would have no distance in nanoseconds.
func TestHighestRateLimit(t *testing.T) {
	t.Parallel()
	c := exportsim.Config{RateLimit: 1e6, Form: exportsim.Form{LimitHeaders: "RateLimit"}}
	if got := recordStatus(newHandler(t, c), "/events"); got.Code != 200 {
		t.Errorf("%v requests/s: %d", c.RateLimit, got.Code)
	}
	c.RateLimit = 2e9
	if _, err := exportsim.New(c); err == nil {
		t.Errorf("New takes %v requests/s", c.RateLimit)
	}
}

func TestStockThatDoesNotFitTime(t *testing.T) {
	t.Parallel()
	for _, c := range []exportsim.Config{
		{Events: 1_000_000_000, Every: 24 * time.Hour},
		{Events: 1_000_000, Every: time.Hour, Start: start.AddDate(200, 0, 0)},
	} {
		if _, err := exportsim.New(c); err == nil || !strings.Contains(err.Error(), "use fewer") {
			t.Errorf("%d events %s apart: %v", c.Events, c.Every, err)
		}
	}
}

func TestExtremeConfigsServe(t *testing.T) {
	t.Parallel()
	for _, c := range []exportsim.Config{
		{Events: 1000, Rate: 1e6}, {Events: 1000, Rate: 1e-12}, {Events: 100, Every: time.Nanosecond},
		{Events: 100_000_000}, {Events: 10, Every: 300 * 24 * time.Hour},
	} {
		h, err := exportsim.New(c)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		h.Grow(1 << 62)
		if h.EventTime(h.Stock()-1).Year() > 2250 {
			t.Errorf("%+v: grows to %s", c, h.EventTime(h.Stock()-1))
		}
		if got := recordStatus(h, "/events?pageSize=1000").Code; got != 200 {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
