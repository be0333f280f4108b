package cursorstore_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cursorstore"
)

func TestConfigDefaults(t *testing.T) {
	t.Parallel()
	cfg := cursorstore.DefaultConfig()
	want := cursorstore.Config{URL: "redis://localhost:6379/0", Timeout: 2 * time.Second, Prefix: "exportbridge",
		HistoryAge: 720 * time.Hour}
	if diff := cmp.Diff(want, cfg); diff != "" {
		t.Errorf("defaults differ (-want +got):\n%s", diff)
	}
	must.Do(t, cfg.Validate())
}

func valid() cursorstore.Config {
	return cursorstore.Config{URL: "redis://localhost", Timeout: time.Second, Prefix: "p", HistoryAge: time.Hour}
}

func TestConfigURL(t *testing.T) {
	t.Parallel()
	const secret = "h8n7" // in every password below
	for _, c := range []struct {
		url    cursorstore.URL
		master string
		ok     bool
	}{
		{url: "redis://localhost:6379/0", ok: true},
		{url: "redis://localhost", ok: true},
		{url: "redis://", ok: true},
		{url: "redis://:6380", ok: true},
		{url: "redis://localhost/3", ok: true},
		{url: "redis://localhost?db=3", ok: true},
		{url: "redis://[::1]:6379/0", ok: true},
		{url: "redis://[::1]", ok: true},
		{url: "rediss://ann:h8n7@redis.example.com:6380/0", ok: true},
		{url: "redis://:h8n7%40%2F@redis.example.com", ok: true},
		{url: "redis://ann:h8n7@a:1,b:2,c:3/0", ok: true},
		{url: "redis://a:1,b:2/1"},
		{url: "redis://a:1,b:2/1", master: "m", ok: true},
		{url: "unix:///run/redis.sock?db=2", ok: true},
		{url: "unix://ann:h8n7@/run/redis.sock", ok: true},
		{url: "unix:///run/redis.sock", master: "m"},
		{url: "unix://run/redis.sock"},
		{url: "unix://"},
		{url: ""},
		{url: "h8n7"},
		{url: "localhost:6379"},
		{url: "http://ann:h8n7@localhost"},
		{url: "redis://ann:h8n7@localhost:port/0"},
		{url: "redis://ann:h8n7@localhost:0"},
		{url: "redis://ann:h8n7@localhost:70000"},
		{url: "redis://ann:h8n7/x@localhost"},
		{url: "redis://ann:h8n7@x@localhost"},
		{url: "redis://ann:h8n7%zz@localhost"},
		{url: "redis://ann:h8n7@localhost/zero"},
		{url: "redis://ann:h8n7@localhost/-1"},
		{url: "redis://ann:h8n7@localhost/1?db=2"},
		{url: "redis://ann:h8n7@localhost?protocol=3"},
		{url: "redis://ann:h8n7@a:b:c"},
	} {
		cfg := valid()
		cfg.URL, cfg.MasterName = c.url, c.master
		err := cfg.Validate()
		if (err == nil) != c.ok {
			t.Errorf("case %q: %v", string(c.url), err)
		}
		if err != nil && !strings.Contains(err.Error(), "REDIS_") {
			t.Errorf("case %q: the error names no variable: %v", string(c.url), err)
		}
		raw, jerr := json.Marshal(cfg.URL)
		var log strings.Builder
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "url", cfg.URL)
		shown := fmt.Sprint(err, jerr, string(raw), log.String()) +
			fmt.Sprintf("%v %+v %#v %s", cfg.URL, cfg.URL, cfg.URL, cfg.URL)
		if strings.Contains(shown, secret) {
			t.Errorf("case %q: the password shows in %s", string(c.url), shown)
		}
		if _, err := cursorstore.Open(cfg); !c.ok && err == nil {
			t.Errorf("case %q: opened", string(c.url))
		}
	}
	if got := cursorstore.URL("rediss://ann:h8n7@a:1,b/0").String(); got != "rediss://ann:***@a:1,b/0" {
		t.Errorf("a URL prints as %s", got)
	}
}

func TestConfigReportsAll(t *testing.T) {
	t.Parallel()
	cfg := cursorstore.Config{URL: "redis://x:y", TLSCA: "none", Prefix: "a b", Password: "h8n7"}
	err := cfg.Validate()
	if err == nil {
		t.Fatal("valid")
	}
	for _, name := range []string{"REDIS_URL", "REDIS_TIMEOUT", "CURSOR_PREFIX", "CURSOR_HISTORY_AGE"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not reported in: %v", name, err)
		}
	}
	for name, alter := range map[string]func(*cursorstore.Config){
		"TLS without TLS": func(c *cursorstore.Config) { c.TLSCA = "x" },
		"no PEM":          func(c *cursorstore.Config) { c.URL, c.TLSCA = "rediss://localhost", "x" },
		"empty prefix":    func(c *cursorstore.Config) { c.Prefix = "" },
		"glob in prefix":  func(c *cursorstore.Config) { c.Prefix = "a*" },
		"brace in prefix": func(c *cursorstore.Config) { c.Prefix = "a{" },
	} {
		cfg := valid()
		alter(&cfg)
		if cfg.Validate() == nil {
			t.Errorf("%s: valid", name)
		}
	}
	if s := fmt.Sprintf("%v %+v", cfg, cfg); strings.Contains(s, "h8n7") {
		t.Errorf("the configuration prints its password: %s", bridge.Secret(s))
	}
}

// TestPasswordInURL: if a character ends the password early, the error says what to escape,
// wherever the rest of the URL then seems wrong.
func TestPasswordInURL(t *testing.T) {
	t.Parallel()
	for url, wrong := range map[string]bool{
		"redis://:h8n7/x@localhost:6379/0":    true,
		"redis://ann:h8n7?x@localhost:6379/0": true,
		"redis://ann:h8n7?db=1@localhost":     true,
		"redis://:12/x@localhost:6379":        true,
		"redis://:12?x@localhost:6379/0":      true,
		"redis://ann/h8n7@localhost":          true,
		"rediss://ann:h@8n7/x@localhost":      true,
		"redis://ann:12/3@a:1,b:2":            true,
		"unix://:h8n7/x@/run/redis.sock":      true,
		"redis://ann:h8n7%2F%3Fx@localhost/0": false,
		"redis://ann:h8n7#x@localhost/0":      false,
		"unix:///run/a@b.sock?db=1":           false,
		"unix://ann:h8n7@/run/a@b.sock":       false,
	} {
		cfg := valid()
		cfg.URL = cursorstore.URL(url)
		err := cfg.Validate()
		if wrong != (err != nil) || wrong && !strings.Contains(err.Error(),
			"percent-encode special characters in its user and password (/ is %2F, ? is %3F, @ is %40), or set REDIS_PASSWORD") || wrong && strings.Contains(err.Error(), "h8n7") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// Without TLS, the network can read what is sent to another machine.
func TestUnsafe(t *testing.T) {
	t.Parallel()
	for url, unsafe := range map[cursorstore.URL]bool{
		"redis://redis:6379/0": true, "redis://:secret@10.0.0.1": true, "redis://localhost,node-2:6379": true,
		"redis://localhost.example.com": true,
		"rediss://redis:6379/0":         false, "redis://localhost:6379": false, "redis://127.0.0.1": false,
		"redis://[::1]:6379": false, "unix:///run/redis.sock": false,
	} {
		c := cursorstore.DefaultConfig()
		c.URL = url
		if got := c.Unsafe(); len(got) > 0 != unsafe || unsafe && got[0] != "REDIS_URL" {
			t.Errorf("%s: %q", url, got)
		}
	}
}
