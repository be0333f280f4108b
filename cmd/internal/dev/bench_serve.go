package dev

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/cmd/internal/cli"
)

// benchParts are the commands of a bench's processes. No row's name begins as
// theirs do.
func benchParts(a *cli.App) []*cobra.Command {
	return []*cobra.Command{
		newBenchKafkaCommand(a), newBenchRedisCommand(a), newBenchAPICommand(a), newBenchProxyCommand(a),
		newBenchBridgeCommand(a), newBenchBackfillCommand(a), newBenchFetchCommand(a), newBenchSplitCommand(a), newBenchMemoryCommand(a),
		newBenchUsualCommand(a), newBenchSequentialCommand(a),
	}
}

// anyPort makes the servers of a bench keep out of everybody's way.
const anyPort = "127.0.0.1:0"

// serveParent prints the address and keeps a server alive until the parent
// lets go of stdin. A signal is not enough: Ctrl-C reaches the parent too, which
// stops the servers when nobody uses them any more.
func serveParent(a *cli.App, addr string, server io.Closer) error {
	fmt.Fprintln(a.Stdout, addr)
	_, err := io.Copy(io.Discard, a.Stdin)
	return errors.Join(err, server.Close())
}

func newBenchKafkaCommand(a *cli.App) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "serve-kafka",
		Short:   "Serve the Kafka of a bench until stdin ends",
		Example: "  exportbridge-dev bench serve-kafka --data-dir /tmp/bench",
		Args:    cli.NoArgs,
		Hidden:  true,
	}
	cmd.Flags().StringVar(&dir, "data-dir", "", "keep the data in `DIR`")
	cmd.RunE = func(*cobra.Command, []string) error {
		k, err := startEmbeddedKafka(anyPort, dir)
		if err != nil {
			return err
		}
		return serveParent(a, k.Addr, k)
	}
	return cmd
}

func newBenchRedisCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "serve-redis",
		Short:   "Serve the Redis of a bench until stdin ends",
		Example: "  exportbridge-dev bench serve-redis",
		Args:    cli.NoArgs,
		Hidden:  true,
		RunE: func(*cobra.Command, []string) error {
			r, err := startEmbeddedRedis(anyPort, "")
			if err != nil {
				return err
			}
			return serveParent(a, r.URL, r)
		},
	}
}

// clockPath is where the API of a bench tells its clock.
const clockPath = "/bench/clock"

// apiClock is what the API saw since it was last asked.
type apiClock struct {
	First    time.Time `json:"first"` // arrival of the first request
	Requests int       `json:"requests"`
	// Grew is when the first event came into stock, if the export grows.
	Grew time.Time `json:"grew"`
}

// watchedAPI is the simulator with a clock.
type watchedAPI struct {
	*exportsim.Handler
	mu    sync.Mutex
	clock apiClock // guarded by mu
}

func (w *watchedAPI) note(*http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.clock.Requests == 0 {
		w.clock.First = time.Now()
	}
	w.clock.Requests++
}

// ServeHTTP answers for the simulator; or tells the clock and starts it anew,
// with as many events in stock as the request says, if it says so.
func (w *watchedAPI) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path != clockPath {
		w.Handler.ServeHTTP(rw, r)
		return
	}
	if events, err := strconv.Atoi(r.URL.Query().Get("events")); err == nil {
		w.SetStock(events)
	}
	w.mu.Lock()
	clock := w.clock
	w.clock = apiClock{}
	w.mu.Unlock()
	clock.Grew = w.VisibleAt(0)
	_ = json.NewEncoder(rw).Encode(clock) // a client that is gone needs no answer
}

// prerenderLimit bounds the memory of pages that an API renders ahead: what
// comes after them takes it half a millisecond a page.
const prerenderLimit = 512 << 20

// The events of a bench: the pages of every run are the same bytes.
var benchStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const benchEvery = 100 * time.Millisecond // from one event to the next, where the export does not grow

func newBenchAPICommand(a *cli.App) *cobra.Command {
	config := exportsim.Config{Seed: 1, Start: benchStart}
	var prerender bool
	cmd := &cobra.Command{
		Use:     "serve-api",
		Short:   "Serve the export API of a bench until stdin ends",
		Example: "  exportbridge-dev bench serve-api --events 100000 --latency 20ms",
		Args:    cli.NoArgs,
		Hidden:  true,
	}
	simulatorFlags(cmd.Flags(), &config)
	cmd.Flags().BoolVar(&prerender, "prerender", false, "render the pages of the stock before the first request")
	cmd.RunE = func(*cobra.Command, []string) (err error) {
		api := new(watchedAPI)
		config.OnRequest = api.note
		if config.Rate == 0 {
			config.Every = benchEvery
		}
		if api.Handler, err = exportsim.New(config); err != nil {
			return err
		}
		defer api.Close()
		if prerender {
			api.Prerender(pageEvents, prerenderLimit)
		}
		server, err := startEmbeddedSimulator(api, anyPort)
		if err != nil {
			return err
		}
		return serveParent(a, server.URL, server)
	}
	return cmd
}
