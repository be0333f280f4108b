package process

import (
	"context"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// notifyInterval is how often the status is sent to the service manager, unless a
// watchdog requires more.
const notifyInterval = 10 * time.Second

// notifier sends state and watchdog messages to the service manager (sd_notify of systemd).
// It logs the first of several consecutive failures and ignores the others.
type notifier struct {
	conn net.Conn
	log  *slog.Logger
	// watchdog is the watchdog timeout, 0 for none.
	watchdog time.Duration
	failed   bool // the last message was not sent
}

// newNotifier returns nil if the process has no NOTIFY_SOCKET.
func newNotifier(ctx context.Context, environ []string, log *slog.Logger) *notifier {
	socket := variableIn(environ, "NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unixgram", socket)
	if err != nil {
		log.Warn("sd_notify disabled", logError, err)
		return nil
	}
	n := &notifier{conn: conn, log: log}
	if pid := variableIn(environ, "WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return n // the watchdog is for another process
	}
	if usec, err := strconv.ParseInt(variableIn(environ, "WATCHDOG_USEC"), 10, 64); err == nil && usec > 0 {
		n.watchdog = time.Duration(usec) * time.Microsecond
	}
	return n
}

func (n *notifier) send(message string) {
	// A manager that does not read must not block the shutdown.
	_ = n.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, err := n.conn.Write([]byte(message))
	if err != nil && !n.failed {
		n.log.Warn("sd_notify failed", logError, err)
	}
	n.failed = err != nil
}

// run sends READY, then WATCHDOG while alive reports true, and STOPPING when stopping
// or ctx ends. It returns when ctx ends.
func (n *notifier) run(ctx, stopping context.Context, alive func() bool, status func() string) {
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
			if alive() {
				message += "\nWATCHDOG=1"
			}
			n.send(message)
		}
	}
}

// alive reports whether no commit loop has stalled.
func (p *Process) alive() bool {
	return !slices.ContainsFunc(p.streams.list(), func(st *stream) bool { return !st.Alive() })
}

// notified runs the process and notifies the service manager.
func (p *Process) notified(ctx context.Context, n *notifier, run func(context.Context) error) error {
	if n == nil {
		return run(ctx)
	}
	status := func() string { // of all streams in one line
		return strings.ReplaceAll(p.options.Describe(p.streams.statuses(), time.Now()), "\n", " ")
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.run(watching, ctx, p.alive, status)
	}()
	err := run(ctx)
	stop()
	<-done
	return err
}
