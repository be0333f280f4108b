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
		Short: "Re-publish a past range to a separate topic",
		Long: `Re-publish a past range to a separate topic while the stream keeps running: the
same events with the same ce_id, and the header eb-origin: replay. The default
topic is <topic>.replay.<id>, created with the settings of the stream's topic.

Running processes carry the job out, in --parallel lanes that they share, and
the command returns. With --here, and if no process runs or all have
BRIDGE_OWNERSHIP=stream, the job runs in this process. After an interruption or
a crash, continue it with --resume; no event is lost or repeated. The help of
"backfill resume" says what a new --parallel or --rate-limit changes. The
commands below "backfill" show and stop replays, too. A window includes its
start and excludes its end; order is kept within a window. If the API lists an
event late, or changes its time, the event can be missing or published twice.

Without --execute, the command is a dry run.`,
		Example: `  exportbridge replay --from -2h --to now
  exportbridge replay --from -2h --to now --events orderPlaced --execute
  exportbridge replay --from -30d --to now --windows 30 --parallel 4 --execute
  exportbridge replay --resume k3xq7a --execute`,
		GroupID: cli.GroupPosition,
		Args:    cli.NoArgs,
	}
	o.take(cmd)
	cmd.Flags().StringSliceVar(&o.request.Events, "events", nil, "event `TYPES` to publish (default EXPORT_EVENTS)")
	cmd.Flags().StringVar(&o.request.Topic, "topic", "", "destination `TOPIC`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) }
	return cmd
}
