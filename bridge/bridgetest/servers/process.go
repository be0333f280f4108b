package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"exportbridge/bridge"
)

// errNotOurs is the error of the methods that control a server of another user.
var errNotOurs = errors.New("this server is not ours to kill, pause or start; set Own in its options")

// process is a server program that can be killed, paused and started again. It ends with
// this process at the latest.
type process struct {
	name string
	args []string // the program and its arguments
	log  string   // file for stdout and stderr, which are appended

	mu     sync.Mutex // guards all below
	cmd    *exec.Cmd
	done   chan struct{} // closed when cmd has ended
	paused bool
}

// start starts the program, unless it runs.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return nil
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd = exec.Command(p.args[0], p.args[1:]...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = log, log, ownGroup()
	p.done, p.paused = make(chan struct{}), false
	started := make(chan error, 1)
	// Linux ends the child when the thread that started it ends, so this
	// goroutine holds its thread until the child has ended. kill and stop
	// wait for it.
	go func(cmd *exec.Cmd, done chan struct{}) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err == nil {
			// The log has the exit status. Only the end matters here.
			_ = cmd.Wait()
		}
	}(p.cmd, p.done)
	if err := <-started; err != nil {
		<-p.done
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	return nil
}

// running reports whether the program runs. The caller holds mu.
func (p *process) running() bool { return p.done != nil && !closed(p.done) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// await calls ask until ask returns nil, exited is closed or ctx ends.
func await(ctx context.Context, exited <-chan struct{}, ask func(context.Context) error) error {
	for {
		err := ask(ctx)
		switch {
		case err == nil:
			return nil
		case closed(exited):
			return fmt.Errorf("the server has ended: %w", err)
		}
		if bridge.Sleep(ctx, 20*time.Millisecond); ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// answers reports whether the program runs and is not paused.
func (p *process) answers() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running() && !p.paused
}

// exited returns a channel that is closed when the started program has ended.
func (p *process) exited() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// kill kills the program and waits for its end. The program may be paused, or have ended.
func (p *process) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return nil
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// stop asks the program to end, and waits for the end. If ctx ends first, stop kills the
// program and returns the context's error.
func (p *process) stop(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return nil
	}
	if err := errors.Join(p.signal(syscall.SIGTERM), p.signal(resume)); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		err := p.signal(syscall.SIGKILL)
		<-p.done
		return errors.Join(fmt.Errorf("stop %s: %w", p.name, ctx.Err()), err)
	}
}

func (p *process) proceed() error { return p.send(resume) }

// pause stops the program. Where the system shows it, in /proc, pause waits until all threads
// have stopped: on a loaded machine some still answer for a while.
func (p *process) pause() error {
	if err := p.send(suspend); err != nil {
		return err
	}
	for range 10_000 {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		if err != nil || !slices.ContainsFunc(threads, runs) {
			return err
		}
		<-time.After(time.Millisecond)
	}
	return fmt.Errorf("%s has not stopped", p.name)
}

// runs reports whether a thread has neither stopped nor ended, by its file stat.
func runs(stat string) bool {
	text, err := os.ReadFile(stat)
	_, state, known := strings.Cut(string(text[bytes.LastIndexByte(text, ')')+1:]), " ")
	return err == nil && known && !strings.ContainsAny(state[:1], "TtZX")
}

func (p *process) send(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return fmt.Errorf("signal %s: it does not run", p.name)
	}
	if err := p.signal(s); err != nil {
		return err
	}
	p.paused = s == suspend
	return nil
}

// signal sends a signal to the running program. The caller holds mu.
func (p *process) signal(s syscall.Signal) error {
	if err := signalGroup(p.cmd.Process.Pid, s); err != nil && !errors.Is(err, os.ErrProcessDone) &&
		!errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// tail returns the last lines of the program's log.
func (p *process) tail(lines int) string {
	raw, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
