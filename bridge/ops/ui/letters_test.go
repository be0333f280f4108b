//go:build browser

package ui_test

import (
	"testing"
	"time"
)

// TestLetterCommands: a reason, which any producer of the topic can write, is one word of the
// commands to copy.
func TestLetterCommands(t *testing.T) {
	f := newFakeBridge(t, running("events"))
	f.letters = []object{{"partition": 0, "offset": 2, "time": time.Now(), "reason": "x; reboot", "message": "why",
		"cursor_hash": "77b0c1d2e3f4", "index": 0, "bytes": 7}}
	p := open(t, f, 1280)
	p.click(`#letters-rows [data-key="fold 0:2"]`)
	p.sees("#letters-rows", "exportbridge dlq list --reason 'x; reboot' --stream events")
	p.sees("#letters-rows", "exportbridge dlq retry --all --reason 'x; reboot' --stream events")
}
