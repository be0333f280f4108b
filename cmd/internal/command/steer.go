package command

import (
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
	"exportbridge/cursorstore"
)

// streamHandle is one stream, for a command that looks at it or steers it.
type streamHandle struct {
	*control.Controller
	client *cursorstore.Client
}

func (h *streamHandle) close() { _ = h.client.Close() } // nothing is left to be written

// openStream connects to the servers of the stream that the command is about.
func openStream(a *cli.App, need config.Uses, name string) (*streamHandle, error) {
	s, err := steeringSettings(a, need)
	if err != nil {
		return nil, err
	}
	st, err := cli.StreamNamed(s, name)
	if err != nil {
		return nil, err
	}
	client, err := openRedis(s)
	if err != nil {
		return nil, err
	}
	return &streamHandle{controllerOf(client, s, st), client}, nil
}

// steeringSettings loads what commands need that look at streams. The API is
// not asked, so its key is not needed.
func steeringSettings(a *cli.App, need config.Uses) (*config.Settings, error) {
	s, err := a.Settings(need|config.UsesKafka|config.UsesCursor|config.WithoutKey, nil)
	if err == nil {
		a.Warn(s)
	}
	return s, err
}

// openStreams connects to the servers of all streams of the settings, or of the
// one that is named. The caller closes the client.
func openStreams(a *cli.App, name string) (*cursorstore.Client, []*control.Controller, error) {
	s, err := steeringSettings(a, 0)
	if err != nil {
		return nil, nil, err
	}
	if name != "" {
		if _, err := cli.StreamNamed(s, name); err != nil {
			return nil, nil, err
		}
	}
	client, err := openRedis(s)
	if err != nil {
		return nil, nil, err
	}
	var all []*control.Controller
	for i := range s.Streams {
		st := &s.Streams[i]
		if name != "" && st.Name != name {
			continue
		}
		all = append(all, controllerOf(client, s, st))
	}
	return client, all, nil
}

// openRedis connects to the Redis that keeps the cursors.
func openRedis(s *config.Settings) (*cursorstore.Client, error) {
	cursorstore.LogTo(nil)
	return cursorstore.Open(s.Cursor)
}

// controllerOf wires the controller of a stream. No server is asked yet.
func controllerOf(client *cursorstore.Client, s *config.Settings, st *config.Stream) *control.Controller {
	store, kafka, cfg := client.Stream(st.Name), st.Kafka, st.Engine
	kafka.Known, cfg.Owner = store.Load, s.Owner()
	return control.New(cfg, control.Ports{
		Store: store, Entries: store, Inbox: store, Live: store, Directory: client,
		Log: kafka.History(), Group: kafka.Ownership(),
		OpenSink: func() (control.Sink, error) { return kafkasink.New(kafka) }, NoStart: st.Export.Starts(),
	})
}

// change is what commands have in common that change a stream.
type change struct {
	app    *cli.App
	stream string
	by     control.Request
	json   *bool
}

// ackTimeout is how long a running bridge has to acknowledge a request.
const ackTimeout = 30 * time.Second

func newChange(a *cli.App) change { return change{app: a, by: control.Request{Timeout: ackTimeout}} }

func (c *change) flags(cmd *cobra.Command) {
	c.app.TakeSettings(cmd)
	c.json = cli.TakeJSON(cmd)
	f := cmd.Flags()
	cli.TakeStream(cmd, &c.stream)
	f.Var(cli.Parsed(&c.by.Reason, parseReason, "REASON"), "reason", "`REASON` to record in the history")
	f.Var(cli.Parsed(&c.by.Timeout, parseTimeout, "DURATION"), "timeout", "maximum wait for the acknowledgement (default 30s)")
}

// open connects to the servers of the stream that is to be changed.
func (c *change) open() (*streamHandle, error) {
	c.by.Who = operator()
	c.by.Waiting = func(err error) { fmt.Fprintf(c.app.Stderr, "waiting: %v\nTry: %s\n", err, cli.UnseenOwnerHint) }
	return openStream(c.app, config.UsesExport, c.stream)
}

// leastTimeout is the least time in which a bridge can be expected to answer.
const leastTimeout = time.Second

func parseTimeout(text string) (time.Duration, error) {
	d, err := bridge.ParseDuration(text)
	if err == nil && d < leastTimeout {
		err = fmt.Errorf("%s is too short: the minimum is %s", d, leastTimeout)
	}
	return d, err
}

func parseReason(text string) (string, error) { return text, bridge.CheckReason(text) }

// operator names who asks, for the history.
func operator() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// membersTimeout bounds the question who runs the stream.
const membersTimeout = 10 * time.Second
