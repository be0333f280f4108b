package dev

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/cmd/internal/config"
)

// A restarted simulator has the same events as one that was never stopped.
func TestSimulatorContinues(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	synctest.Test(t, func(t *testing.T) {
		<-time.After(10 * 365 * 24 * time.Hour) // the clock begins in 2000, before what the simulator can tell
		start := func() *exportsim.Handler {
			sim := exportsim.Config{Rate: 50, Events: 100, Seed: 1}
			must.Do(t, continueStock(dir, &sim))
			h := must.Get(exportsim.New(sim))(t)
			t.Cleanup(h.Close)
			return h
		}
		first := start()
		if n := first.Stock(); n < 100 || n > 101 {
			t.Errorf("%d events at the start, want 100", n)
		}
		<-time.After(time.Minute)
		second := start()
		if a, b := first.Stock(), second.Stock(); a != b || a < 3100 {
			t.Errorf("%d events after a restart, want %d", b, a)
		}
		for _, i := range []int{0, 99, 100, 3000} {
			if !bytes.Equal(first.Event(i), second.Event(i)) || !first.VisibleAt(i).Equal(second.VisibleAt(i)) {
				t.Errorf("event %d differs after a restart", i)
			}
		}
	})
}

// The settings can be pasted into a shell.
func TestFormSettings(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"audit-list":    "EXPORT_FOLLOW=windows\nEXPORT_PATH=/audit\n",
		"default":       "EXPORT_URL=http://api/x\nEXPORT_API_KEY=\n",
		"last-item":     "EXPORT_CURSOR_IN=last-item\nEXPORT_CURSOR_FIELD=/seq\nEXPORT_CURSOR_PARAM=after_seq\n",
		"cursor-alone":  "EXPORT_CURSOR_ALONE=true\n",
		"end-of-stream": "EXPORT_MORE_FIELD='!end_of_stream'\n",
		"auth0-logs":    "EXPORT_OAUTH2_TOKEN_URL=http://api/x/oauth/token\n",
		"next-url":      "EXPORT_KEY_QUERY=api_key\nEXPORT_API_KEY=simulated\n",
	} {
		sim := exportsim.Config{BasePath: "/x"}
		must.Do(t, setForm(&sim, name))
		got := settingsOf(sim, "http://api")
		if !strings.HasPrefix(got, "EXPORT_URL=http://api/x\n") || !strings.Contains(got, want) {
			t.Errorf("%s: %s has no %s", name, got, want)
		}
		if hasKey := strings.Contains(got, "EXPORT_API_KEY"); hasKey == (name == "last-item") {
			t.Errorf("%s: names a key: %v", name, hasKey)
		}
	}
	if err := setForm(&exportsim.Config{}, "circle"); err == nil {
		t.Error("an unknown form is accepted")
	}
}

// A key reaches exportbridge as it is, from a shell and from an environment file.
func TestKeyInSettings(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"a|b", "it's", "<k>", "*", "`id`", "a b", `say "it"`, `back\slash`, "#1", "$HOME", "~"} {
		form, _ := exportsim.FormNamed("nested")
		text := settingsOf(exportsim.Config{Form: form, APIKey: key}, "http://127.0.0.1:4000")
		file := filepath.Join(t.TempDir(), "env")
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
		s, err := config.Load(config.Sources{EnvFile: file}, config.UsesExport)
		if err != nil || s.Streams[0].Export.APIKey.Reveal() != key {
			t.Errorf("%s: %v in the file\n%s", key, err, text)
		}
		said, err := exec.CommandContext(t.Context(), "sh", "-c", text+"printf %s \"$EXPORT_API_KEY\"").Output()
		if runtime.GOOS != "windows" && (err != nil || string(said) != key) {
			t.Errorf("%s: a shell reads %q, %v from\n%s", key, said, err, text)
		}
	}
}

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
	for _, text := range []string{"", "100", "mbit", "-1mbit", "xmbit", "1bit", "1tbit", "NaNmbit", "Infmbit",
		"1mbitmbit"} {
		if got, err := parseBandwidth(text); err == nil {
			t.Errorf("parseBandwidth(%q) = %v", text, got)
		}
	}
}
