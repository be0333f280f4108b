package command

import (
	"github.com/spf13/cobra"

	"exportbridge/bridge/backfill"
	"exportbridge/cmd/internal/cli"
)

func newReplayCommand(a *cli.App) *cobra.Command {
	o := &jobOptions{app: a, kind: backfill.Replay}
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Publish a past time once more, into a topic of its own",
		Long: `Publish a past time once more, into a topic of its own, while the stream goes on
untouched: the same events with the same ce_id, and eb-origin: replay. Without
--topic the topic is <topic>.replay.<id>, created like the stream's.

It runs in this process. When that is interrupted or killed, --resume goes on
where it was, with no event lost or twice. Windows are half open, so no event is
in two; in order are the events within one window. What the API lists later, or
with another time than when it was asked, cannot be known.

Without --execute nothing is changed.`,
		Example: `  exportbridge replay --from -2h --to now
  exportbridge replay --from 2026-11-20T10:00:00Z --to 2026-11-20T12:00:00Z --events orderPlaced --execute
  exportbridge replay --from -30d --to now --windows 30 --parallel 4 --execute
  exportbridge replay --resume k3xq7a --execute`,
		GroupID: groupPosition,
		Args:    cli.NoArgs,
	}
	o.take(cmd)
	cmd.Flags().StringSliceVar(&o.events, "events", nil, "only these event `TYPES` (default EXPORT_EVENTS)")
	cmd.Flags().StringVar(&o.topic, "topic", "", "publish into this `TOPIC`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) }
	return cmd
}
