package process

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// notifyInterval is how often a service manager is told what the process does,
// where no watchdog asks for more.
const notifyInterval = 10 * time.Second

// notifier tells the service manager that started this process how it is
// (sd_notify of systemd). Nobody needs to hear it: what cannot be sent is
// logged once.
type notifier struct {
	conn net.Conn
	log  *slog.Logger
	// watchdog is how long the manager waits for a sign of life, 0 for ever.
	watchdog time.Duration
	deaf     bool // the last message was not taken
}

// newNotifier returns nil if no service manager wants to be told.
func newNotifier(ctx context.Context, environ []string, log *slog.Logger) *notifier {
	socket := variableIn(environ, "NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unixgram", socket)
	if err != nil {
		log.Warn("the service manager is not told anything", logError, err)
		return nil
	}
	n := &notifier{conn: conn, log: log}
	if pid := variableIn(environ, "WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return n // for another process
	}
	if usec, err := strconv.ParseInt(variableIn(environ, "WATCHDOG_USEC"), 10, 64); err == nil && usec > 0 {
		n.watchdog = time.Duration(usec) * time.Microsecond
	}
	return n
}

func (n *notifier) send(message string) {
	// A manager that does not read must not keep the process from ending.
	_ = n.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, err := n.conn.Write([]byte(message))
	if err != nil && !n.deaf {
		n.log.Warn("the service manager was not told", logError, err)
	}
	n.deaf = err != nil
}

// run says that the process is ready, keeps the watchdog quiet while turning
// reports that the streams move or wait for something with a name, and says
// that the process stops when stopping ends or, at the latest, ctx. It returns
// when ctx ends.
func (n *notifier) run(ctx, stopping context.Context, turning func() bool, status func() string) {
	defer n.conn.Close()
	interval := notifyInterval
	if n.watchdog > 0 {
		interval = min(interval, max(n.watchdog/2, time.Millisecond))
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	n.send("READY=1\nSTATUS=" + status())
	stops := stopping.Done()
	for {
		select {
		case <-ctx.Done():
			if stops != nil {
				n.send("STOPPING=1")
			}
			return
		case <-stops:
			n.send("STOPPING=1")
			stops = nil
		case <-tick.C:
			message := "STATUS=" + status()
			if turning() {
				message += "\nWATCHDOG=1"
			}
			n.send(message)
		}
	}
}

// turning reports whether every stream's loop turns.
func (p *Process) turning() bool {
	for _, st := range p.streams {
		if !st.bridge.Alive() {
			return false
		}
	}
	return true
}

// statusText is what all streams do, in one line.
func (p *Process) statusText() string {
	return strings.ReplaceAll(p.options.Describe(p.statuses(), time.Now()), "\n", " ")
}

// notified runs the process and keeps the service manager informed.
func (p *Process) notified(ctx context.Context, n *notifier, run func(context.Context) error) error {
	if n == nil {
		return run(ctx)
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.run(watching, ctx, p.turning, p.statusText)
	}()
	err := run(ctx)
	stop()
	<-done
	return err
}
