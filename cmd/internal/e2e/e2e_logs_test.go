//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/exportsim"
)

// TestE2ELogsHoldNoContent runs through much that goes wrong, at the level where
// most is said, and wants nothing of an event, its key or a cursor in the logs.
func TestE2ELogsHoldNoContent(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, v *backends, mode bridge.Mode) {
		const n, key = 400, "e2e-log-secret-key"
		s := newStage(t, v, exportsim.Config{Events: n, APIKey: key})
		s.deliver(mode)
		s.settings["EXPORT_API_KEY"], s.settings["EXPORT_PAGE_SIZE"] = key, "50"
		s.settings["LOG_LEVEL"], s.settings["LOG_FORMAT"] = "debug", "json"
		s.settings["EXPORT_POLL_INTERVAL"], s.settings["EXPORT_POLL_INTERVAL_MAX"] = "100ms", "100ms"
		s.settings["EXPORT_RETRY_MAX_INTERVAL"] = "1s"
		s.simulate("--fail", "429=5%,410=5%,500=10%,reset=5%,truncate=5%,malformed=5%,html=5%")
		run := s.run()
		s.awaitPublished(n)
		s.command(0, "cursor", "rewind", "--shift-by", "-2", "--execute")
		s.awaitPublished(n + 100)
		run.kill() // what the next one finds is spoken of too
		s.sim.stop()
		run = s.run()
		s.awaitState("backoff")
		s.simulate("--fail", "401=100%")
		s.awaitState("blocked")
		run.stop()

		secrets := map[string]string{key: "the API's key"}
		for _, cursor := range s.cursors(key) {
			secrets[cursor] = "a cursor"
		}
		for i := range n {
			var event struct{ UserID, SessionID string }
			if err := json.Unmarshal(s.truth.Event(i), &event); err != nil || event.UserID == "" || event.SessionID == "" {
				t.Fatalf("event %d has no key: %v", i, err)
			}
			secrets[event.UserID], secrets[event.SessionID] = "a record's key", "a part of an event"
		}
		lines := 0
		s.eachOutput(func(name string, content []byte) {
			lines += bytes.Count(content, []byte(`"level":"DEBUG"`))
			for secret, what := range secrets {
				if i := bytes.Index(content, []byte(secret)); i >= 0 {
					t.Errorf("%s shows %s: %s", name, what, content[max(0, i-200):min(len(content), i+60)])
				}
			}
		})
		if lines < 100 {
			t.Errorf("only %d debug messages: the level is not the one that is tested", lines)
		}
	})
}
