package door_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/ops/door"
)

// readRecords reads an audit log: each line is a record.
func readRecords(t *testing.T, path string) (all []door.Record) {
	t.Helper()
	text := must.Get(os.ReadFile(path))(t)
	for line := range strings.Lines(string(text)) {
		var r door.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil || !strings.HasSuffix(line, "\n") {
			t.Fatalf("line %q: %v", line, err)
		}
		all = append(all, r)
	}
	return all
}

// A file that is renamed by a rotation, or removed, is created again. Lines are appended to
// a file that exists.
func TestAuditFollowsItsPath(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	for range 2 {
		a := must.Get(door.OpenAudit(path))(t)
		must.Do(t, a.Write(door.Record{Outcome: door.Denied, Error: "a\nb\u2028\x1b[2J"}))
		must.Do(t, a.Close())
	}
	a := must.Get(door.OpenAudit(path))(t)
	defer a.Close()
	for _, change := range []func() error{
		func() error { return os.Rename(path, path+".1") },
		func() error { return os.Remove(path) },
		func() error { return os.Truncate(path, 0) },
	} {
		must.Do(t, change())
		must.Do(t, a.Write(door.Record{Who: "alice"}))
		if got := readRecords(t, path); len(got) != 1 || got[0].Who != "alice" {
			t.Errorf("records %+v", got)
		}
	}
	if got := readRecords(t, path+".1"); len(got) != 2 {
		t.Errorf("%d records before the rotation, want 2", len(got))
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestAuditFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := door.OpenAudit(dir); err == nil || !strings.Contains(err.Error(), "HTTP_AUDIT_LOG") {
		t.Errorf("a folder: %v", err)
	}
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no full device")
	}
	path := filepath.Join(dir, "audit.jsonl")
	must.Do(t, os.Symlink("/dev/full", path))
	a := must.Get(door.OpenAudit(path))(t)
	defer a.Close()
	if err := a.Write(door.Record{}); err == nil {
		t.Error("a full disk is no error")
	}
	must.Do(t, os.Remove(path))
	if err := a.Write(door.Record{Who: "alice"}); err != nil { // to a new file, with no line to end
		t.Error(err)
	}
	if got := readRecords(t, path); len(got) != 1 {
		t.Errorf("records %+v", got)
	}
	var none *door.Audit
	if err := none.Write(door.Record{}); err != nil {
		t.Error(err)
	}
}

// After a restart, a torn last line ends before the next record.
func TestTornLineOfAnEarlierProcess(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"who":"al`:            "{\"who\":\"al\n{",
		"{\"who\":\"alice\"}\n": "{\"who\":\"alice\"}\n{",
		"":                      "{",
	} {
		path := filepath.Join(t.TempDir(), "audit.jsonl")
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		a := must.Get(door.OpenAudit(path))(t)
		must.Do(t, a.Write(door.Record{}))
		_ = a.Close() // each line is written
		got, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(got), want) || strings.Count(string(got), "{") != strings.Count(want, "{") {
			t.Errorf("%q became %q, %v", text, got, err)
		}
	}
}
