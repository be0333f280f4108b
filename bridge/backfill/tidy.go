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
	// Kept is how long a finished or cancelled job is kept in full.
	Kept = 30 * 24 * time.Hour
	// tidiedAtOnce is the maximum number of jobs that one Tidy removes.
	tidiedAtOnce = 20
)

// errKeep means that nothing of the job can be removed.
var errKeep = errors.New("the job was removed, or ended too recently")

// Tidy removes jobs that ended longer ago than Kept, with the checkpoints of their
// windows. A backfill leaves a record for ever, since later backfills must not overlap
// it: a finished one with a single window, a cancelled one with all windows, which show
// the remaining ones. Tidy returns the number of removed jobs, at most 20. It may be
// repeated.
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
		switch err := j.reduce(ctx, &all[i], now); {
		case errors.Is(err, errKeep): // another process has removed it meanwhile
		case err != nil:
			return n, fmt.Errorf("remove job %s: %w", all[i].ID, err)
		default:
			n++
		}
	}
	return n, nil
}

// over reports whether the job can be removed.
func (j *Job) over(now time.Time) bool {
	return j.State != Running && !j.Reduced && now.Sub(time.UnixMilli(max(j.Changed, j.Created))) > Kept
}

// reduced returns the short record of a job.
func (j *Job) reduced() Job {
	short := *j
	short.Reduced = true
	if j.State == Done {
		all := j.Totals()
		all.Ended = "done"
		short.Windows = []Window{all}
	}
	return short
}

// reduce removes a job in one transaction, if it is still over.
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

// fillIn copies the counts of unfinished windows from the listed job.
func (j *Job) fillIn(listed *Job) {
	for n := range min(len(j.Windows), len(listed.Windows)) {
		if j.Windows[n].Ended == "" {
			j.Windows[n] = listed.Windows[n]
		}
	}
}
