package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cmd/internal/config"
)

// TestWatch: a file that changes is loaded once, and not while it is being written.
func TestWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, list := filepath.Join(dir, "streams.yaml"), filepath.Join(dir, "tenants.txt")
	write := func(path, text string) {
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	}
	w := watch{contents: map[string]string{path: "a", list: "b"}}
	write(path, "a")
	write(list, "b")
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"as it was", func() {}, false},
		{"as it was, twice", func() {}, false},
		{"half of a list", func() { write(list, "b\nc") }, false},
		{"the other half", func() { write(list, "b\nc\nd") }, false},
		{"settled", func() {}, true},
		{"tried", func() { w.tried(nil, readAll(w.contents)) }, false},
		{"not tried again", func() {}, false},
		{"away for a moment", func() { _ = os.Remove(path) }, false},
		{"there again", func() { write(path, "a") }, false},
		{"still there", func() {}, false},
		{"away", func() { _ = os.Remove(path) }, false},
		{"gone", func() {}, true},
	} {
		if step.do(); w.changed() != step.want {
			t.Errorf("%s: not %t", step.name, step.want)
		}
	}
}

// TestReloadRun: settings are loaded on request at once, and after a change once.
func TestReloadRun(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "streams.yaml")
	synctest.Test(t, func(t *testing.T) {
		loads, now := 0, make(chan os.Signal)
		failed := errors.New("no file")
		r := &Reload{Now: now, Load: func() (*config.Settings, error) { loads++; return nil, failed }}
		to := make(chan loaded, 1)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.run(ctx, watch{contents: map[string]string{path: "a"}}, to) }()
		<-time.After(time.Minute) // the file is not there
		if l := <-to; !errors.Is(l.err, failed) || loads != 1 {
			t.Errorf("loaded %d times, %v", loads, l.err)
		}
		now <- nil
		if <-to; loads != 2 {
			t.Errorf("loaded %d times", loads)
		}
		stop()
		<-ended
	})
}

// TestReloadHalfWritten: a file that is written to its end while the settings are loaded is
// loaded again.
func TestReloadHalfWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "streams.yaml")
	must.Do(t, os.WriteFile(path, []byte("half"), 0o600))
	synctest.Test(t, func(t *testing.T) {
		now, to := make(chan os.Signal), make(chan loaded)
		r := &Reload{Now: now, Load: func() (*config.Settings, error) {
			read := must.Get(os.ReadFile(path))(t)
			must.Do(t, os.WriteFile(path, []byte("whole"), 0o600))
			if string(read) == "half" {
				return nil, errors.New("half a file")
			}
			return new(config.Settings), nil
		}}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.run(ctx, watch{contents: map[string]string{path: "old"}}, to) }()
		now <- nil
		if l := <-to; l.err == nil {
			t.Error("half a file was loaded")
		}
		select {
		case l := <-to:
			must.Do(t, l.err)
		case <-time.After(time.Minute):
			t.Error("the whole file was not loaded")
		}
		stop()
		<-ended
	})
}
