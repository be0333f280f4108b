package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/control"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
	"exportbridge/cursorstore"
)

// streamHandle is the controller of one stream, and its connection to Redis.
type streamHandle struct {
	*control.Controller
	client *cursorstore.Client
}

func (h *streamHandle) close() { _ = h.client.Close() } // nothing remains to be written

// withStream returns the RunE of a command that reads the stream of --stream.
func withStream(
	a *cli.App, stream *string, run func(context.Context, *streamHandle) error,
) func(*cobra.Command, []string) error {
	return steering(func(cmd *cobra.Command, _ []string) error {
		h, err := openStream(a, 0, *stream)
		if err != nil {
			return err
		}
		defer h.close()
		return run(cmd.Context(), h)
	})
}

// openStream connects to the servers of a stream. It does not need the API's key.
func openStream(a *cli.App, need config.Uses, name string) (*streamHandle, error) {
	s, st, err := a.StreamSettings(need|config.UsesCursor|config.WithoutKey, name)
	if err != nil {
		return nil, err
	}
	client, err := cli.OpenRedis(s)
	if err != nil {
		return nil, err
	}
	return &streamHandle{controllerOf(client, s, st, nil), client}, nil
}

// openStreams connects to the servers of the named stream, or of all streams. The caller
// closes the client.
func openStreams(a *cli.App, need config.Uses, name string) (*cursorstore.Client, []*control.Controller, error) {
	s, err := a.StreamsSettings(need|config.UsesCursor|config.WithoutKey, name)
	if err != nil {
		return nil, nil, err
	}
	client, err := cli.OpenRedis(s)
	if err != nil {
		return nil, nil, err
	}
	all := make([]*control.Controller, len(s.Streams))
	for i := range all {
		all[i] = controllerOf(client, s, &s.Streams[i], nil)
	}
	return client, all, nil
}

// controllerOf wires the controller of a stream. It connects to no server. shared is the
// Kafka client that looks up members; may be nil.
func controllerOf(
	client *cursorstore.Client, s *config.Settings, st *config.Stream, shared *kafkaclient.Shared,
) *control.Controller {
	store, kafka, cfg := client.Stream(st.Name), st.Kafka, st.Engine
	kafka.Known, cfg.Owner = store.Load, s.Owner()
	if !st.Windows.Windows() { // the watermark is a time, whatever times the API accepts
		cfg.Refuse = st.Export.Refuse
	}
	group := kafka.Ownership()
	group.Shared = shared
	return control.New(cfg, control.Ports{
		Store: store, Entries: store, Inbox: store, Live: store, Directory: client,
		Log: kafka.History(), Group: group, Backfilled: backfilled(&kafka),
		OpenSink: func() (bridge.Sink, error) { return kafka.Sink() },
	})
}

// backfilled returns the Backfilled of a stream. It keeps nothing of what it reads: plans are
// rare, and a process has a controller for each stream.
func backfilled(kafka *kafkastream.Config) func(context.Context, int64) (int64, error) {
	return func(ctx context.Context, since int64) (int64, error) {
		jobs, topics := backfill.NewJobs(kafka.Jobs(new(kafkasink.JobLogs)), kafka.Stream), kafka.Topics()
		all, err := jobs.List(ctx, 0)
		var events int64
		for i := range all {
			if j := &all[i]; j.Kind == backfill.Backfill && j.Publishes(topics.OfEvents()) {
				events += j.EventsSince(since)
			}
		}
		return events, err
	}
}

// change is the common part of the commands that change a stream.
type change struct {
	app    *cli.App
	stream string
	by     control.Request
	json   *bool
}

// ackTimeout is the time in which a running bridge has to acknowledge a request.
const ackTimeout = 30 * time.Second

func newChange(a *cli.App) change { return change{app: a, by: control.Request{Timeout: ackTimeout}} }

func (c *change) flags(cmd *cobra.Command) {
	c.app.TakeSettings(cmd)
	c.json = cli.TakeJSON(cmd)
	f := cmd.Flags()
	cli.TakeStream(cmd, &c.stream)
	f.Var(cli.Parsed(&c.by.Reason, parseReason, "REASON"), "reason", "`REASON` to record in the history")
	f.Var(cli.Parsed(&c.by.Timeout, parseTimeout, "DURATION"), "timeout",
		"maximum wait for the acknowledgement (default 30s)")
}

// open connects to the servers of the stream to change.
func (c *change) open() (*streamHandle, error) {
	c.sign()
	return openStream(c.app, config.UsesExport, c.stream)
}

// sign adds the operator to the request, and prints why the command waits.
func (c *change) sign() {
	c.by.Who = cli.Operator()
	c.by.Waiting = func(err error) {
		fmt.Fprintf(c.app.Stderr, "waiting: %v\nTry: %s\n", err, cli.UnseenOwnerHint)
	}
}

// leastTimeout is the shortest time within which a bridge answers.
const leastTimeout = time.Second

func parseTimeout(text string) (time.Duration, error) {
	d, err := bridge.ParseDuration(text)
	if err == nil && d < leastTimeout {
		err = fmt.Errorf("%s is too short: the minimum is %s", d, leastTimeout)
	}
	return d, err
}

func parseReason(text string) (string, error) { return text, bridge.CheckReason(text) }
