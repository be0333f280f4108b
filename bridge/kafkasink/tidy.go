package kafkasink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// JobsKept is how long after its end all of a job is kept.
	JobsKept = 30 * 24 * time.Hour
	// tidiedAtOnce is how many jobs one Tidy takes away.
	tidiedAtOnce = 20
)

// errKeep: the job is not to be taken away.
var errKeep = errors.New("the job is not over for long enough")

// Tidy takes away what is left of jobs that were done or cancelled longer ago
// than JobsKept: the checkpoints of their windows, and the job. Of a backfill a
// record stays for ever: it is what refuses to publish the same time again. One
// that is done has one window there; one that was cancelled keeps them, since
// they say what is left. None of them can go on. It returns how many it took away, at
// most 20 at a time; repeating is safe.
func (j *Jobs) Tidy(ctx context.Context, now time.Time) (int, error) {
	all, err := j.List(ctx)
	if err != nil {
		return 0, err
	}
	n := 0
	for i := range all {
		if n == tidiedAtOnce || !all[i].over(now) {
			continue
		}
		if err := j.reduce(ctx, &all[i], now); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// over reports whether there is something to take away.
func (j *Job) over(now time.Time) bool {
	return j.State != JobRunning && !j.Reduced && now.Sub(time.UnixMilli(max(j.Changed, j.Created))) > JobsKept
}

// reduced is the short record of a job.
func (j *Job) reduced() Job {
	short, all := *j, JobWindow{From: j.From, To: j.To, Ended: "done"}
	short.Reduced = true
	if j.State != JobDone {
		return short
	}
	all.Events, all.Pages, all.DeadLettered = j.Counts()
	for i := range j.Windows {
		all.Position = max(all.Position, j.Windows[i].Position)
	}
	short.Windows = []JobWindow{all}
	return short
}

// reduce takes a job away, if it is still over: in one transaction of the job's,
// so that nobody sees a part of it. The job is as it was listed.
func (j *Jobs) reduce(ctx context.Context, listed *Job, now time.Time) error {
	id := listed.ID
	j.changing.Lock()
	defer j.changing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, jobsTimeout)
	defer cancel()
	s := j.sink(id)
	x, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer x.close()
	have, err := s.takeJob(ctx, x, jobKey(j.cfg.Stream, id))
	switch {
	case err != nil:
		return s.explain(err, x.writer)
	case have.Version == 0 || !have.over(now):
		return fmt.Errorf("job %s: %w", id, errKeep)
	}
	for n := range min(len(have.Windows), len(listed.Windows)) { // the list knows their checkpoints
		if have.Windows[n].Ended == "" {
			have.Windows[n] = listed.Windows[n]
		}
	}
	own, err := s.reduction(&have)
	if err == nil {
		_, err = s.commitOwn(ctx, x, "the end of a job", own...)
	}
	if err != nil {
		return s.explain(fmt.Errorf("take job %s away: %w", id, err), x.writer)
	}
	return nil
}

// reduction is the records that take a job away, the job's own last.
func (s *Sink) reduction(j *Job) ([]kgo.Record, error) {
	var own []kgo.Record
	for n := range j.Windows {
		w := Sink{cfg: s.cfg}
		w.cfg.Stream = j.WindowName(n)
		own = append(own, w.ownRecord(w.cfg.dataKey(), nil), w.ownRecord(w.cfg.barrierKey(), nil))
	}
	last := s.ownRecord(jobKey(j.Stream, j.ID), nil)
	if j.Kind == JobBackfill {
		short := j.reduced()
		value, err := json.Marshal(&short)
		if err != nil {
			return nil, fmt.Errorf("encode job %s: %w", j.ID, err)
		}
		last.Value = value
		last.Headers = []kgo.RecordHeader{{Key: headerContentType, Value: []byte("application/json")}}
	}
	return append(own, last), nil
}
