package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command"
	"exportbridge/cmd/internal/dev"
)

func TestMain(m *testing.M) {
	testscript.Main(servers.Leakless{M: m, AtOnce: 8, Ends: []func() error{shared.Close}}, map[string]func(){
		"exportbridge":     command.Program.Execute,
		"exportbridge-dev": dev.Program.Execute,
		"deaf":             deaf.Execute,
	})
}

// shared are the servers that tests share.
var shared closers

// closers are closed together. They may be added concurrently.
type closers struct {
	mu  sync.Mutex // guards all
	all []io.Closer
}

func (c *closers) add(one io.Closer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, one)
}

func (c *closers) Close() error {
	var errs []error
	for _, each := range c.all {
		errs = append(errs, each.Close())
	}
	return errors.Join(errs...)
}

// deaf is a program that does not end when it is told to.
var deaf = cli.Program{Name: "deaf", Commands: func(a *cli.App) []*cobra.Command {
	return []*cobra.Command{{Use: "listen", RunE: func(cmd *cobra.Command, _ []string) error {
		fmt.Println("listening")
		<-cmd.Context().Done()
		fmt.Println("interrupted")
		select {}
	}}}
}}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"rc": rc, "until": until},
	})
}

// rc runs a program that must end with the given exit code:
//
//	rc 2 exportbridge config show
func rc(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: rc code program [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("run %s: %v", args[1], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// until runs a program of this test binary until a line of its stderr matches, and interrupts
// it. The program must end without an error:
//
//	until 'session started' exportbridge-dev demo
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until pattern program [args...]")
	}
	path, err := os.Executable()
	ts.Check(err)
	pattern, err := regexp.Compile(args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path)
	cmd.Args, cmd.Dir, cmd.Stdout = args[1:], ts.MkAbs("."), ts.Stdout()
	pipe, err := cmd.StderrPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	found := false
	for lines := bufio.NewScanner(io.TeeReader(pipe, ts.Stderr())); lines.Scan(); {
		if !found && pattern.Match(lines.Bytes()) {
			found = true
			ts.Check(cmd.Process.Signal(os.Interrupt))
		}
	}
	ts.Check(cmd.Wait())
	if !found {
		ts.Fatalf("no line matches %s", pattern)
	}
}
