package command

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/process"
)

// With several streams, advice adds --stream to every command that requires it, and to no
// other command.
func TestNameStream(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, cmd := range everyCommand(Program.Root()) {
		want := "run " + cmd.CommandPath()
		if f := cmd.Flags().Lookup("stream"); f != nil && strings.Contains(f.Usage, "required") {
			seen++
			want += " --stream users"
		}
		want += " --json; and so on"
		text := "run " + cmd.CommandPath() + " --json; and so on"
		if got := process.NameStream(text, "users"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := process.NameStream(want, "users"); got != want {
			t.Errorf("named again: %q, want %q", got, want)
		}
	}
	if seen < 15 {
		t.Errorf("%d commands require --stream: the test looks at too few", seen)
	}
}

// With several streams, the commands that a hint names work as printed.
func TestAdviceWithSeveralStreams(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	maps.Copy(w.env, map[string]string{
		"BRIDGE_STREAMS": "events,users", "STREAM_USERS_KAFKA_TOPIC": "export.events", "KAFKA_CREATE_TOPICS": "true",
	})
	w.runOnce(t)
	needs := regexp.MustCompile(`exportbridge (?:cursor|backfill|dlq|replay|pause|resume|tail|verify)\b[^;:,]*`)
	for _, args := range []string{
		"pause --stream users", "status", "status --json", "cursor show --stream users",
		"cursor reset --to-current --stream users",
		"cursor rewind --shift-by -900 --stream users", "cursor rewind --to-entry 7.7 --stream users",
		"dlq show 0:17 --stream users",
		"dlq show 1 --stream users", "backfill cancel x --stream users", "backfill --resume aaaaaa --stream users",
	} {
		got := runProgram(t, w.env, strings.Fields(args)...)
		for _, advised := range needs.FindAllString(got.stdout+got.stderr, -1) {
			if !strings.Contains(advised, " --stream users") {
				t.Errorf("%s advises %q", args, advised)
			}
		}
	}
	for args, want := range map[string]string{
		"pause --stream users":                     "; to go on: exportbridge resume --stream users\n",
		"status":                                   "; to go on: exportbridge resume --stream users\n",
		"cursor show --stream users":               "; to go on: exportbridge resume --stream users\n",
		"cursor reset --to-current --stream users": "exportbridge verify --stream users --repair --from TIME",
		"cursor rewind --to-entry 7.7 --stream users": "exportbridge cursor reset --stream users --to-datetime TIME " +
			"--execute\n",
		"dlq show 1 --stream users":                    "Try: exportbridge dlq list --stream users\n",
		"backfill --resume aaaaaa --stream users":      "Try: exportbridge backfill list --stream users\n",
		"cursor rewind --to-entry 7 --execute":         "Try: exportbridge cursor history\n", // before the settings are read
		"cursor rewind --to-entry 7 --stream sessions": "Try: exportbridge cursor history --stream sessions\n",
	} {
		if got := runProgram(t, w.env, strings.Fields(args)...); !strings.Contains(got.stdout+got.stderr, want) {
			t.Errorf("%s: %s%s, want %q", args, got.stdout, got.stderr, want)
		}
	}
}

// Advice repeats --env-file: without the file, the advised command would have other
// settings.
func TestAdviceWithEnvFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var lines strings.Builder
	for name, value := range w.env {
		lines.WriteString(name + "=" + value + "\n")
	}
	plain, spaced := filepath.Join(t.TempDir(), "env"), filepath.Join(t.TempDir(), "my env")
	for _, name := range []string{plain, spaced} {
		must.Do(t, os.WriteFile(name, []byte(lines.String()), 0o600))
	}
	for _, test := range []struct {
		args, file, want string
	}{
		{"cursor rewind --to-entry 7.7", plain, "exportbridge cursor history --env-file " + plain +
			", or run exportbridge cursor reset --env-file " + plain + " --to-datetime TIME"},
		{"cursor show", spaced, "Try: exportbridge run --env-file '" + spaced + "'\n"},
		{"topics plan --kafka-topic other", plain, "Try: exportbridge topics create --env-file " + plain + " --execute\n"},
		{"check --only kafka --kafka-topic other", plain, "exportbridge topics create --env-file " + plain +
			" --execute, or set"},
		{"tail -n 0", plain, "Try: exportbridge tail --help\n"},
	} {
		got := runProgram(t, nil, append(strings.Fields(test.args), "--env-file", test.file)...)
		if !strings.Contains(got.stdout+got.stderr, test.want) {
			t.Errorf("%s: %s%s, want %q", test.args, got.stdout, got.stderr, test.want)
		}
	}
}

// Advice adds --env-file to every command that takes settings, and to no other command.
func TestAdviceOfEveryCommand(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, cmd := range everyCommand(Program.Root()) {
		if cmd.Flags().Lookup("env-file") == nil {
			continue
		}
		seen++
		if got := cli.Completed(cmd.CommandPath()+" --json", "f"); got != cmd.CommandPath()+" --env-file f --json" {
			t.Errorf("%q", got)
		}
	}
	if seen < 20 {
		t.Errorf("%d commands take settings: the test looks at too few", seen)
	}
}
