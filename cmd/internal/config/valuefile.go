package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"exportbridge/bridge"
)

// maxValueFile bounds a file with a value and an environment file, in bytes.
const maxValueFile = bridge.MaxSecretFile

// pipeTimeout bounds the wait for the value from a pipe. A pipe that no process has opened
// is read again every pipePoll.
const (
	pipeTimeout = 10 * time.Second
	pipePoll    = 20 * time.Millisecond
)

// valueFiles reads each file once, because several streams may share a file, and a pipe
// can be read only once.
type valueFiles struct {
	known    map[string]func() (string, error) // by their paths
	profiles map[string]profile                // by their paths
	pipes    *Pipes
}

func newValueFiles() *valueFiles {
	return &valueFiles{known: make(map[string]func() (string, error)), profiles: make(map[string]profile)}
}

// Pipes keeps the contents of pipes, which can be read only once. The zero value is ready
// for use. Pipes is not for concurrent use.
type Pipes struct{ known map[string]string }

// read reads a file of at most limit bytes. For a pipe it returns what the first call has read.
func (p *Pipes) read(path string, limit int64) (string, error) {
	if p == nil {
		return readFile(path, limit)
	}
	if text, ok := p.known[path]; ok {
		return text, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	text, err := readFile(path, limit)
	if err == nil && !info.Mode().IsRegular() {
		if p.known == nil {
			p.known = make(map[string]string)
		}
		p.known[path] = text
	}
	return text, err
}

func (v *valueFiles) read(path string) (string, error) {
	if v.known[path] == nil {
		v.known[path] = sync.OnceValues(func() (string, error) { return v.readValue(path) })
	}
	return v.known[path]()
}

// readValue reads the value in a file, without the byte order mark of some editors and
// trailing line breaks, as bridge.ReadSecretFile reads it again.
func (v *valueFiles) readValue(path string) (string, error) {
	content, err := v.pipes.read(path, maxValueFile)
	if err != nil {
		return "", err
	}
	text := strings.TrimRight(strings.TrimPrefix(content, "\ufeff"), "\r\n")
	if text == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return text, nil
}

// readFile reads a small file, a link to one (as Kubernetes mounts secrets), or a pipe, such
// as /dev/stdin and the <(...) of a shell. A pipe without a writer fails after pipeTimeout.
// Directories, devices and sockets fail at once, because they could block or never end.
func readFile(path string, limit int64) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	pipe := info.Mode()&os.ModeNamedPipe != 0
	if !info.Mode().IsRegular() && !pipe {
		return "", fmt.Errorf("%s is neither a file nor a pipe", path)
	}
	// Without O_NONBLOCK, opening a pipe blocks until a process writes to it.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	var content []byte
	if pipe {
		content, err = readPipe(file, limit)
	} else {
		content, err = io.ReadAll(io.LimitReader(file, limit+1))
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "", fmt.Errorf("%s is a pipe that was not written and closed within %s", path, pipeTimeout)
	case err != nil:
		return "", err
	case int64(len(content)) > limit:
		return "", fmt.Errorf("%s is larger than %s", path, formatBytes(limit))
	}
	return string(content), nil
}

// readPipe reads a pipe to its end. The pipe reads as empty until a process has opened it
// for writing.
func readPipe(pipe *os.File, limit int64) ([]byte, error) {
	deadline := time.Now().Add(pipeTimeout)
	_ = pipe.SetReadDeadline(deadline) // not supported by all systems
	poll := time.NewTicker(pipePoll)
	defer poll.Stop()
	for {
		content, err := io.ReadAll(io.LimitReader(pipe, limit+1))
		if err != nil || len(content) > 0 {
			return content, err
		}
		if time.Now().After(deadline) {
			return nil, os.ErrDeadlineExceeded
		}
		<-poll.C
	}
}

// rereadable returns the path of a value's file if that is regular, else "". Only a regular
// file can be read again when the value is rotated.
func (p place) rereadable() string {
	if info, err := os.Stat(p.path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return p.path
}

// tlsFiles returns the files of a CA, a client certificate and its key, "" for each that
// cannot be read again.
func tlsFiles(places map[string]place, prefix string) (ca, cert, key string) {
	return places[prefix+"_CA"].rereadable(), places[prefix+"_CERT"].rereadable(), places[prefix+"_KEY"].rereadable()
}

// readableByAll reports whether every user of the machine can read a file. It returns false
// for secrets that a container engine mounts, which only processes of the container see:
// those of Kubernetes, which are links into ..data, and those in /run/secrets. Their
// default mode is 0444 or 0644.
func readableByAll(path string) bool {
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS == "windows" || !info.Mode().IsRegular() || info.Mode().Perm()&0o004 == 0 {
		return false
	}
	dir := filepath.Dir(path)
	_, err = os.Lstat(filepath.Join(dir, "..data"))
	return err != nil && dir != "/run/secrets" && dir != "/var/run/secrets"
}

// checkReadable returns a warning for each file with a secret that every user can read.
func checkReadable(rows []Setting) []string {
	var warnings []string
	seen := make(map[string]bool)
	for _, row := range rows {
		if row.Secret && row.Origin == FromFile && !seen[row.From] && readableByAll(row.From) {
			seen[row.From] = true
			warnings = append(warnings, fmt.Sprintf("%s%s: every user can read %s; run chmod 600 %[3]s",
				row.Variable, FileSuffix, row.From))
		}
	}
	return warnings
}
