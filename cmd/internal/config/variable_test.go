package config

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/contract"
)

// shop is a Config with every kind of setting.
type shop struct {
	Untagged string
	Nested   struct {
		Inner string `env:"SHOP_INNER" desc:"nested"`
	}
	Pointer *struct {
		Inner string `env:"SHOP_POINTER"`
	}
	Name    string        `env:"SHOP_NAME" required:"yes" desc:"its name" example:"corner"`
	Wait    time.Duration `env:"SHOP_WAIT" stream:"yes"`
	Room    int64         `env:"SHOP_ROOM" unit:"bytes"`
	Count   int           `env:"SHOP_COUNT" stream:"yes"`
	Small   int8          `env:"SHOP_SMALL"`
	Open    bool          `env:"SHOP_OPEN"`
	Key     bridge.Secret `env:"SHOP_KEY" secret:"yes" stream:"yes"`
	Colour  string        `env:"SHOP_COLOUR" values:"red,green"`
	Goods   []string      `env:"SHOP_GOODS"`
	Colours []string      `env:"SHOP_COLOURS" values:"red,green"`
}

func shopDefaults() shop {
	s := shop{Wait: 720 * time.Hour, Room: 16 << 20, Count: 8, Colour: "red"}
	s.Nested.Inner = "a,b"
	return s
}

func shopVariables() []Variable { return variablesOf(reflect.ValueOf(shopDefaults())) }

func shopVariable(t *testing.T, name string) *Variable {
	t.Helper()
	for _, v := range shopVariables() {
		if v.Name == name {
			return &v
		}
	}
	t.Fatalf("no variable %s", name)
	return nil
}

func TestVariablesOf(t *testing.T) {
	t.Parallel()
	var names []string
	for _, v := range shopVariables() {
		names = append(names, v.Name)
	}
	want := []string{"SHOP_INNER", "SHOP_NAME", "SHOP_WAIT", "SHOP_ROOM", "SHOP_COUNT", "SHOP_SMALL", "SHOP_OPEN",
		"SHOP_KEY", "SHOP_COLOUR", "SHOP_GOODS", "SHOP_COLOURS"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	got := *shopVariable(t, "SHOP_NAME")
	if diff := cmp.Diff(Variable{
		Name: "SHOP_NAME", typ: reflect.TypeFor[string](), required: true, Description: "its name", sample: "corner",
	}, got, cmp.AllowUnexported(Variable{}), cmpopts.EquateEmpty(),
		cmp.Comparer(func(a, b reflect.Type) bool { return a == b })); diff != "" {
		t.Errorf("SHOP_NAME (-want +got):\n%s", diff)
	}
	if inner := shopVariable(t, "SHOP_INNER"); inner.def != "a,b" {
		t.Errorf("SHOP_INNER has default %q", inner.def)
	}
}

func TestVariableTexts(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ flag, shown, example, kind string }{
		"SHOP_NAME":   {"shop-name", "", "corner", "text"},
		"SHOP_WAIT":   {"shop-wait", "30d", "30d", "duration"},
		"SHOP_ROOM":   {"shop-room", "16MiB", "16MiB", "size"},
		"SHOP_COUNT":  {"shop-count", "8", "8", "number"},
		"SHOP_OPEN":   {"shop-open", "false", "false", "true, false"},
		"SHOP_COLOUR": {"shop-colour", "red", "red", "red, green"},
		"SHOP_GOODS":  {"shop-goods", "", "", "list"},
	} {
		v := shopVariable(t, name)
		got := struct{ flag, shown, example, kind string }{v.FlagName(), v.def, v.example(), v.Kind()}
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func TestFormatRoundTrip(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", 90 * time.Second: "1m30s", time.Minute: "1m", time.Hour: "1h", 24 * time.Hour: "24h",
		48 * time.Hour: "2d", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m", 20 * time.Hour: "20h",
		1500 * time.Millisecond: "1.5s",
	} {
		got := FormatDuration(d)
		back, err := bridge.ParseDuration(got)
		if got != want || err != nil || back != d {
			t.Errorf("formatDuration(%v) = %q, want %q; reads back as %v, %v", d, got, want, back, err)
		}
	}
	for n, want := range map[int64]string{0: "0", 1: "1", 1000: "1000", 1024: "1KiB", 1536: "1536", 16 << 20: "16MiB",
		3 << 30: "3GiB", -1: "-1"} {
		if got := formatBytes(n); got != want {
			t.Errorf("formatBytes(%d) = %q, want %q", n, got, want)
		}
	}
}

// TestAllVariables checks the tags of every package: a mistake there would
// show only when somebody sets the variable.
func TestAllVariables(t *testing.T) {
	t.Parallel()
	vars := Variables()
	seen := make(map[string]bool)
	for _, v := range vars {
		if v.Description == "" {
			t.Errorf("%s has no desc", v.Name)
		}
		switch v.typ.Kind() {
		case reflect.Bool, reflect.Int, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Slice, reflect.String:
		default:
			t.Errorf("%s has the type %s, which parse and schema do not know", v.Name, v.typ)
		}
		if v.required && v.def != "" {
			t.Errorf("%s is required and has a default", v.Name)
		}
		if seen[v.Name] || seen[v.Name+FileSuffix] {
			t.Errorf("%s comes twice, or is the file of another", v.Name)
		}
		seen[v.Name] = true
		if !hasPrefix(v.Name, ownPrefixes) && !hasPrefix(v.Name, sharedPrefixes) {
			t.Errorf("%s has no prefix of ours", v.Name)
		}
		if _, err := v.parse(v.sample); v.sample != "" && err != nil {
			t.Errorf("example of %s: %v", v.Name, err)
		}
	}
}

// TestShownDefaults: setting every variable to its shown default changes nothing.
func TestShownDefaults(t *testing.T) {
	t.Parallel()
	var environ []string
	for _, v := range Variables() {
		environ = append(environ, v.Name+"="+v.def)
	}
	set := must.Get(loadFrom(t, UsesAll, append(environ, "EXPORT_API_KEY=sesame")...))(t)
	unset := must.Get(loadFrom(t, UsesAll))(t)
	set.Effective, unset.Effective = nil, nil
	a, b := &set.Streams[0].Engine.Origin.Request, &unset.Streams[0].Engine.Origin.Request
	if *a == *b || a.Digest() != b.Digest() { // only whether they are presets differs
		t.Errorf("the request is %q, and %q without", *a, *b)
	}
	*a = *b
	private := cmpopts.IgnoreUnexported(kafkasink.Config{}, contract.Config{}, Settings{})
	if diff := cmp.Diff(unset, set, private); diff != "" {
		t.Errorf("(-unset +set):\n%s", diff)
	}
}
