package bridge_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

func TestReadSecretFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	for content, want := range map[string]string{"k": "k", "k\r\n": "k", "k\n\n": "k", "": "", "\ufeffk\r\n": "k",
		strings.Repeat("x", bridge.MaxSecretFile): strings.Repeat("x", bridge.MaxSecretFile)} {
		must.Do(t, os.WriteFile(path, []byte(content), 0o600))
		if got, err := bridge.ReadSecretFile(path); got != want || err != nil {
			t.Errorf("%d bytes: %d bytes, %v", len(content), len(got), err)
		}
	}
	must.Do(t, os.WriteFile(path, make([]byte, bridge.MaxSecretFile+1), 0o600))
	bad := []string{path, dir, filepath.Join(dir, "none")}
	if runtime.GOOS != "windows" {
		bad = append(bad, "/dev/zero", "/dev/null")
		link := filepath.Join(dir, "link")
		must.Do(t, os.Symlink("/dev/zero", link))
		bad = append(bad, link)
	}
	for _, path := range bad {
		if got, err := bridge.ReadSecretFile(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %d bytes, %v", path, len(got), err)
		}
	}
}
