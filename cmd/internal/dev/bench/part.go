package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
)

// part tells one process of a benchmark what to do. The benchmark starts this
// program with the hidden command part and this as JSON; the bridge's settings
// are environment variables.
type part struct {
	Kind work

	Dir string `json:",omitzero"` // of Kafka's data

	API     apiKind `json:",omitzero"`
	Events  int     `json:",omitzero"` // in stock
	Growing bool    `json:",omitzero"`

	To            string        `json:",omitzero"` // address behind the proxy
	Plain         bool          `json:",omitzero"` // To is not a Kafka broker
	Commits       bool          `json:",omitzero"` // delay only the replies to EndTxn
	Delay, Spread time.Duration `json:",omitzero"`

	Follow     bool     `json:",omitzero"` // as run without --once
	Without    omitted  `json:",omitzero"`
	CPUFile    string   `json:",omitzero"` // of the CPU profile
	AllocsFile string   `json:",omitzero"`
	Backfill   []string `json:",omitzero"` // its arguments
}

// The kinds of servers. The kinds of measured processes stand at work.
const (
	serverKafka work = "kafka"
	serverRedis work = "redis"
	serverAPI   work = "api"
	serverProxy work = "proxy"
	serverFleet work = "fleet"
)

var partKinds = map[work]func(context.Context, *cli.App, *part) error{
	serverKafka: serveKafka, serverRedis: serveRedis, serverAPI: serveAPI, serverProxy: serveProxy,
	serverFleet: serveFleet,
	workBridge:  runBridge, workBackfill: runBackfill,
	workFetch:      loop(config.UsesExport, fetchLoop),
	workMemory:     loop(config.UsesExport|config.UsesKafka, memoryLoop),
	workUsual:      loop(config.UsesAll, usualLoop),
	workSequential: loop(config.UsesAll, sequentialLoop),
}

func newPartCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "part JSON",
		Short:   "Run one process of a benchmark",
		Example: `  exportbridge-dev bench part '{"Kind":"redis"}'`,
		Args:    cobra.ExactArgs(1),
		Hidden:  true,
	}
	a.TakeSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var p part
		if err := json.Unmarshal([]byte(args[0]), &p); err != nil || partKinds[p.Kind] == nil {
			err = errors.Join(fmt.Errorf("%q is not a part of a benchmark", args[0]), err)
			return cli.WrongUsage("exportbridge-dev bench --help", "%w", err)
		}
		return partKinds[p.Kind](cmd.Context(), a, &p)
	}
	return cmd
}

// args are the arguments that start the part.
func (p *part) args() []string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // JSON can hold every part
	}
	return []string{"bench", "part", string(text)}
}

// anyPort keeps a benchmark's servers off the usual ports.
const anyPort = "127.0.0.1:0"

// serveParent prints the address and keeps a server alive until the parent
// closes stdin. A signal does not stop it: Ctrl-C reaches all processes, and the
// parent stops the servers after their clients.
func serveParent(a *cli.App, addr string, server io.Closer) error {
	fmt.Fprintln(a.Stdout, addr)
	_, err := io.Copy(io.Discard, a.Stdin)
	return errors.Join(err, server.Close())
}
