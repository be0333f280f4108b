package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
)

// decodeShop returns the field that a variable fills, and what is wrong with the
// variable.
func decodeShop(t *testing.T, name, text string) (value any, problem string) {
	t.Helper()
	s := shopDefaults()
	l := &loader{src: newSources(nil, nil, []string{name + "=" + text}, nil)}
	l.fill(&s, "")
	for _, p := range l.problems {
		if p.Variable == name {
			problem, _ = strings.CutPrefix(p.Message, name+": ")
		}
	}
	for _, fields := range []reflect.Value{reflect.ValueOf(s), reflect.ValueOf(s.Nested)} {
		for field, v := range fields.Fields() {
			if tagged, _, _ := strings.Cut(field.Tag.Get("env"), ","); tagged == name {
				value = v.Interface()
			}
		}
	}
	return value, problem
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, text string
		want       any
		err        string
	}{
		{name: "SHOP_NAME", text: "x", want: "x"},
		{name: "SHOP_NAME", text: " x $HOME ", want: " x $HOME "},
		{name: "SHOP_INNER", want: "a,b"},
		{name: "SHOP_WAIT", want: 720 * time.Hour},
		{name: "SHOP_WAIT", text: "90s", want: 90 * time.Second},
		{name: "SHOP_WAIT", text: "7d", want: 168 * time.Hour},
		{name: "SHOP_WAIT", text: "1d12h", want: 36 * time.Hour},
		{name: "SHOP_WAIT", text: "0", want: time.Duration(0)},
		{name: "SHOP_WAIT", text: "30", err: `"30" has no unit, for example 30d`},
		{name: "SHOP_WAIT", text: "1.5", err: `"1.5" has no unit, for example 30d`},
		{name: "SHOP_WAIT", text: "7d30", err: `"7d30" has no unit, for example 30d`},
		{name: "SHOP_WAIT", text: "soon", err: `"soon" is not a duration (90s, 2h30m, 7d, PT2H), for example 30d`},
		{name: "SHOP_WAIT", text: "3 days", err: `"3 days" is not a duration (90s, 2h30m, 7d, PT2H), for example 30d`},
		{name: "SHOP_WAIT", text: "1d-1h", err: `"1d-1h" is not a duration (90s, 2h30m, 7d, PT2H), for example 30d`},
		{name: "SHOP_WAIT", text: "d", err: `"d" is not a duration (90s, 2h30m, 7d, PT2H), for example 30d`},
		{name: "SHOP_WAIT", text: "-", err: `"-" is not a duration (90s, 2h30m, 7d, PT2H), for example 30d`},
		{name: "SHOP_WAIT", text: "999999d", err: `"999999d" is out of range, for example 30d`},
		{name: "SHOP_ROOM", want: int64(16 << 20)},
		{name: "SHOP_ROOM", text: "64MiB", want: int64(64 << 20)},
		{name: "SHOP_ROOM", text: "10MB", want: int64(10_000_000)},
		{name: "SHOP_ROOM", text: "1.5 GiB", want: int64(3 << 29)},
		{name: "SHOP_ROOM", text: "4096", want: int64(4096)},
		{name: "SHOP_ROOM", text: "much", err: `"much" is not a size, for example 16MiB`},
		{name: "SHOP_ROOM", text: "-1MB", err: `"-1MB" is not a size, for example 16MiB`},
		{name: "SHOP_ROOM", text: "16EiB", err: `"16EiB" is not a size, for example 16MiB`},
		{name: "SHOP_ROOM", text: "9EiB", err: `"9EiB" is out of range, for example 16MiB`},
		{name: "SHOP_COUNT", text: "12", want: 12},
		{name: "SHOP_COUNT", text: "010", want: 10},
		{name: "SHOP_COUNT", text: "-3", want: -3},
		{name: "SHOP_COUNT", text: "1e3", err: `"1e3" is not a whole number, for example 8`},
		{name: "SHOP_COUNT", text: "0x10", err: `"0x10" is not a whole number, for example 8`},
		{name: "SHOP_SMALL", text: "128", err: `"128" is out of range, for example 1`},
		{name: "SHOP_OPEN", text: "true", want: true},
		{name: "SHOP_OPEN", text: "0", want: false},
		{name: "SHOP_OPEN", text: "maybe", err: `"maybe" is neither true nor false, for example false`},
		{name: "SHOP_KEY", text: "sesame", want: bridge.Secret("sesame")},
		{name: "SHOP_COLOUR", text: "green", want: "green"},
		{name: "SHOP_COLOUR", text: "Green", err: `"Green" is not one of: red, green`},
		{name: "SHOP_GOODS", want: []string(nil)},
		{name: "SHOP_GOODS", text: "a, b,,c ", want: []string{"a", "b", "c"}},
		{name: "SHOP_GOODS", text: " , ", err: `" , " is a list without an element`},
		{name: "SHOP_COLOURS", text: "red,green", want: []string{"red", "green"}},
		{name: "SHOP_COLOURS", text: "red,blue", err: `"red,blue" is not one of: red, green`},
		{name: "SHOP_COUNT", text: "redis://u:p@h", err: `"redis://***@h" is not a whole number, for example 8`},
		{name: "SHOP_COUNT", text: strings.Repeat("9", 200), err: `"` + strings.Repeat("9", 77) +
			`..." is out of range, for example 8`},
	} {
		value, got := decodeShop(t, test.name, test.text)
		if got != test.err {
			t.Errorf("%s=%q: error %q, want %q", test.name, test.text, got, test.err)
			continue
		}
		if got == "" {
			if diff := cmp.Diff(test.want, value); diff != "" {
				t.Errorf("%s=%q (-want +got):\n%s", test.name, test.text, diff)
			}
		}
	}
}

// TestDecodeHidesSecrets: the error about a secret does not quote it.
func TestDecodeHidesSecrets(t *testing.T) {
	t.Parallel()
	v := shopVariable(t, "SHOP_COUNT")
	v.Secret = true
	_, err := v.parse("sesame")
	if err == nil || strings.Contains(err.Error(), "sesame") {
		t.Errorf("error %v", err)
	}
}

func TestMaskURLs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"redis://localhost:6379/0":      "redis://localhost:6379/0",
		"redis://:p@localhost":          "redis://***@localhost",
		"redis://u:p@ss/w#rd@localhost": "redis://***@localhost",
		"see https://u:p@h and x@y":     "see https://***@h and x@y",
		"a@b":                           "a@b",
	} {
		if got := maskURLs(text); got != want {
			t.Errorf("maskURLs(%q) = %q, want %q", text, got, want)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, seed := range []string{"7d", "1d12h", "-3d", "90s", "", "d", "1.5h", "30", "106751d24h"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := bridge.ParseDuration(text)
		if err != nil {
			return
		}
		if negative := strings.HasPrefix(text, "-"); (d > 0 && negative) || (d < 0 && !negative) {
			t.Errorf("parseDuration(%q) = %v has the wrong sign", text, d)
		}
		if back, err := bridge.ParseDuration(FormatDuration(d)); err != nil || back != d {
			t.Errorf("%q reads as %v, which is written %q and reads as %v, %v", text, d, FormatDuration(d), back, err)
		}
	})
}
