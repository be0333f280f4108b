package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/exportapi/exportsim"
)

// anyPort makes the servers of a bench keep out of everybody's way.
const anyPort = "127.0.0.1:0"

// serveParent prints the address and keeps a server alive until the parent
// lets go of stdin. A signal is not enough: Ctrl-C reaches the parent too, which
// stops the servers when nobody uses them any more.
func (a *app) serveParent(addr string, server io.Closer) error {
	fmt.Fprintln(a.stdout, addr)
	_, err := io.Copy(io.Discard, a.stdin)
	return errors.Join(err, server.Close())
}

func newBenchKafkaCommand(a *app) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "serve-kafka",
		Short:   "Serve the Kafka of a bench until stdin ends",
		Example: "  exportbridge bench serve-kafka --data-dir /tmp/bench",
		Args:    noArgs,
		Hidden:  true,
	}
	cmd.Flags().StringVar(&dir, "data-dir", "", "keep the data in `DIR`")
	cmd.RunE = func(*cobra.Command, []string) error {
		k, err := startEmbeddedKafka(anyPort, dir)
		if err != nil {
			return err
		}
		return a.serveParent(k.Addr, k)
	}
	return cmd
}

func newBenchRedisCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "serve-redis",
		Short:   "Serve the Redis of a bench until stdin ends",
		Example: "  exportbridge bench serve-redis",
		Args:    noArgs,
		Hidden:  true,
		RunE: func(*cobra.Command, []string) error {
			r, err := startEmbeddedRedis(anyPort, "")
			if err != nil {
				return err
			}
			return a.serveParent(r.URL, r)
		},
	}
}

// clockPath is where the API of a bench tells its clock.
const clockPath = "/bench/clock"

// apiClock is what the API saw since it was last asked.
type apiClock struct {
	First    time.Time `json:"first"` // arrival of the first request
	Requests int       `json:"requests"`
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

// ServeHTTP answers for the simulator, or tells the clock and starts it anew.
func (w *watchedAPI) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path != clockPath {
		w.Handler.ServeHTTP(rw, r)
		return
	}
	w.mu.Lock()
	clock := w.clock
	w.clock = apiClock{}
	w.mu.Unlock()
	_ = json.NewEncoder(rw).Encode(clock) // a client that is gone needs no answer
}

func newBenchAPICommand(a *app) *cobra.Command {
	config := exportsim.Config{Seed: 1}
	cmd := &cobra.Command{
		Use:     "serve-api",
		Short:   "Serve the export API of a bench until stdin ends",
		Example: "  exportbridge bench serve-api --events 100000 --latency 20ms",
		Args:    noArgs,
		Hidden:  true,
	}
	simulatorFlags(cmd.Flags(), &config)
	cmd.RunE = func(*cobra.Command, []string) (err error) {
		api := new(watchedAPI)
		config.OnRequest = api.note
		if api.Handler, err = exportsim.New(config); err != nil {
			return err
		}
		defer api.Close()
		server, err := startEmbeddedSimulator(api, anyPort)
		if err != nil {
			return err
		}
		return a.serveParent(server.URL, server)
	}
	return cmd
}

// fetchEnd is what the loop that only fetches reports.
type fetchEnd struct {
	Ended time.Time `json:"ended"` // the last page has arrived
	Pages int       `json:"pages"`
}

func newBenchFetchCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "fetch",
		Short:   "Follow the cursor to the end and do nothing with the pages",
		Example: "  EXPORT_URL=http://127.0.0.1:4000 EXPORT_API_KEY=any exportbridge bench fetch",
		Args:    noArgs,
		Hidden:  true,
	}
	a.takeSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := a.settings(cmd.Context(), usesExport, nil)
		if err != nil {
			return err
		}
		client, err := exportapi.New(s.streams[0].export)
		if err != nil {
			return err
		}
		defer client.Close()
		end, err := fetchAll(cmd.Context(), client)
		if err != nil {
			return err
		}
		return printJSON(a.stdout, end)
	}
	return cmd
}

// fetchAll asks for one page after the other until the API names no next one.
func fetchAll(ctx context.Context, source bridge.Source) (end fetchEnd, err error) {
	var at bridge.Position
	for {
		page, err := source.Fetch(ctx, at)
		if err != nil {
			return fetchEnd{}, err
		}
		end.Pages++
		last := page.Tail()
		at.Cursor = page.Next
		page.Release()
		if last {
			end.Ended = time.Now()
			return end, nil
		}
	}
}
