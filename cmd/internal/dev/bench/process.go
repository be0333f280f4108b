package bench

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

// processes starts processes of this program.
type processes struct {
	environ []string
}

// withoutSettings removes every setting: measured processes run with the
// defaults.
func withoutSettings(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), config.IsOurs)
}

// command makes the command for one process. The process is killed 5 s after ctx
// ends.
func (p *processes) command(ctx context.Context, env, args []string) (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = slices.Concat(p.environ, env)
	cmd.WaitDelay = 5 * time.Second
	return cmd, nil
}

// output is the output of a process that has ended.
type output struct {
	stdout, stderr []byte
	cpuSeconds     float64
}

// run runs a process to its end. It is killed when ctx ends.
func (p *processes) run(ctx context.Context, env []string, what part) (output, error) {
	cmd, err := p.command(ctx, env, what.args())
	if err != nil {
		return output{}, err
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return output{}, fmt.Errorf("run %s: %w%s", what.Kind, err, lastError(stderr.Bytes()))
	}
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return output{stdout.Bytes(), stderr.Bytes(), cpu.Seconds()}, nil
}

// lastError returns the error that a process printed, or else its last line.
func lastError(stderr []byte) string {
	last := ""
	for line := range strings.Lines(string(stderr)) {
		if text, found := strings.CutPrefix(line, "error: "); found {
			return ": " + strings.TrimSpace(text)
		}
		if strings.TrimSpace(line) != "" {
			last = ": " + strings.TrimSpace(line)
		}
	}
	return last
}

// server is a process that serves until it is stopped. It also ends with this
// process, even if that is killed: the end closes the stdin of the server.
type server struct {
	name   string
	addr   string
	cmd    *exec.Cmd
	end    context.CancelFunc
	stderr *bytes.Buffer
}

// serve starts a server and waits for its address, which the server prints when it
// is ready.
func (p *processes) serve(ctx context.Context, name string, env, args []string) (*server, error) {
	// A server outlives ctx, because its clients must end first.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	cmd, err := p.command(life, env, args)
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
		if errors.Is(err, io.EOF) {
			err = errors.New("it ended")
		}
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), s.stop())
	}
	s.addr = strings.TrimSpace(line)
	return s, nil
}

// stop ends the server and waits for it.
func (s *server) stop() error {
	s.end()
	err := s.cmd.Wait()
	if s.cmd.ProcessState == nil || !s.cmd.ProcessState.Success() {
		return fmt.Errorf("stop %s: %w%s", s.name, err, lastError(s.stderr.Bytes()))
	}
	return nil
}
