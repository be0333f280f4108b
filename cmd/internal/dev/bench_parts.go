package dev

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"exportbridge/cmd/internal/config"
)

// processUse is what a process has used from its start to its end.
type processUse struct {
	Name       string  `json:"name"`
	CPUSeconds float64 `json:"cpu_seconds"`
}

// parts starts processes of this same program.
type parts struct {
	environ []string
}

// withoutSettings leaves out every variable that could be a setting of ours: a
// bench measures what it says it measures.
func withoutSettings(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), config.IsOurs)
}

// command makes the command for one process, which is killed a while after ctx
// ended and it was asked to go.
func (p *parts) command(ctx context.Context, env, args []string) (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = slices.Concat(p.environ, env)
	cmd.WaitDelay = 5 * time.Second
	return cmd, nil
}

// output is what a process that has ended leaves.
type output struct {
	stdout, stderr []byte
	use            processUse
}

// run runs a process to its end. It is killed when ctx ends.
func (p *parts) run(ctx context.Context, name string, env []string, args ...string) (output, error) {
	cmd, err := p.command(ctx, env, args)
	if err != nil {
		return output{}, err
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return output{}, fmt.Errorf("run %s: %w%s", name, err, lastWords(stderr.Bytes()))
	}
	return output{stdout.Bytes(), stderr.Bytes(), useOf(name, cmd.ProcessState)}, nil
}

// lastWords is what a process said about its end: its error, or else its last
// line.
func lastWords(said []byte) string {
	last := ""
	for line := range strings.Lines(string(said)) {
		if text, found := strings.CutPrefix(line, "error: "); found {
			return ": " + strings.TrimSpace(text)
		}
		if strings.TrimSpace(line) != "" {
			last = ": " + strings.TrimSpace(line)
		}
	}
	return last
}

func useOf(name string, state *os.ProcessState) processUse {
	return processUse{Name: name, CPUSeconds: (state.UserTime() + state.SystemTime()).Seconds()}
}

// server is a process that serves until it is stopped. It also ends when this
// process does, however that ends: then nobody holds its stdin any more.
type server struct {
	name   string
	addr   string
	cmd    *exec.Cmd
	end    context.CancelFunc
	stderr *bytes.Buffer
}

// serve starts a server, which prints its address in a line when it is ready.
func (p *parts) serve(ctx context.Context, name string, args ...string) (*server, error) {
	// A server goes last, when nobody uses it any more: not with ctx.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	cmd, err := p.command(life, nil, args)
	if err != nil {
		end()
		return nil, err
	}
	s := &server{name: name, cmd: cmd, end: end, stderr: new(bytes.Buffer)}
	cmd.Stderr = s.stderr
	stdin, errIn := cmd.StdinPipe()
	stdout, errOut := cmd.StdoutPipe()
	cmd.Cancel = func() error { return stdin.Close() }
	if err := errors.Join(errIn, errOut, ctx.Err()); err != nil {
		end()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := cmd.Start(); err != nil {
		end()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	interrupted := context.AfterFunc(ctx, end)
	defer interrupted()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		_, errStop := s.stop()
		if errors.Is(err, io.EOF) {
			err = errors.New("it ended")
		}
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), errStop)
	}
	s.addr = strings.TrimSpace(line)
	return s, nil
}

// stop ends the server and waits for it.
func (s *server) stop() (processUse, error) {
	s.end()
	err := s.cmd.Wait()
	if s.cmd.ProcessState == nil || !s.cmd.ProcessState.Success() {
		return processUse{}, fmt.Errorf("stop %s: %w%s", s.name, err, lastWords(s.stderr.Bytes()))
	}
	return useOf(s.name, s.cmd.ProcessState), nil
}
