package backfill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// Kept is how long after its end all of a job is kept.
	Kept = 30 * 24 * time.Hour
	// tidiedAtOnce is how many jobs one Tidy takes away.
	tidiedAtOnce = 20
)

// errKeep: the job is not to be taken away.
var errKeep = errors.New("the job is not over for long enough")

// Tidy takes away what is left of jobs that were done or cancelled longer ago
// than Kept: the checkpoints of their windows, and the job. Of a backfill a
// record stays for ever: it is what refuses to publish the same time again. One
// that is done has one window there; one that was cancelled keeps them, since
// they say what is left. None of them can go on. It returns how many it took
// away, at most 20 at a time; repeating is safe.
func (j *Jobs) Tidy(ctx context.Context, now time.Time) (int, error) {
	all, err := j.List(ctx, 0)
	if err != nil {
		return 0, err
	}
	n := 0
	for i := range all {
		if n == tidiedAtOnce || !all[i].over(now) {
			continue
		}
		if err := j.reduce(ctx, &all[i], now); err != nil {
			return n, fmt.Errorf("take job %s away: %w", all[i].ID, err)
		}
		n++
	}
	return n, nil
}

// over reports whether there is something to take away.
func (j *Job) over(now time.Time) bool {
	return j.State != Running && !j.Reduced && now.Sub(time.UnixMilli(max(j.Changed, j.Created))) > Kept
}

// reduced is the short record of a job.
func (j *Job) reduced() Job {
	short, all := *j, Window{From: j.From, To: j.To, Ended: "done"}
	short.Reduced = true
	if j.State != Done {
		return short
	}
	all.Events, all.Pages, all.DeadLettered = j.Counts()
	for i := range j.Windows {
		all.Position = max(all.Position, j.Windows[i].Position)
	}
	short.Windows = []Window{all}
	return short
}

// reduce takes a job away, if it is still over: nobody sees a part of it. The
// job is as it was listed.
func (j *Jobs) reduce(ctx context.Context, listed *Job, now time.Time) error {
	return j.log.Change(ctx, listed.ID, func(r *kgo.Record) (plan []byte, gone []string, err error) {
		have, err := decodePlan(r)
		switch {
		case err != nil:
			return nil, nil, err
		case have.Version == 0 || !have.over(now):
			return nil, nil, errKeep
		}
		have.fillIn(listed)
		for n := range have.Windows {
			gone = append(gone, have.WindowName(n))
		}
		if have.Kind == Backfill {
			plan, err = json.Marshal(have.reduced())
		}
		return plan, gone, err
	})
}

// fillIn takes what windows that have not ended have reached from the job as it
// was listed, which knows their checkpoints.
func (j *Job) fillIn(listed *Job) {
	for n := range min(len(j.Windows), len(listed.Windows)) {
		if j.Windows[n].Ended == "" {
			j.Windows[n] = listed.Windows[n]
		}
	}
}
