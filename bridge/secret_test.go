package bridge_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"exportbridge/bridge"
)

func TestReadSecretFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	for content, want := range map[string]string{"k": "k", "k\r\n": "k", "k\n\n": "k", "": "", "\ufeffk\r\n": "k",
		strings.Repeat("x", bridge.MaxSecretFile): strings.Repeat("x", bridge.MaxSecretFile)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := bridge.ReadSecretFile(path); got != want || err != nil {
			t.Errorf("%d bytes: %d bytes, %v", len(content), len(got), err)
		}
	}
	if err := os.WriteFile(path, make([]byte, bridge.MaxSecretFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := []string{path, dir, filepath.Join(dir, "none")}
	if runtime.GOOS != "windows" {
		bad = append(bad, "/dev/zero", "/dev/null")
		link := filepath.Join(dir, "link")
		if err := os.Symlink("/dev/zero", link); err != nil {
			t.Fatal(err)
		}
		bad = append(bad, link)
	}
	for _, path := range bad {
		if got, err := bridge.ReadSecretFile(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %d bytes, %v", path, len(got), err)
		}
	}
}
