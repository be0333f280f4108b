package dev

import (
	"os"
	"path/filepath"
	"testing"

	"exportbridge/bridge/bridgetest/must"
)

// TestProgramName: without an installation, the demo suggests commands that run the source.
func TestProgramName(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("PATH", "")
	if got := programName(); got != "exportbridge" {
		t.Errorf("elsewhere: %q", got)
	}
	must.Do(t, os.MkdirAll("cmd/exportbridge", 0o700))
	must.Do(t, os.WriteFile(filepath.FromSlash("cmd/exportbridge/main.go"), nil, 0o600))
	if got := programName(); got != "go run -pgo=off ./cmd/exportbridge" {
		t.Errorf("in the source: %q", got)
	}
}
