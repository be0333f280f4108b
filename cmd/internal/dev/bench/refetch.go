package bench

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"exportbridge/bridge"
)

const (
	// killWithin is the longest time from the first page of a process to its kill. A batch
	// grows for a shorter time.
	killWithin = 500 * time.Millisecond
	// killPages bounds the pages that a process follows until its kill.
	killPages = 30
	// clockEvery is how often the API is asked whether it has delivered a page.
	clockEvery = 5 * time.Millisecond
)

// refetch kills bridges that follow one export, one after the other. It counts the
// pages that were delivered to one bridge and are fetched again by the next one.
func (b *bench) refetch(ctx context.Context, c cell, name string) (measurement, error) {
	p := part{API: c.api, Events: c.pages * pageEvents}
	again, err := b.onOwnAPI(ctx, p, func(api apiServer) ([]time.Duration, error) {
		return b.fetchedAgain(ctx, c, name, api)
	})
	if err != nil {
		return measurement{}, err
	}
	return measurement{RefetchedP99: milliseconds(quantile(again, 0.99))}, nil
}

// fetchedAgain returns for each kill the latency of all pages that were fetched
// again.
func (b *bench) fetchedAgain(ctx context.Context, c cell, name string, api apiServer) ([]time.Duration, error) {
	env := append(b.settings(c, name, api),
		"BRIDGE_INSTANCE_ID="+name) // so that the next process does not wait for the session's end
	kills := c.kills
	if c.warming {
		kills = max(1, kills/10)
	}
	var again []time.Duration
	had := 0 // pages of the process that was killed
	for i := range kills + 1 {
		var clock apiClock
		end := kill
		if i == kills {
			end = endGently // so that its group can be deleted
		}
		err := b.whileRuns(ctx, c, env, end, func(ctx context.Context) (err error) {
			if clock, err = api.firstPage(ctx); err == nil && i < kills {
				err = pause(ctx, rand.N(killWithin))
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if i > 0 {
			again = append(again, time.Duration(max(0, had-clock.Earliest))*c.api.Latency)
		}
		if clock, err = api.ask(ctx, http.MethodPost, ""); err != nil {
			return nil, err
		}
		had = clock.Next
	}
	return again, nil
}

// firstPage waits until the API has delivered a page since its clock was reset. Without a
// request, it is one that the killed process had asked for.
func (a apiServer) firstPage(ctx context.Context) (apiClock, error) {
	for {
		clock, err := a.ask(ctx, http.MethodGet, "")
		if err != nil || clock.Next > 0 && clock.Requests > 0 {
			return clock, err
		}
		if err := pause(ctx, clockEvery); err != nil {
			return clock, err
		}
	}
}

// pause sleeps for d. It returns the error of ctx if that ends first.
func pause(ctx context.Context, d time.Duration) error {
	bridge.Sleep(ctx, d)
	return ctx.Err()
}
