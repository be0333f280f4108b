package dev

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge/bridgetest/faultproxy"
	"exportbridge/cmd/internal/cli"
)

func newBenchProxyCommand(a *cli.App) *cobra.Command {
	var to string
	var delay, spread time.Duration
	var commits, plain bool
	cmd := &cobra.Command{
		Use:     "serve-proxy",
		Short:   "Delay the replies of Kafka, or of any server, until stdin ends",
		Example: "  exportbridge-dev bench serve-proxy --to localhost:9092 --delay 5ms",
		Args:    cli.NoArgs,
		Hidden:  true,
	}
	cmd.Flags().StringVar(&to, "to", "", "`ADDRESS` of the server")
	cmd.Flags().DurationVar(&delay, "delay", 0, "delay of a reply")
	cmd.Flags().DurationVar(&spread, "spread", 0, "additional delay at most, evenly distributed")
	cmd.Flags().BoolVar(&commits, "commits", false, "delay only the replies to EndTxn, and those behind them on the connection")
	cmd.Flags().BoolVar(&plain, "plain", false, "the server is not a Kafka broker")
	cmd.RunE = func(*cobra.Command, []string) error {
		if plain {
			p, err := faultproxy.LaunchTCPProxy(to)
			if err != nil {
				return err
			}
			p.Delay(0, delay)
			return serveParent(a, p.Addr(), p)
		}
		rule := faultproxy.KafkaRule{Fault: faultproxy.DelayReply, Delay: delay, Spread: spread, Times: -1}
		if commits {
			rule.Keys = []kmsg.Key{kmsg.EndTxn}
		}
		p := faultproxy.NewKafkaProxy()
		p.Add(rule)
		addr, err := p.Before(to)
		if err != nil {
			return err
		}
		return serveParent(a, addr.String(), p)
	}
	return cmd
}
