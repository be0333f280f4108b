package kafkasink_test

import (
	"sync"
	"testing"
	"time"

	"exportbridge/bridge/backfill"
	"exportbridge/bridge/bridgetest/kafkatest"
)

// TestManyChangesOfAJob: the lanes of a job end at once in so many processes. Each change is
// committed, although they fence each other.
func TestManyChangesOfAJob(t *testing.T) {
	t.Parallel()
	const lanes = 24
	cfg := config(t, kafkatest.Brokers(t), exactly)
	job, _ := newJob(t, cfg, backfill.Backfill, "aaaaaa")
	job.Windows = backfill.Split(job.From, job.To, lanes)
	put(t, jobsOf(cfg), job)
	var changing sync.WaitGroup
	for n := range lanes {
		jobs := jobsOf(cfg)
		changing.Go(func() {
			_, err := jobs.change(t.Context(), job.ID, func(have backfill.Job) (backfill.Job, error) {
				<-time.After(20 * time.Millisecond) // as from brokers that are far away
				have.Windows[n].Ended = "on its last page"
				return have, nil
			})
			if err != nil {
				t.Errorf("window %d: %v", n, err)
			}
		})
	}
	changing.Wait()
	all, err := jobsOf(cfg).list(t.Context())
	if err != nil || len(all) != 1 || all[0].Ended() != lanes {
		t.Errorf("not all windows of the job have ended: %v", err)
	}
}
