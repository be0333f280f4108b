package exportapi

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/internal/itemtime"

	"exportbridge/bridge/exportapi/internal/scan"

	"github.com/go-json-experiment/json/jsontext"
)

// timeIn reads a JSON value as a time.
func timeIn(t testing.TB, format, raw string) (ms int64, ok bool) {
	t.Helper()
	var s scan.Scanner
	s.Reset([]byte(raw))
	v, end, ok := s.Read(0)
	if !ok || end != len(raw) {
		t.Fatalf("%s is not JSON", raw)
	}
	return v.Millis(timeFormats[format])
}

func TestTimes(t *testing.T) {
	t.Parallel()
	const unreadable = "unreadable"
	at := func(text string) string {
		parsed := must.Get(time.Parse(time.RFC3339Nano, text))(t)
		return fmt.Sprint(parsed.UnixMilli())
	}
	for _, tc := range []struct{ format, raw, want string }{
		{"ms", `1760000000123`, "1760000000123"},
		{"ms", `"1760000000123"`, "1760000000123"},
		{"ms", `1760000000123.999`, "1760000000123"},
		{"ms", `-1`, "-1"},
		{"ms", `-1.5`, "-2"},
		{"ms", `-1.0`, "-1"},
		{"ms", `9223372036854775807`, "9223372036854775807"}, // the clock of a client may be wrong
		{"ms", `-9223372036854775808`, unreadable},           // it is NoTime
		{"ms", `9223372036854775808`, unreadable},
		{"ms", `"9223372036854775807"`, unreadable},
		{"ms", `1e400`, unreadable},
		{"ms", `1e3`, unreadable},
		{"ms", `"1e3"`, unreadable},
		{"ms", `"-1"`, unreadable},
		{"ms", `"+1"`, unreadable},
		{"ms", `""`, unreadable},
		{"ms", `" 1760000000123"`, unreadable},
		{"ms", `"1760000000123\n"`, unreadable},
		{"ms", `"1760000000123."`, unreadable},
		{"ms", `".5"`, unreadable},
		{"ms", `"1.2.3"`, unreadable},
		{"ms", `"1,5"`, unreadable},
		{"ms", `"0x10"`, unreadable},
		{"ms", `"١"`, unreadable},
		{"ms", `"\u0031\u0037"`, "17"},
		{"ms", `"2026-11-22T10:57:00Z"`, unreadable},
		{"ms", `true`, unreadable},
		{"ms", `[1760000000123]`, unreadable},
		{"ms", `{"$date":1}`, unreadable},
		{"s", `1512085950.000216`, "1512085950000"},
		{"s", `"1512085950.000216"`, "1512085950000"},
		{"s", `1512085950`, "1512085950000"},
		{"s", `1512085950.9999`, "1512085950999"},
		{"s", `1512085950.5`, "1512085950500"},
		{"s", `-0.0001`, "-1"},
		{"s", `-1.0010`, "-1001"},
		{"s", `253402300799.9999`, "253402300799999"},
		{"s", `253402300800`, unreadable},
		{"s", `-62135596800`, "-62135596800000"},
		{"s", `-62135596800.001`, unreadable},
		{"s", `1760000000123`, unreadable}, // milliseconds
		{"s", `999999999999999999`, unreadable},
		{"s", `9999999999999999999999`, unreadable},
		{"s", `"` + strings.Repeat("0", 400) + `"`, unreadable},
		{"us", `1760000000123456`, "1760000000123"},
		{"us", `"1760000000123999.9"`, "1760000000123"},
		{"us", `-1`, "-1"},
		{"us", `-1000`, "-1"},
		{"us", `-1000.5`, "-2"},
		{"us", `253402300800000000`, unreadable},
		{"us", `1760000000123456789`, unreadable}, // nanoseconds
		{"rfc3339", `"2026-11-22T10:57:00Z"`, at("2026-11-22T10:57:00Z")},
		{"rfc3339", `"2026-11-22T10:57:00.1Z"`, at("2026-11-22T10:57:00.1Z")},
		{"rfc3339", `"2026-11-22T10:57:00.123999999999Z"`, at("2026-11-22T10:57:00.123Z")},
		{"rfc3339", `"1969-12-31T23:59:59.9999Z"`, "-1"},
		{"rfc3339", `"2026-11-22T10:57:00-03:00"`, at("2026-11-22T13:57:00Z")},
		{"rfc3339", `"2026-11-22T10:57:00.5+05:45"`, at("2026-11-22T05:12:00.5Z")},
		{"rfc3339", `"2026-11-22T10:57:00\u002B00:00"`, at("2026-11-22T10:57:00Z")},
		{"rfc3339", `"2026-11-22T10:57:00+0000"`, at("2026-11-22T10:57:00Z")},
		{"rfc3339", `"2026-11-22 10:57:00z"`, at("2026-11-22T10:57:00Z")},
		{"rfc3339", `"2024-02-29T00:00:00Z"`, at("2024-02-29T00:00:00Z")},
		{"rfc3339", `"2000-02-29T00:00:00Z"`, at("2000-02-29T00:00:00Z")},
		{"rfc3339", `"0001-01-01T00:00:00Z"`, "-62135596800000"},
		{"rfc3339", `"9999-12-31T23:59:59.999Z"`, "253402300799999"},
		{"rfc3339", `"1900-02-29T00:00:00Z"`, unreadable},
		{"rfc3339", `"0000-01-01T00:00:00Z"`, unreadable},
		{"rfc3339", `"0001-01-01T00:00:00+00:01"`, unreadable},
		{"rfc3339", `"9999-12-31T23:59:59-00:01"`, unreadable},
		{"rfc3339", `"10000-01-01T00:00:00Z"`, unreadable},
		{"rfc3339", `"-2026-01-01T00:00:00Z"`, unreadable},
		{"rfc3339", `"2016-12-31T23:59:60Z"`, at("2017-01-01T00:00:00Z")}, // a leap second
		{"rfc3339", `"2016-12-31T15:59:60.75-08:00"`, at("2017-01-01T00:00:00Z")},
		{"rfc3339", `"2016-12-31T23:59:60-08:00"`, unreadable}, // not the end of a day
		{"rfc3339", `"2016-12-31T12:30:60Z"`, unreadable},
		{"rfc3339", `"2016-12-31T23:59:61Z"`, unreadable},
		{"rfc3339", `"9999-12-31T23:59:60Z"`, unreadable},
		{"rfc3339-utc", `"2016-12-31 23:59:60.5"`, at("2017-01-01T00:00:00Z")},
		{"rfc3339", `"2026-11-22T24:00:00Z"`, unreadable},
		{"rfc3339", `"2026-11-22T10:57:00"`, unreadable}, // no zone
		{"rfc3339", `"2026-11-22T10:57:00,5Z"`, unreadable},
		{"rfc3339", `"2026-11-22T10:57:00.Z"`, unreadable},
		{"rfc3339", `"2026-11-22T10:57:00+24:00"`, unreadable},
		{"rfc3339", `"2026-11-22T10:57:00+01:60"`, unreadable},
		{"rfc3339", `"2026-11-22T10:57:00+1"`, unreadable},
		{"rfc3339", `"2026-11-22T10:57:00+01:"`, unreadable},
		{"rfc3339", `"2026-11-22T10:57:00Z "`, unreadable},
		{"rfc3339", `" 2026-11-22T10:57:00Z"`, unreadable},
		{"rfc3339", `"2026-11-22"`, unreadable},
		{"rfc3339", `"2026-13-01T00:00:00Z"`, unreadable},
		{"rfc3339", `"2026-00-01T00:00:00Z"`, unreadable},
		{"rfc3339", `"2026-01-00T00:00:00Z"`, unreadable},
		{"rfc3339", `"2026-04-31T00:00:00Z"`, unreadable},
		{"rfc3339", `"2026-1-1T00:00:00Z"`, unreadable},
		{"rfc3339", `1760000000123`, unreadable},
		{"rfc3339-utc", `"2026-11-20T10:00:00.120"`, at("2026-11-20T10:00:00.12Z")},
		{"rfc3339-utc", `"2026-11-20 10:00:00"`, at("2026-11-20T10:00:00Z")},
		{"rfc3339-utc", `"2026-11-20T10:00:00.5Z"`, at("2026-11-20T10:00:00.5Z")},
		{"rfc3339-utc", `"2026-11-20T10:00:00+02:00"`, at("2026-11-20T08:00:00Z")},
		{"rfc3339-utc", `"2026-11-20T10:00:00."`, unreadable},
		{"rfc3339-utc", `"2026-11-20T10:00"`, unreadable},
		{"rfc3339-utc", `"2026-11-20"`, unreadable},
		{"rfc3339-utc", `1760000000123`, unreadable},
		{"rfc3339", `"2026-11-20T10:00:00.120"`, unreadable},
		{"rfc3339", `""`, unreadable},
		{"rfc3339", `"` + "2026-11-22T10:57:00." + strings.Repeat("1", 300) + `Z"`, at("2026-11-22T10:57:00.111Z")},
	} {
		ms, ok := timeIn(t, tc.format, tc.raw)
		got := unreadable
		if ok {
			got = fmt.Sprint(ms)
		}
		if got != tc.want {
			t.Errorf("%s of %s is %s, want %s", tc.format, tc.raw, got, tc.want)
		}
		if ms, ok := oracleTime(jsontext.Value(tc.raw), tc.format); ok != (tc.want != unreadable) ||
			ok && fmt.Sprint(ms) != tc.want {
			t.Errorf("the oracle reads %s of %s as %d %t, want %s", tc.format, tc.raw, ms, ok, tc.want)
		}
	}
}

// TestDatesOfAllDays compares the calendar with package time, for each day of the range and
// times around midnight.
func TestDatesOfAllDays(t *testing.T) {
	t.Parallel()
	for day := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() < 10_000; day = day.AddDate(0, 0, 1) {
		if ms, ok := itemtime.RFC3339.Parse([]byte(day.Format(time.RFC3339)), false); !ok || ms != day.UnixMilli() {
			t.Fatalf("%s is %d %t, want %d", day, ms, ok, day.UnixMilli())
		}
	}
}

// FuzzTime compares all formats with fractions and package time.
func FuzzTime(f *testing.F) {
	for _, seed := range []string{"1760000000123", "-1512085950.000216", "2026-11-22T10:57:00.123-03:00",
		"9999-12-31T23:59:59Z", "1e400", "0001-01-01 00:00:00z", "2026-11-22T10:57:00+0530"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) { compareTimes(t, text) })
}

// compareTimes compares the times in a text, read as a string and, if it is one, as a
// number.
func compareTimes(t *testing.T, text string) {
	t.Helper()
	quoted := must.Get(json.Marshal(text))(t)
	for _, raw := range []string{string(quoted), text} {
		if raw == text && (jsontext.Value(raw).Kind() != '0' || !jsontext.Value(raw).IsValid() ||
			strings.TrimSpace(raw) != raw) {
			continue
		}
		for format := range timeFormats {
			if format == none {
				continue
			}
			ms, ok := timeIn(t, format, raw)
			want, wantOK := oracleTime(jsontext.Value(raw), format)
			if ok != wantOK || ok && ms != want {
				t.Errorf("%s of %s is %d %t, the oracle reads %d %t", format, raw, ms, ok, want, wantOK)
			}
		}
	}
}

// TestMutatedTimes is FuzzTime with fixed input.
func TestMutatedTimes(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(14, 1))
	seeds := []string{"1760000000123", "-1512085950.000216", "2026-11-22T10:57:00.123-03:00", "9999-12-31T23:59:59Z",
		"2024-02-29T00:00:00Z", "253402300799.9999"}
	for range 30_000 {
		text := []byte(seeds[random.IntN(len(seeds))])
		for range random.IntN(4) {
			at := random.IntN(len(text))
			switch random.IntN(3) {
			case 0:
				text[at] = "0123456789-+.:TZ e"[random.IntN(18)]
			case 1:
				text = append(text[:at], text[at+1:]...)
			default:
				text = append(text[:at+1], text[at:]...)
			}
			if len(text) == 0 {
				break
			}
		}
		if compareTimes(t, string(text)); t.Failed() {
			t.FailNow()
		}
	}
}

func TestTimesAllocateNothing(t *testing.T) {
	for format, raw := range map[string]string{"ms": `"1760000000123"`, "s": `1512085950.000216`,
		"us": `1760000000123456`, "rfc3339": `"2026-11-22T10:57:00.123\u002b00:00"`} {
		var s scan.Scanner
		s.Reset([]byte(raw))
		v, _, _ := s.Read(0)
		f := timeFormats[format]
		if n := testing.AllocsPerRun(100, func() { _, _ = v.Millis(f) }); n > 0 {
			t.Errorf("%s allocates %v times", format, n)
		}
	}
}
