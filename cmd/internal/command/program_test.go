package command

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cmd/internal/cli"
)

// Every alert has a runbook, and the commands of a runbook exist.
func TestRunbooksNameCommands(t *testing.T) {
	t.Parallel()
	rules := runProgram(t, nil, "alerts").stdout
	runbooks := regexp.MustCompile(`runbook: "(.*)"`).FindAllStringSubmatch(rules, -1)
	if n := strings.Count(rules, "- alert: "); n == 0 || len(runbooks) != n {
		t.Fatalf("%d runbooks for %d alerts", len(runbooks), n)
	}
	for _, runbook := range runbooks {
		commands := regexp.MustCompile("`exportbridge ([^`]*)`").FindAllStringSubmatch(runbook[1], -1)
		if len(commands) == 0 {
			t.Errorf("no command in %s", runbook[1])
		}
		for _, named := range commands {
			args := strings.Fields(strings.ReplaceAll(named[1], "{{ $labels.stream }}", "events"))
			cmd, rest, err := Program.Root().Find(args)
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err == nil {
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
			if err != nil {
				t.Errorf("exportbridge %s: %v", named[1], err)
			}
		}
	}
}

// The error of a wrong flag value is in this program's words, not in those of Go's parsers.
// Its hint is a call that works, or the help.
func TestWrongFlagValues(t *testing.T) {
	t.Parallel()
	internal := regexp.MustCompile(`strconv|Parse(Int|Bool|Float)|invalid syntax|time:|pflag|invalid argument|parsing "`)
	typed, seen := 0, make(map[string]bool)
	for _, cmd := range everyCommand(Program.Root()) {
		_, path, _ := strings.Cut(cmd.CommandPath(), " ")
		cmd.InitDefaultHelpFlag()
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			kind := f.Value.Type()
			if kind == "string" || kind == "stringSlice" || kind == "REASON" || f.Hidden || seen[f.Name+kind+f.Usage] {
				return
			}
			typed++
			seen[f.Name+kind+f.Usage] = true
			for _, value := range []string{"x", "10", "99999999999999999999"} {
				flag := "--" + f.Name + "=" + value
				if cmd.ParseFlags([]string{flag}) == nil {
					continue // it is right
				}
				wrong := append(strings.Fields(path), flag)
				got := runProgram(t, nil, wrong...)
				if got.code != cli.ExitUsage || internal.MatchString(got.stderr) || !strings.Contains(got.stderr, value) ||
					!strings.Contains(got.stderr, "Try: ") {
					t.Errorf("%v: %d %s", wrong, got.code, got.stderr)
				}
			}
		})
	}
	if typed < 30 {
		t.Errorf("%d flags have a type: the test looks at too few", typed)
	}
}

// The hint about a wrong flag names the right flag.
func TestFlagHints(t *testing.T) {
	t.Parallel()
	for args, hint := range map[string]string{
		"pause --duration 10":        "exportbridge pause --duration 10m",
		"check --timeout 5":          "exportbridge check --timeout 5m",
		"dlq list --limit x":         "exportbridge dlq list --limit 50",
		"tail -n x":                  "exportbridge tail -n 10",
		"run --max-events x":         "exportbridge run --help",
		"tail --from -10m":           "exportbridge tail --offset @TIME",
		"tail --since -10m":          "exportbridge tail --offset @TIME",
		"dlq list --from -10m":       "exportbridge dlq list --since TIME",
		"verify --since -2d":         "exportbridge verify --from TIME",
		"cursor reset --execute=yes": "exportbridge cursor reset --help",
	} {
		got := runProgram(t, nil, strings.Fields(args)...)
		if got.code != cli.ExitUsage || !strings.HasSuffix(got.stderr, "\nTry: "+hint+"\n") {
			t.Errorf("%s: %d %s, want the hint %s", args, got.code, got.stderr, hint)
		}
	}
}

// The file that config env prints has the defaults of the profile, wherever the profile is
// named. Unless it is edited, the file changes nothing.
func TestConfigEnvOfProfile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "env")
	must.Do(t, os.WriteFile(file, []byte("EXPORT_PROFILE=generic\n"), 0o600))
	want := runProgram(t, map[string]string{"EXPORT_PROFILE": "generic"}, "config", "env")
	for _, line := range []string{
		"EXPORT_PROFILE=generic", "#EXPORT_KEY_HEADER=Authorization", "#EXPORT_ITEM_TIME=/timestamp", "#KAFKA_KEY=none",
		"# To be set for this profile:\n#EXPORT_URL=https://api.example.com/v1",
	} {
		if !strings.Contains(want.stdout, "\n"+line+"\n") {
			t.Errorf("%s is not in\n%s", line, want.stdout)
		}
	}
	for _, args := range []string{"--export-profile generic", "--env-file " + file} {
		if got := runProgram(t, nil, strings.Fields("config env "+args)...); got != want {
			t.Errorf("%s: %+v", args, got)
		}
	}
	if got := runProgram(t, nil, "config", "env"); !strings.Contains(got.stdout, "\n#EXPORT_PROFILE=croct\n") ||
		got.stdout == want.stdout {
		t.Errorf("without a profile: %+v", got)
	}
	if got := runProgram(t, map[string]string{"EXPORT_PROFILE": "x"}, "config", "env"); got.code != cli.ExitUsage ||
		!strings.Contains(got.stderr, "EXPORT_PROFILE") {
		t.Errorf("an unknown profile: %+v", got)
	}
	must.Do(t, os.WriteFile(file, []byte(want.stdout), 0o600))
	env := map[string]string{"EXPORT_API_KEY": "key", "EXPORT_PROFILE": "generic"}
	plain := runProgram(t, env, "config", "show", "--wide")
	if got := runProgram(t, env, "config", "show", "--wide", "--env-file", file); got != plain {
		t.Errorf("the file as it is changes the settings:\n%+v, want\n%+v", got, plain)
	}
}

// Every command rejects a time in the future where it must be in the past.
func TestFutureTimes(t *testing.T) {
	t.Parallel()
	const later = "2999-01-01"
	for _, args := range []string{
		"cursor reset --to-datetime " + later, "cursor rewind --to-datetime " + later, "cursor history --since " + later,
		"dlq list --since " + later,
		"tail -o @" + later, "verify --from -1d --to " + later, "verify --to now --from " + later,
		"backfill --from -1d --to " + later, "replay --from -1d --to " + later,
	} {
		got := runProgram(t, nil, strings.Fields(args)...)
		if got.code != cli.ExitUsage || !strings.Contains(got.stderr, later+" is in the future\nTry: ") {
			t.Errorf("%s: %+v", args, got)
		}
	}
}
