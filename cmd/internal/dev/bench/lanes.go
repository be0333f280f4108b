package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

const (
	// jobLanes is how many lanes the job of a fleet has: three processes run all at a time.
	jobLanes = 12
	// lanePage is the number of events on each page: with pages of pageEvents, the
	// processors of one machine would be the limit of three processes.
	lanePage = 100
)

// lanes hands a backfill over to the processes of a fleet. It measures from the first
// page to the end of the job.
func (b *bench) lanes(ctx context.Context, c cell, name string) (m measurement, err error) {
	api, events := b.apis[c.api], c.pages*lanePage
	if _, err := api.restart(ctx, events); err != nil {
		return m, err
	}
	end := exportStart.Add(time.Duration(events) * exportEvery)
	// The live stream begins where the backfill ends. It polls once: the clock counts all requests.
	env := append(b.settings(c, name, api), "HTTP_ADDR="+anyPort, "LOG_LEVEL=warn", "BRIDGE_OWNERSHIP=group",
		"EXPORT_PAGE_SIZE="+strconv.Itoa(lanePage), "EXPORT_START="+end.Format(time.RFC3339),
		"EXPORT_POLL_INTERVAL=1h", "EXPORT_POLL_INTERVAL_MAX=1h")
	members := make([]*server, c.members)
	defer func() {
		for _, member := range members {
			if member != nil {
				err = errors.Join(err, member.stop())
			}
		}
	}()
	for i := range members {
		if members[i], err = b.processes.serve(ctx, "bridge", env, (&part{Kind: serverFleet}).args()); err != nil {
			return m, err
		}
		if i == 0 {
			if err := awaitCaughtUp(ctx, members[0], 1, fleetTimeout); err != nil {
				return m, err
			}
		}
	}
	if _, err := api.restart(ctx, events); err != nil {
		return m, err
	}
	job, err := b.backfill(ctx, env, "--from", exportStart.Format(time.RFC3339), "--to", end.Format(time.RFC3339),
		"--windows", strconv.Itoa(c.windows), "--parallel", strconv.Itoa(jobLanes), "--execute", "--json")
	if err != nil {
		return m, err
	}
	if _, err := b.processes.run(ctx, env, part{Kind: workBackfill, Backfill: []string{"watch", job.ID}}); err != nil {
		return m, err
	}
	if job, err = b.backfill(ctx, env, "watch", job.ID, "--json"); err != nil {
		return m, err
	}
	clock, err := api.restart(ctx, 0)
	if err != nil {
		return m, err
	}
	m = measurement{Requests: clock.Requests, Events: events}
	m.Seconds = time.UnixMilli(job.Changed).Sub(clock.First).Seconds()
	return m, b.holds(ctx, c.mode, events, name)
}

// jobState is what a backfill command prints of its job.
type jobState struct {
	ID      string `json:"id"`
	Changed int64  `json:"changed"` // milliseconds since the epoch
}

// backfill runs a backfill command that prints its job.
func (b *bench) backfill(ctx context.Context, env []string, args ...string) (job jobState, err error) {
	out, err := b.processes.run(ctx, env, part{Kind: workBackfill, Backfill: args})
	if err != nil {
		return job, err
	}
	if err := json.Unmarshal(out.stdout, &job); err != nil {
		return job, fmt.Errorf("read its report: %w", err)
	}
	return job, nil
}
