package exportsim

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Schema is a generation of the public schema.
type Schema string

// The generations. They differ in the id of an event, the name of the payload's
// type, the set of event types and a few fields.
const (
	// Schema08 has eventId, systemTimestamp and payload.type.
	Schema08 Schema = "0.8"
	// Schema07 has id and payload.@type.
	Schema07 Schema = "0.7"
	// Schema05 has no id. It has payload.@type, and a payload.sequence that only the
	// simulator adds, for IndexOf.
	Schema05 Schema = "0.5"
)

// EndOfResults is how a page marks the end of the results.
type EndOfResults string

// The contracts. Under the first three, a page that is not full names no next
// cursor. The same request, sent again, returns more items until the page is full.
// Under EmptyItems, every page has a cursor, and a page without items is the end.
const (
	EmptyCursor EndOfResults = "empty-cursor"
	NullCursor  EndOfResults = "null-cursor"
	NoCursor    EndOfResults = "no-cursor"
	EmptyItems  EndOfResults = "empty-items"
)

const (
	defaultPageSize  = 100
	maxPageSize      = 1000
	defaultScanLimit = 2000
	defaultEvery     = 100 * time.Millisecond
	defaultTokenTTL  = 24 * time.Hour
)

// Config configures the simulated export. The zero value serves an empty export of the
// newest schema, without faults and without a key.
type Config struct {
	// Seed determines the content.
	Seed uint64
	// Events is the initial number of events. Sessions (one per eight events)
	// and users (one per 32) follow from it.
	Events int
	// Rate is the growth in events per second, counted from Since by the wall clock. It may
	// be a fraction. 0 is no growth.
	Rate float64
	// Since is when the growth began; zero is the time of New. If Start is set too, a new
	// Handler has the events that an earlier one would have by now.
	Since time.Time
	// Start is the time of the first event. If it is zero, the initial events end at the
	// time of New, and the served bytes differ from run to run.
	Start time.Time
	// Every is the time between two events. 0 is 1/Rate, at most an hour, or 100 ms without
	// a Rate.
	Every time.Duration
	// Lag is how much later than its time an event may be listed in a form with Clocked. It
	// applies to one in four events, at random.
	Lag time.Duration
	// Changes is the time between two changes of an item in a form with Clocked; 0 is
	// never.
	Changes time.Duration
	// Clock is the clock of the API: of the Date header, and of the growth of a form with
	// Clocked. Nil means the clock of the machine.
	Clock func() time.Time
	// Schema is the generation of the schema; empty means Schema08.
	Schema Schema
	// Form is the shape of the API; the zero value is the default form.
	Form Form
	// EndOfResults is how a page marks the end; empty means as the form does. The default
	// form has EmptyCursor.
	EndOfResults EndOfResults
	// BasePath precedes /events, /session and /user. It begins with a slash and does not
	// end with one, for example /export.
	BasePath string

	// APIKey is the required key, password or client secret, see Form.Auth. If it is empty,
	// no request needs credentials.
	APIKey string
	// TokenTTL is the lifetime of an OAuth 2.0 token; 0 means a day.
	TokenTTL time.Duration

	// Latency delays each response.
	Latency time.Duration
	// BandwidthBits is the bandwidth that all response bodies share, in bits per second; 0
	// is unlimited.
	BandwidthBits int64
	// RateLimit is the number of requests per second above which the response is 429 with
	// Retry-After; 0 is unlimited. Bursts of one second are allowed.
	RateLimit float64
	// Faults are injected at random, reproducibly by Seed and request number.
	Faults Faults
	// CursorTTL is the lifetime of a cursor; 0 is unlimited. A repeated request for the
	// last page does not extend it.
	CursorTTL time.Duration
	// ScanLimit is the number of items that a request with an event filter examines before
	// it responds, possibly with none; 0 means 2000.
	ScanLimit int

	// Gzip and Zstd enable these encodings for requests that accept them.
	Gzip, Zstd bool
	// CursorFirst puts nextCursor before items; by default it comes last.
	CursorFirst bool

	// OnRequest, if not nil, gets every API request before its response. It is called
	// concurrently.
	OnRequest func(*http.Request)
}

// Validate reports all problems of the configuration.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	schemas := []Schema{"", Schema08, Schema07, Schema05}
	ends := []EndOfResults{"", EmptyCursor, NullCursor, NoCursor, EmptyItems}
	check(c.Events >= 0, "events %d is below 0, use for example 12000", c.Events)
	check(c.Rate >= 0 && c.Rate <= 1e6, "rate %v is not within 0 and 1000000 events/s, use for example 50", c.Rate)
	check(slices.Contains(schemas, c.Schema), "schema %q is not one of: 0.8, 0.7, 0.5", c.Schema)
	check(slices.Contains(ends, c.EndOfResults),
		"end of results %q is not one of: empty-cursor, null-cursor, no-cursor, empty-items", c.EndOfResults)
	check(c.BasePath == "" || strings.HasPrefix(c.BasePath, "/") && !strings.HasSuffix(c.BasePath, "/"),
		"base path %q must start with a slash and not end with one, for example /export", c.BasePath)
	check(c.Every >= 0, "event spacing %s is below 0, use for example 100ms", c.Every)
	check(c.Lag >= 0, "lag %s is below 0, use for example 3s", c.Lag)
	check(c.Changes >= 0, "change interval %s is below 0, use for example 10s", c.Changes)
	check(c.Form.Clocked || c.Lag == 0 && c.Changes == 0,
		"only a form that grows by the clock has a lag or changes, use for example the form audit-list")
	check(c.Latency >= 0, "latency %s is below 0, use for example 20ms", c.Latency)
	check(c.BandwidthBits >= 0, "bandwidth %d is below 0, use for example 100000000", c.BandwidthBits)
	check(c.RateLimit >= 0 && c.RateLimit <= 1e6, "rate limit %v is not within 0 and 1000000 requests/s, use for example 10",
		c.RateLimit)
	check(c.CursorTTL >= 0, "cursor lifetime %s is below 0, use for example 1h", c.CursorTTL)
	check(c.TokenTTL >= 0, "token lifetime %s is below 0, use for example 1h", c.TokenTTL)
	check(c.ScanLimit >= 0, "scan limit %d is below 0, use for example 2000", c.ScanLimit)
	check(c.Start.IsZero() || c.Start.UnixMilli() >= minMillis && c.Start.Before(maxTime),
		"start %s is not within 2001-09-09 and 2250, use for example 2026-11-01T00:00:00Z", c.Start)
	return errors.Join(append(errs, c.Faults.validate(), c.Form.withDefaults(*c).validate())...)
}

// withDefaults fills empty fields. now ends the initial events if Start is zero.
func (c Config) withDefaults(now time.Time) Config {
	c.Schema = cmp.Or(c.Schema, Schema08)
	c.ScanLimit = cmp.Or(c.ScanLimit, defaultScanLimit)
	c.TokenTTL = cmp.Or(c.TokenTTL, defaultTokenTTL)
	if c.Every == 0 {
		c.Every = defaultEvery
		if c.Rate > 0 {
			c.Every = time.Duration(min(float64(time.Second)/c.Rate, float64(time.Hour)))
		}
	}
	if c.Start.IsZero() {
		// New rejects events that span more than a lifetime, so that this product does not
		// overflow.
		span := min(float64(c.Events)*float64(c.Every), float64(100*365*24*time.Hour))
		c.Start = now.Add(-time.Duration(span))
	}
	return c
}
