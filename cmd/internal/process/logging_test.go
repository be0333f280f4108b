package process

import (
	"bytes"
	"encoding/json"
	"log"
	"strings"
	"testing"

	"exportbridge/cmd/internal/config"
)

func TestNewLogger(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		format, level  string
		isJSON, logged bool
	}{
		{"auto", "info", true, true}, // a buffer is no terminal
		{"json", "debug", true, true},
		{"text", "info", false, true},
		{"json", "warn", true, false},
	} {
		var b bytes.Buffer
		NewLogger(&b, &config.Process{LogFormat: test.format, LogLevel: test.level}, nil).Info("hello", logStream, "events")
		if logged := b.Len() > 0; logged != test.logged {
			t.Errorf("%+v: printed %q", test, b.String())
			continue
		}
		if test.logged && json.Valid(b.Bytes()) != test.isJSON {
			t.Errorf("%+v: printed %q", test, b.String())
		}
		if strings.Contains(b.String(), "\x1b") {
			t.Errorf("%+v: colours where no terminal is", test)
		}
	}
}

func TestNoColor(t *testing.T) {
	t.Parallel()
	for env, want := range map[string]bool{"NO_COLOR=1": true, "NO_COLOR=": false, "TERM=dumb": true,
		"TERM=xterm": false} {
		if got := NoColor([]string{env}); got != want {
			t.Errorf("noColor(%s) = %v", env, got)
		}
	}
}

// What net/http says of a server that sends more than its answer quotes that.
func TestLibraryLog(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	to := NewLogger(&b, &config.Process{LogFormat: "json", LogLevel: "info"}, nil)
	log.New(libraryLog{to}, "", 0).Printf("Unsolicited response starting with %q; err=%v", `{"userId":"secret"}`, nil)
	said := b.String()
	if !strings.Contains(said, `"level":"WARN"`) || !strings.Contains(said,
		"Unsolicited response starting with ...") || strings.Contains(said, "secret") || !json.Valid(b.Bytes()) {
		t.Errorf("it says %s", said)
	}
}
