package command

import (
	"regexp"
	"strings"
	"testing"
)

// A runbook's command that does not exist helps nobody.
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
