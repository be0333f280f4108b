//go:build unix

package main_test

import (
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"exportbridge/bridge/exportapi/exportsim"
)

// readmeCodes are the exit codes of the README's commands that are about
// something which this test's stream does not have.
var readmeCodes = map[string]int{
	"exportbridge cursor rewind --shift-by -100":                                                        1, // not so many pages
	`exportbridge cursor rewind --to-datetime -2h --reason "bad deploy" --execute`:                      1, // not so old
	"exportbridge backfill --from 2026-01-01T00:00:00Z --to 2026-11-01T00:00:00Z --windows 8 --execute": 1, // the stream's own
	"exportbridge backfill --resume k3xq7a --execute":                                                   1,
	"exportbridge backfill cancel k3xq7a --execute":                                                     1,
	"exportbridge dlq show 0:17":                                                                        1,
	"exportbridge verify --from -2d --to -1d --repair --execute":                                        2, // the stream is not so far
	"exportbridge dlq retry 0:17 2:4":                                                                   1,
}

// readmeFiles are the files that the README's commands write and read.
var readmeFiles = []string{"events.cursor", "exportbridge.rules.yml", "exportbridge.json"}

// TestReadmeCommands gives the commands of the README, in their order, to a
// stream that runs.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: 300, Start: time.Now().Add(-36 * time.Hour)})
	s.settings["EXPORT_PAGE_SIZE"] = "100"
	s.simulate()
	given := 0
	for _, block := range readmeBlocks(t, "sh") {
		for line := range strings.Lines(block) {
			line, _, _ = strings.Cut(line, "   #")
			line, _, _ = strings.Cut(strings.TrimSpace(line), "  #")
			args, ok := strings.CutPrefix(line, "exportbridge ")
			if !ok || strings.HasPrefix(args, "bench") { // which takes minutes, and has tests of its own
				continue
			}
			given++
			s.give(strings.TrimSpace(line), words(args))
		}
	}
	if given < 20 {
		t.Errorf("only %d commands are found", given)
	}
}

// words splits a command line at its spaces, but for what is quoted.
func words(line string) []string {
	var all []string
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			all = append(all, part)
			continue
		}
		all = append(all, strings.Fields(part)...)
	}
	return all
}

// give runs one command. Those that do not end go on beside the others, or are
// interrupted when they have said something.
func (s *stage) give(line string, args []string) {
	s.t.Helper()
	for i, arg := range args {
		if slices.Contains(readmeFiles, arg) {
			args[i] = filepath.Join(s.dir, arg)
		}
	}
	switch {
	case args[0] == "run":
		run := s.run()
		eventually(s.t, stepTimeout, "the stock", func() bool { return run.published() >= s.config.Events })
		return
	case len(args) > 1 && args[1] == "--watch":
		p := s.start(args...)
		eventually(s.t, stepTimeout, "a status", func() bool { return len(p.stdout()) > 0 })
		p.signal(syscall.SIGINT)
		p.wait(stepTimeout)
		return
	}
	p := s.start(args...)
	if code, want := p.wait(time.Minute), readmeCodes[line]; code != want {
		s.t.Errorf("%s: exit code %d, want %d\n%s", line, code, want, tail(p.stderr()))
	}
}
