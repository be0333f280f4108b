//go:build unix

package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
)

func TestReadValue(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ content, want string }{{"a", "a"}, {"a\n", "a"}, {"a\r\n", "a"}, {"a\r\n\n", "a"},
		{" a ", " a "}, {"a\nb\n", "a\nb"}, {"\ufeffa\r\n", "a"}} {
		if got, err := new(valueFiles).readValue(writeFile(t, "v", test.content)); got != test.want || err != nil {
			t.Errorf("readValue of %q = %q, %v, want %q", test.content, got, err, test.want)
		}
	}
	if _, err := new(valueFiles).readValue(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	for _, content := range []string{"", "\n", strings.Repeat("x", maxValueFile+1)} {
		if _, err := new(valueFiles).readValue(writeFile(t, "v", content)); err == nil {
			t.Errorf("a file of %d bytes is accepted", len(content))
		}
	}
	if _, err := new(valueFiles).readValue(t.TempDir()); err == nil {
		t.Error("a directory is accepted")
	}
}

// fifo makes a named pipe, and writes content to it if that is not empty.
func fifo(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	must.Do(t, syscall.Mkfifo(path, 0o600))
	if content == "" {
		return path
	}
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(path, []byte(content), 0o600) }()
	t.Cleanup(func() {
		if err := <-written; err != nil && !errors.Is(err, syscall.EPIPE) {
			t.Error(err)
		}
	})
	return path
}

// A pipe is read once, to its end, and neither an endless nor an idle one blocks.
func TestPipes(t *testing.T) {
	t.Parallel()
	path := fifo(t, "EXPORT_PAGE_SIZE=7\n")
	if vars, err := new(Pipes).readEnvFile(path); err != nil || vars["EXPORT_PAGE_SIZE"] != "7" {
		t.Errorf("environment file: %v, %v", vars, err)
	}
	if _, err := new(valueFiles).readValue(fifo(t, strings.Repeat("x", maxValueFile+2))); err == nil ||
		!strings.Contains(err.Error(), "larger than") {
		t.Errorf("a long pipe: %v", err)
	}
	if _, err := new(valueFiles).readValue(fifo(t, "")); err == nil || !strings.Contains(err.Error(),
		"is a pipe that was not written") {
		t.Errorf("a pipe without a writer: %v", err)
	}
	l := &loader{src: newSources(nil, nil, []string{"EXPORT_API_KEY_FILE=" + fifo(t, "sesame\n"),
		"BRIDGE_STREAMS=events,users"}, nil)}
	s := must.Get(l.load(UsesAll, time.Now()))(t)
	for _, st := range s.Streams {
		if st.Export.APIKey.Reveal() != "sesame" || st.Export.APIKeyFile != "" {
			t.Errorf("stream %s has the key %q, to be read again from %q", st.Name, st.Export.APIKey.Reveal(),
				st.Export.APIKeyFile)
		}
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	_, _ = writer.WriteString("from a shell\n")
	writer.Close()
	if got, err := new(valueFiles).readValue(fmt.Sprintf("/dev/fd/%d", reader.Fd())); got != "from a shell" || err != nil {
		t.Errorf("<(...): %q, %v", got, err)
	}
}

func TestDevicesAreRejected(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/dev/zero", "/dev/null", t.TempDir()} {
		if _, err := new(valueFiles).readValue(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := new(Pipes).readEnvFile(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("environment file %s: %v", path, err)
		}
	}
}

// A secret that every user can read is reported once, unless a container engine
// mounted it.
func TestReadableSecrets(t *testing.T) {
	t.Parallel()
	file := func(mode os.FileMode) string {
		path := writeFile(t, "key", "sesame-sesame-sesame")
		must.Do(t, os.Chmod(path, mode))
		return path
	}
	mounted := file(0o644)
	must.Do(t, os.Symlink(".", filepath.Join(filepath.Dir(mounted), "..data")))
	for _, test := range []struct {
		name, path string
		warnings   int
	}{{"private", file(0o600), 0}, {"of a group", file(0o640), 0}, {"readable", file(0o644), 1},
		{"Kubernetes", mounted, 0}} {
		l := &loader{src: newSources(nil, nil, []string{"EXPORT_API_KEY_FILE=" + test.path, "HTTP_ADMIN_TOKEN_FILE=" +
			test.path, "BRIDGE_STREAMS=events,users"}, nil)}
		s := must.Get(l.load(UsesAll, time.Now()))(t)
		if len(s.Warnings) != test.warnings || test.warnings == 1 && !strings.Contains(s.Warnings[0],
			"chmod 600 "+test.path) {
			t.Errorf("%s: %q", test.name, s.Warnings)
		}
	}
	l := &loader{src: newSources(nil, nil, []string{"EXPORT_API_KEY=k", "KAFKA_RACK_FILE=" + file(0o644)}, nil)}
	if s, err := l.load(UsesAll, time.Now()); err != nil || len(s.Warnings) > 0 {
		t.Errorf("what is no secret: %v %q", err, s.Warnings)
	}
}
